package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// BenchmarkReadyPython prints what a ready interpreter takes beside a bare one,
// run by run in turn, and what memory a waiting child has of its own.
func BenchmarkReadyPython(b *testing.B) {
	for _, with := range []struct {
		name    string
		imports []string
		code    string
	}{
		{"plain", nil, "print(2+2)"},
		{"pandas", []string{"pandas"}, "import pandas; print(pandas.Series([1, 2]).sum())"},
	} {
		b.Run(with.name, func(b *testing.B) {
			if with.name == "pandas" && exec.Command("/usr/bin/python3", "-c", "import pandas").Run() != nil {
				b.Skip("python3-pandas is not installed")
			}
			m := startReadyMother(b, "/usr/bin/python3", true, with.imports...)
			c := newReadyCell(b, publicDir(b))
			command := readyCommand{Argv: []string{m.cmd.Args[0], "-c", with.code}, Env: m.environment("")}
			times := map[string][]time.Duration{}
			took := func(what string, since time.Time) time.Time {
				now := time.Now()
				times[what] = append(times[what], now.Sub(since))
				return now
			}
			memory := ""
			for b.Loop() {
				at := time.Now()
				child := m.fork(c)
				at = took("fork to waiting", at)
				if memory == "" {
					memory = pssOf(b, child.pid)
					at = time.Now()
				}
				child.handOver(command)
				child.started()
				took("hand-over to started", at)
				if _, err := child.stdout.Read(make([]byte, 1)); err != nil {
					b.Fatal(err)
				}
				took("hand-over to first byte", at)
				child.finish("")
				took("hand-over to end", at)

				at = time.Now()
				bare := exec.Command("/usr/bin/python3", command.Argv[1:]...)
				bare.Env = m.env
				out, err := bare.StdoutPipe()
				if err == nil {
					err = bare.Start()
				}
				if err != nil {
					b.Fatal(err)
				}
				if _, err := out.Read(make([]byte, 1)); err != nil {
					b.Fatal(err)
				}
				took("bare to first byte", at)
				if err := bare.Wait(); err != nil {
					b.Fatal(err)
				}
				took("bare to end", at)
			}
			for _, what := range []string{"fork to waiting", "hand-over to started", "hand-over to first byte", "hand-over to end", "bare to first byte", "bare to end"} {
				d := slices.Sorted(slices.Values(times[what]))
				b.ReportMetric(float64(d[len(d)/2].Microseconds())/1000, strings.ReplaceAll(what, " ", "-")+"-ms")
			}
			fmt.Println(with.name, memory)
		})
	}
}

// pssOf is what of a process's memory is its share, and its alone, in kB.
func pssOf(b *testing.B, pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		b.Fatal(err)
	}
	var of []string
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); slices.Contains([]string{"Rss:", "Pss:", "Private_Dirty:", "Private_Clean:"}, f[0]) {
			of = append(of, f[0]+f[1])
		}
	}
	return strings.Join(of, " ")
}
