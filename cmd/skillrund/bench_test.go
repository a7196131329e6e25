package main

import (
	"os/exec"
	"slices"
	"testing"
	"time"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// The benchmarks time a whole request, from the client's call to the outcome, and
// the same program started bare, in turn: machines drift, so only the ratio of
// the two in one run says something.

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

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
