package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	skillrun "github.com/skillrun/skillrun/clients/go"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// runFlags are the flags of run. A zero value means that the flag is not given, and that the daemon or
// the skill decides. So a user can't ask for zero (see positive). Help texts are in add.
type runFlags struct {
	code, language   string
	args             string
	interactive      bool
	files            []string
	env, secretEnv   []string
	dir              string
	labels           []string
	key              string
	artifacts        string
	detach, quiet    bool
	onDisconnect     string
	network, deny    []string
	learn            bool
	session          skillrun.Session
	timeout, cpu     time.Duration
	queueTimeout     time.Duration
	memory           size
	output, writable size
	processes        uint32
	writableFiles    uint32
	openFiles        uint32
	cpus             cpus
}

// add declares the flags. A word in backquotes in a help text is the name of the flag's value
// (pflag.UnquoteUsage).
func (f *runFlags) add(flags *pflag.FlagSet) {
	flags.StringVarP(&f.code, "code", "c", "", "run this `code` instead of a script")
	flags.StringVarP(&f.language, "language", "l", "", "`language` of the code: python, bash, sh, node, ruby, perl (default python)")
	flags.StringVar(&f.args, "args", "", "`JSON` object for the program's standard input")
	flags.BoolVarP(&f.interactive, "interactive", "i", false, "pass standard input even if it is a terminal, or after --args")
	flags.StringArrayVarP(&f.files, "file", "f", nil, "put a local file, or a folder with all its files, into the workspace: `path[:as]` (repeatable)")
	flags.StringArrayVarP(&f.env, "env", "e", nil, "environment variable `NAME=value`; NAME alone takes the value from this command's environment (repeatable)")
	flags.StringArrayVar(&f.secretEnv, "secret-env", nil, "environment variable `NAME`; its value comes from this command's environment, and the daemon never shows it (repeatable)")
	flags.StringVarP(&f.dir, "dir", "w", "", "start in this `folder` of the workspace")
	flags.StringArrayVar(&f.labels, "label", nil, "label `key=value` for finding the execution again (repeatable)")
	flags.StringVar(&f.key, "key", "", "idempotency `key`: the same request with the same key returns the first execution")
	flags.StringVarP(&f.artifacts, "artifacts", "o", "", "save the files that the program wrote to this `folder`")
	flags.BoolVarP(&f.detach, "detach", "d", false, "print the execution's id and leave it running")
	addQuiet(flags, &f.quiet)
	flags.StringVar(&f.onDisconnect, "on-disconnect", "", "`cancel or continue` the execution if the connection is lost (default cancel)")
	flags.StringArrayVar(&f.network, "network", nil, "allow only this destination, if the daemon allows it, too: `RULE`, such as example.com:443, or none (repeatable; default: the skill's rules)")
	flags.StringArrayVar(&f.deny, "network-deny", nil, "refuse this destination in the network: `RULE` (repeatable)")
	flags.BoolVar(&f.learn, "learn", false, "allow every public address, and print the network rules that the run needed (for administrators)")
	flags.StringVar(&f.session.ID, "session", "", "work on the files of the session with this `id`")
	flags.Uint32Var(&f.session.Version, "at", 0, "start from this `version` of the session (default the newest)")
	flags.BoolVar(&f.session.Wait, "session-wait", false, "wait for other executions in the session, within --queue-timeout")
	flags.BoolVar(&f.session.CommitFailed, "commit-failed", false, "keep the changes in the session even if the program fails")
	flags.DurationVar(&f.timeout, "timeout", 0, "limit of real `time`, such as 30s")
	flags.DurationVar(&f.cpu, "cpu-time", 0, "limit of processor `time`")
	flags.Var(&f.cpus, "cpus", "limit of processors at a time, such as 0.5")
	flags.DurationVar(&f.queueTimeout, "queue-timeout", 0, "`time` to wait for a free slot")
	flags.Var(&f.memory, "memory", "limit of memory, such as 256m")
	flags.Var(&f.output, "output", "limit of bytes delivered from each of stdout and stderr")
	flags.Var(&f.writable, "workspace", "limit of bytes in the workspace")
	flags.Uint32Var(&f.writableFiles, "workspace-files", 0, "at most this `number` of files and directories in the workspace")
	flags.Uint32Var(&f.processes, "processes", 0, "at most this `number` of processes and threads, besides the program itself")
	flags.Uint32Var(&f.openFiles, "open-files", 0, "at most this `number` of open files of each process")
}

// check refuses values that the daemon would take for "not set", and flags that exclude each
// other.
func (f *runFlags) check(cmd *cobra.Command) error {
	switch f.onDisconnect {
	case "", "cancel", "continue":
	default:
		return usage(cmd, fmt.Errorf("--on-disconnect %s: want cancel or continue", f.onDisconnect))
	}
	if f.detach && f.artifacts != "" {
		return usage(cmd, errors.New("--artifacts: a detached execution's are fetched with 'skillrun artifacts'"))
	}
	for _, list := range []struct {
		flag  string
		rules []string
	}{{"network", f.network}, {"network-deny", f.deny}} {
		for _, rule := range list.rules {
			if severalRules(rule) {
				return usage(cmd, fmt.Errorf("--%s %s: a rule has one destination; repeat --%s", list.flag, rule, list.flag))
			}
		}
	}
	if f.learn && len(f.network) > 0 {
		return usage(cmd, errors.New("--learn allows every public address; leave out --network"))
	}
	if f.learn && f.detach {
		return usage(cmd, errors.New("--learn prints the rules at the end of the run; leave out --detach"))
	}
	if f.session.ID == "" && f.session != (skillrun.Session{}) {
		return usage(cmd, errors.New("--at, --session-wait and --commit-failed need --session"))
	}
	if f.detach && f.interactive {
		return usage(cmd, errors.New("--interactive: a detached program has no standard input"))
	}
	return nil
}

// severalRules reports whether something else than ports follows a comma.
func severalRules(text string) bool {
	for i, part := range strings.Split(text, ",") {
		ports, _, _ := strings.Cut(part, "/")
		if i > 0 && strings.Trim(ports, "0123456789-") != "" {
			return true
		}
	}
	return false
}

// command makes a Cmd from the flags and the program. It reads the names and sizes of local files, and the
// environment of this process, but sends nothing; Start opens the files.
// It reports a mistake in any flag, before the daemon gets a request.
func (f *runFlags) command(a *app, c *skillrun.Client, p *program) (*skillrun.Cmd, error) {
	cmd := p.on(c, f)
	cmd.JSONArguments = f.args
	cmd.Stdin = a.programStdin(f)
	cmd.Dir = f.dir
	cmd.IdempotencyKey = f.key
	cmd.QueueTimeout = f.queueTimeout
	cmd.Limits = skillrun.Limits{
		WallTime: f.timeout, CPUTime: f.cpu, MemoryBytes: uint64(f.memory), Processes: f.processes,
		OutputBytes: uint64(f.output), WorkspaceBytes: uint64(f.writable), WorkspaceFiles: f.writableFiles,
		OpenFiles: f.openFiles, MilliCPUs: uint32(f.cpus),
	}
	if f.learn || len(f.network)+len(f.deny) > 0 {
		cmd.Network = &skillrun.Network{Allow: f.network, Deny: f.deny, Learn: f.learn}
	}
	if f.session.ID != "" {
		cmd.Session = &f.session
		if f.session.Wait {
			a.waitedForSession = f.queueTimeout
		}
	}
	if f.onDisconnect == "continue" {
		cmd.OnDisconnect = pb.OnDisconnect_ON_DISCONNECT_CONTINUE
	}
	var err error
	if cmd.Env, err = environment(f.env); err != nil {
		return nil, err
	}
	if cmd.SecretEnv, err = secrets(f.secretEnv); err != nil {
		return nil, err
	}
	if cmd.Labels, err = pairs("label", f.labels); err != nil {
		return nil, err
	}
	for _, arg := range f.files {
		files, err := inputFiles(arg)
		if err != nil {
			return nil, fmt.Errorf("--file %s: %w", arg, err)
		}
		cmd.Files = append(cmd.Files, files...)
	}
	return cmd, nil
}

// programStdin returns the program's standard input: nil if the standard input of this command is a terminal,
// closed, or /dev/null. With --args the program gets the JSON instead. Only -i sends this command's standard
// input after the JSON.
func (a *app) programStdin(f *runFlags) io.Reader {
	switch {
	case f.interactive:
		return a.stdin
	case f.detach, f.args != "", a.stdin == nil, terminal(a.stdin):
		return nil
	}
	if file, ok := a.stdin.(*os.File); ok {
		info, err := file.Stat()
		if err != nil {
			return nil // closed: `skillrun run ... <&-`
		}
		if null, err := os.Stat(os.DevNull); err == nil && os.SameFile(info, null) {
			return nil
		}
	}
	return a.stdin
}

// inputFiles reads path[:as]. An existing file with a colon in its name is that file. as is a
// path beneath /workspace; the daemon checks it. Without :as a file keeps its base name.
// A link in arg itself is followed, since the user has named it; links beneath a folder are not.
func inputFiles(arg string) ([]skillrun.File, error) {
	path, as := arg, filepath.Base(arg)
	if i := strings.LastIndexByte(arg, ':'); i >= 0 {
		if _, err := os.Lstat(arg); err != nil {
			path, as = arg[:i], arg[i+1:]
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []skillrun.File{inputFile(path, as, info)}, nil
	}
	if as == "." || as == ".." || as == string(filepath.Separator) {
		as = "" // the folder's content, not a folder of that name
	}
	return folderFiles(path, as)
}

// inputFile takes over one bit of the file's mode: executable if any execute permission is set.
func inputFile(path, as string, info fs.FileInfo) skillrun.File {
	return skillrun.File{Path: as, Source: path, Executable: info.Mode()&0o111 != 0}
}

// folderFiles returns the files beneath a folder. It follows no link: one could
// lead anywhere, and the workspace takes none.
func folderFiles(root, as string) (files []skillrun.File, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if !d.Type().IsRegular() {
			return fmt.Errorf("%s: not a regular file, and so can't be put into a workspace", path)
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		within, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		files = append(files, inputFile(path, filepath.ToSlash(filepath.Join(as, within)), info))
		return nil
	})
	return files, err
}

// environment reads NAME=value. For NAME alone it takes the value from the environment of this process. If a
// name is given twice, the last one counts.
func environment(args []string) (map[string]string, error) {
	env := map[string]string{}
	for _, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		if !ok {
			if strings.ContainsAny(name, " \t\n") {
				return nil, fmt.Errorf("--env %s: want NAME=value, or NAME alone; a name has no blanks", quote(arg))
			}
			if value, ok = os.LookupEnv(name); !ok {
				return nil, fmt.Errorf("--env %s: not set in this command's environment; --env %[1]s=VALUE sets it", name)
			}
		}
		env[name] = value
	}
	return env, nil
}

// secrets reads names. A value on the command line is refused: unless /proc is mounted with
// hidepid, every user of the machine can read /proc/PID/cmdline (proc(5)).
func secrets(names []string) (map[string]string, error) {
	env := map[string]string{}
	for _, arg := range names {
		name, _, ok := strings.Cut(arg, "=")
		if ok {
			return nil, fmt.Errorf("--secret-env %s: give the name alone; the value is taken from the environment", name)
		}
		value, ok := os.LookupEnv(name)
		if !ok {
			return nil, fmt.Errorf("--secret-env %s: not set in this command's environment", name)
		}
		env[name] = value
	}
	return env, nil
}

// pairs reads key=value. flag is the flag's name without dashes, for the error. The value may
// contain more "=".
func pairs(flag string, args []string) (map[string]string, error) {
	m := map[string]string{}
	for _, arg := range args {
		key, value, ok := strings.Cut(arg, "=")
		if !ok {
			return nil, fmt.Errorf("--%s %s: want key=value", flag, arg)
		}
		m[key] = value
	}
	return m, nil
}
