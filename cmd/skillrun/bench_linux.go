//go:build cgo

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skillrun/skillrun/internal/bench"
)

// codeBroken is the exit code of bench if a row could not be measured.
const codeBroken = 1

// benchFlags are the flags of bench.
type benchFlags struct {
	// The flags write into it directly, and bench.Run gets it unchanged.
	config bench.Config
	// Unparsed --peer values; benchReport parses them into config.Peers.
	peers []string
	// Paths of files; empty: not read or not written.
	from string
	svg  string
	into string
	list bool
}

// benchCommand uses no running daemon: it starts daemons with state directories beneath --dir and
// removes both at the end.
func (a *app) benchCommand() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure skillrun on this machine against the same programs without a sandbox",
		Long: `Bench starts a daemon as root, sends it requests, and starts the same programs without a
sandbox, in turns. It prints how long each takes. docs/performance.md explains the method
and the targets. A run takes about a quarter of an hour, with --short one minute.

The exit code is 1 if a row could not be measured because something failed. A slow result
does not change the exit code. With --json each row is an object on a line. The last line
is an object with the whole report; falls_short names the rows that miss their target.

--peer measures another system, too. {} in its command stands for the program:
  --peer 'bwrap --unshare-all --ro-bind / / {}'`,
		Args: arguments(noArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.bench(cmd, &f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.config.Daemon, "daemon", "", "`path` of skillrund (default: in the directory of this command, else in PATH)")
	flags.StringVar(&f.config.Dir, "dir", "/var/tmp", "`directory` on a disk for the state of the daemons")
	flags.StringSliceVar(&f.config.Rows, "rows", nil, "only the `rows` with these names or prefixes; * matches any text")
	flags.BoolVar(&f.list, "list", false, "print the names of all rows and exit")
	flags.IntVarP(&f.config.Samples, "n", "n", 0, "`number` of samples of each row with single requests (default: a number for each row)")
	flags.BoolVar(&f.config.Short, "short", false, "measure everything at a small scale, to test the benchmark and not the speed")
	flags.StringArrayVar(&f.peers, "peer", nil, "measure another system, too: [NAME=]`COMMAND`, not run by a shell; may be repeated")
	flags.StringVar(&f.config.Runc, "runc", "", "`path` of runc, for the cold rows (default: in PATH)")
	flags.StringVar(&f.svg, "svg", "", "draw the distributions into this `file`")
	flags.StringVar(&f.into, "into", "", "write the table into this `file`, between the lines <!-- skillrun bench --> and <!-- end -->")
	flags.StringVar(&f.from, "from", "", "measure nothing; read this `file`, the output of an earlier --json")
	cmd.AddCommand(&cobra.Command{
		Use: "neighbour", Short: "Be the clients of a neighbour, for the command bench", Hidden: true, Args: arguments(noArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return bench.Neighbour(cmd.Context(), a.stdin, a.stdout) },
	})
	return cmd
}

// bench writes the report even if a row is broken: the other rows may still be of use. A nil report
// means that nothing was measured.
func (a *app) bench(cmd *cobra.Command, f *benchFlags) error {
	if f.list {
		_, err := fmt.Fprintln(a.stdout, strings.Join(bench.Names(), "\n"))
		return err
	}
	// Both can be set: after an interrupt the report has the rows that were measured before.
	report, err := a.benchReport(cmd, f)
	if report == nil {
		return err
	}
	if a.json {
		err = errors.Join(err, json.NewEncoder(a.stdout).Encode(report))
	} else {
		err = errors.Join(err, a.printBench(report))
	}
	if err = errors.Join(err, f.write(report)); err != nil {
		return err
	}
	if broken := report.Broken(); len(broken) > 0 {
		a.note("broken: %s", strings.Join(broken, ", "))
		return verdict(codeBroken)
	}
	return nil
}

// benchReport measures, or reads an earlier report. All mistakes on the command line are reported
// before the first daemon starts: a run takes minutes.
func (a *app) benchReport(cmd *cobra.Command, f *benchFlags) (*bench.Report, error) {
	if f.from != "" {
		return readReport(f.from)
	}
	for _, text := range f.peers {
		p, err := bench.ParsePeer(text)
		if err != nil {
			return nil, usage(cmd, err)
		}
		f.config.Peers = append(f.config.Peers, p)
	}
	if f.config.Samples < 0 {
		return nil, usage(cmd, fmt.Errorf("-n %d: must be 1 or more", f.config.Samples))
	}
	if cmd.Flags().Changed("rows") && len(f.config.Rows) == 0 {
		return nil, usage(cmd, errors.New("--rows is empty; --list prints the names of the rows"))
	}
	if _, err := bench.MatchRows(bench.Names(), f.config.Rows); err != nil {
		return nil, usage(cmd, err)
	}
	if os.Geteuid() != 0 {
		return nil, &codedError{codeRefused, "bench: starting a daemon needs root; run it as root"}
	}
	var err error
	if f.config.Daemon, err = findDaemon(f.config.Daemon); err != nil {
		return nil, err
	}
	if f.config.Self, err = os.Executable(); err != nil {
		return nil, err
	}
	f.config.Version = version
	f.config.Say = a.note
	f.config.Done = func(row bench.Row) {
		if a.json {
			json.NewEncoder(a.stdout).Encode(row) // a closed stdout shows at the last line
			return
		}
		a.note("%s: %s", row.Name, row.Brief())
	}
	return bench.Run(cmd.Context(), f.config)
}

// findDaemon returns the path of skillrund: the one asked for, else the one that came
// with this command, else the one in PATH.
func findDaemon(asked string) (string, error) {
	if asked == "" {
		asked = "skillrund"
		if self, err := os.Executable(); err == nil {
			if beside := filepath.Join(filepath.Dir(self), "skillrund"); runnable(beside) {
				asked = beside
			}
		}
	}
	path, err := exec.LookPath(asked)
	if err != nil {
		return "", &codedError{codeNotFound, fmt.Sprintf("bench: skillrund not found: %v; name its path with --daemon", err)}
	}
	return filepath.Abs(path)
}

// runnable reports whether path is a regular file with an execute permission. A directory has
// that bit, too.
func runnable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// readReport reads the last line of what bench --json printed. The lines before it are single
// rows, which the report has again.
func readReport(path string) (*bench.Report, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	text := strings.TrimRight(string(data), "\n")
	report := &bench.Report{}
	if err := json.Unmarshal([]byte(text[strings.LastIndexByte(text, '\n')+1:]), report); err != nil {
		return nil, fmt.Errorf("%s: its last line: %w", path, err)
	}
	if len(report.Rows) == 0 {
		return nil, fmt.Errorf("%s: its last line has no rows; give the output of skillrun bench --json", path)
	}
	return report, nil
}

// write writes the files that the flags ask for. The document of --into must exist and have both
// marker lines. It is read and written as a whole; a failure between the two leaves the old
// document.
func (f *benchFlags) write(report *bench.Report) (err error) {
	if f.svg != "" {
		var b strings.Builder
		if err := report.SVG(&b); err != nil {
			return err
		}
		if err := os.WriteFile(f.svg, []byte(b.String()), 0o644); err != nil {
			return err
		}
	}
	if f.into == "" {
		return nil
	}
	document, err := os.ReadFile(f.into)
	if err != nil {
		return err
	}
	text, err := report.IntoDocument(string(document))
	if err != nil {
		return fmt.Errorf("%s: %w", f.into, err)
	}
	return os.WriteFile(f.into, []byte(text), 0o644)
}

// printBench prints the table. Red is a row that could not be measured, yellow one that misses
// its target, green one that meets it. The columns of peers come after the verdict's column,
// hence its index.
func (a *app) printBench(report *bench.Report) error {
	peers := report.PeerNames()
	t := &table{}
	t.header(bench.Columns(peers)...)
	for i := range report.Rows {
		row := &report.Rows[i]
		cells := plain(row.Cells(peers)...)
		verdict := &cells[len(cells)-len(peers)-1]
		switch {
		case row.Broken != "":
			verdict.colour = red
		case row.FallsShort():
			verdict.colour = yellow
		case row.Target != nil && row.Measured():
			verdict.colour = green
		}
		t.add(cells...)
	}
	m := report.Machine
	_, err := fmt.Fprintf(a.stdout, "%d cores of %s, %.0f GiB, Linux %s; load average %.1f before, %.1f after\n\n",
		m.Cores, printable(m.Processor), m.MemoryGiB, printable(m.Kernel), m.LoadBefore, m.LoadAfter)
	return errors.Join(err, a.print(t))
}
