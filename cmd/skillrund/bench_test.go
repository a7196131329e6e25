package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// The benchmarks measure a whole request, from the client's call to the outcome, and in
// turn the same program without a sandbox. The speed of a machine drifts, so only the ratio
// of the two in one run is comparable.

func BenchmarkTrue(b *testing.B) {
	benchmark(b, shell("calculator", "true"), "/usr/bin/bash", "-c", "true")
}

func BenchmarkPython(b *testing.B) {
	benchmark(b, code("calculator", "print(2 + 2)"), "/usr/bin/python3", "-c", "print(2 + 2)")
}

func benchmark(b *testing.B, req *pb.ExecuteRequest, bare ...string) {
	d := startDaemon(b, "")
	d.run(req) // the first one reads the disk
	var sandboxed, alone []time.Duration
	for b.Loop() {
		began := time.Now()
		d.run(req)
		sandboxed = append(sandboxed, time.Since(began))

		began = time.Now()
		if err := exec.Command(bare[0], bare[1:]...).Run(); err != nil {
			b.Fatal(err)
		}
		alone = append(alone, time.Since(began))
	}
	s, a := median(sandboxed), median(alone)
	b.ReportMetric(float64(s)/1e6, "sandboxed-ms")
	b.ReportMetric(float64(a)/1e6, "bare-ms")
	b.ReportMetric(float64(s)/float64(a), "ratio")
}

// BenchmarkBinaries compares the daemon in SKILLRUN_BIN with the daemon in
// SKILLRUN_OTHER_BIN, in turn: the time from the start of the process to its socket, its
// memory after that, and the time of a sandbox that runs true.
func BenchmarkBinaries(b *testing.B) {
	other := os.Getenv("SKILLRUN_OTHER_BIN")
	if other == "" {
		b.Skip("SKILLRUN_OTHER_BIN is not set: nothing to compare with")
	}
	ones := []*measured{{dir: newDir(b), bin: filepath.Dir(binary(b, "skillrund"))}, {dir: newDir(b), bin: other}}
	states := listenForStates(b)
	const starts = 11
	for range starts {
		for _, one := range ones {
			if one.daemon != nil {
				one.daemon.stop()
			}
			began := time.Now()
			one.daemon = launch(b, one.dir, "", "/bin/sh", "-c", `exec "`+one.bin+`/skillrund" "$@"`)
			untilReady(b, states)
			one.starts = append(one.starts, time.Since(began))
			one.daemon.dial("unix://" + one.dir + "/s.sock")
			one.daemon.waitServing()
		}
	}
	for _, one := range ones {
		one.daemon.run(shell("calculator", "true")) // the first one reads the disk
		one.memory = memoryOf(b, one.daemon.cmd.Process.Pid)
	}
	for b.Loop() {
		for _, one := range ones {
			began := time.Now()
			one.daemon.run(shell("calculator", "true"))
			one.runs = append(one.runs, time.Since(began))
		}
	}
	for i, name := range []string{"this", "other"} {
		b.ReportMetric(float64(median(ones[i].starts))/1e6, name+"-start-ms")
		b.ReportMetric(float64(median(ones[i].runs))/1e6, name+"-true-ms")
		b.ReportMetric(float64(ones[i].memory)/(1<<20), name+"-MiB")
	}
	b.ReportMetric(float64(median(ones[0].starts))/float64(median(ones[1].starts)), "start-ratio")
	b.ReportMetric(float64(median(ones[0].runs))/float64(median(ones[1].runs)), "true-ratio")
}

type measured struct {
	dir, bin     string
	daemon       *running
	starts, runs []time.Duration
	memory       int64
}

// listenForStates makes daemons send their states to the test, as to systemd, sd_notify(3).
func listenForStates(b *testing.B) *net.UnixConn {
	b.Helper()
	path := filepath.Join(b.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	b.Setenv("NOTIFY_SOCKET", path)
	return c
}

// untilReady waits until a daemon says that it serves.
func untilReady(b *testing.B, states *net.UnixConn) {
	b.Helper()
	states.SetReadDeadline(time.Now().Add(patience))
	for state := make([]byte, 1<<10); ; {
		n, err := states.Read(state)
		if err != nil {
			b.Fatalf("no daemon says that it serves: %v", err)
		}
		if string(state[:n]) == "READY=1" {
			return
		}
	}
}

// memoryOf returns how many bytes of memory a daemon holds: its anonymous pages, and the
// sealed copy of its binary, all of which is in memory (sandbox.Isolate).
func memoryOf(b *testing.B, pid int) int64 {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	var kib int64
	_, rest, _ := strings.Cut(string(status), "RssAnon:")
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		b.Fatal(err)
	}
	var binary syscall.Stat_t
	if err := syscall.Stat(fmt.Sprintf("/proc/%d/exe", pid), &binary); err != nil {
		b.Fatal(err)
	}
	return kib<<10 + binary.Blocks*512
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
