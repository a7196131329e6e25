package pyzygote_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// BenchmarkPythonZygote compares a Python zygote with imports to a bare one, in turns. It
// prints the private memory of a waiting child, and a child's page faults and processor
// time, before it waits and after. These figures don't depend on the machine's load.
func BenchmarkPythonZygote(b *testing.B) {
	for _, with := range []struct {
		name    string
		imports []string
		code    string
	}{
		{"plain", nil, "print(2+2)"},
		{"common", forkServerCommon, "print(2+2)"},
		{"pandas", append(slices.Clone(forkServerCommon), "pandas"), "import pandas; print(pandas.Series([1, 2]).sum())"},
	} {
		b.Run(with.name, func(b *testing.B) {
			if with.name == "pandas" && exec.Command("/usr/bin/python3", "-c", "import pandas").Run() != nil {
				b.Skip("python3-pandas is not installed")
			}
			server := startForkServer(b, "/usr/bin/python3", with.imports...) // as the daemon does
			c := newForkTarget(b, publicDir(b))
			command := forkServerCommand{Argv: []string{server.cmd.Args[0], "-c", with.code}, Env: server.environment("")}
			times := map[string][]time.Duration{}
			took := func(what string, since time.Time) time.Time {
				now := time.Now()
				times[what] = append(times[what], now.Sub(since))
				return now
			}
			memory := ""
			var waiting, whole use
			begin := server.endedUse(b)
			for b.Loop() {
				at := time.Now()
				child := server.fork(c)
				took("fork to waiting", at)
				waiting = waiting.plus(useOf(b, child.pid))
				if memory == "" {
					memory = pssOf(b, child.pid)
				}
				at = time.Now()
				child.assign(command)
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
				bare.Env = server.env
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
			whole = server.endedUse(b).minus(begin)
			for name, u := range map[string]use{"waiting": waiting, "run": whole.minus(waiting)} {
				b.ReportMetric(float64(u.faults)/float64(b.N), name+"-faults/op")
				b.ReportMetric(float64(u.time.Microseconds())/1000/float64(b.N), name+"-cpu-ms/op")
			}
			for _, what := range []string{"fork to waiting", "hand-over to started", "hand-over to first byte", "hand-over to end", "bare to first byte", "bare to end"} {
				d := slices.Sorted(slices.Values(times[what]))
				b.ReportMetric(float64(d[len(d)/2].Microseconds())/1000, strings.ReplaceAll(what, " ", "-")+"-ms")
			}
			fmt.Println(with.name, memory)
		})
	}
}

// forkServerCommon are modules that many scripts import.
var forkServerCommon = strings.Fields("argparse base64 contextlib copy csv dataclasses datetime decimal fractions glob hashlib html json logging" +
	" pathlib platform random shlex shutil signal statistics subprocess tempfile textwrap traceback typing unicodedata urllib uuid zipfile")

// use is the processor time and the page faults of processes.
type use struct {
	faults int // of pages
	time   time.Duration
}

func (u use) plus(v use) use  { return use{u.faults + v.faults, u.time + v.time} }
func (u use) minus(v use) use { return use{u.faults - v.faults, u.time - v.time} }

// useOf returns the use of a process with one thread.
func useOf(b testing.TB, pid int) use {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		b.Fatal(err)
	}
	ns, err := strconv.Atoi(strings.Fields(string(text))[0])
	if err != nil {
		b.Fatal(err)
	}
	return use{statOf(b, pid, 10), time.Duration(ns)}
}

// endedUse returns the use of a zygote's children that have ended.
func (server *forkServer) endedUse(b testing.TB) use {
	b.Helper()
	return use{statOf(b, server.cmd.Process.Pid, 11), server.childrenTime(b)}
}

// statOf returns a field of proc_pid_stat(5), from the third on.
func statOf(t testing.TB, pid, field int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	value, err := strconv.Atoi(strings.Fields(rest)[field-3])
	if err != nil {
		t.Fatalf("stat: %s", text)
	}
	return value
}

// pssOf returns the proportional share of a process's memory and its private memory, in kB.
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
