package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// BenchmarkTracing compares daemons without and with traces, in turns: each request goes to one and then
// to the other. The caller sends a trace context, so every span is recorded and sent. It reports the
// medians and the processor time of the daemon, for one execution.
//
//	go test -run '^$' -bench Tracing -benchtime 2000x ./cmd/skillrund
func BenchmarkTracing(b *testing.B) {
	r := startReceiver(b, false)
	names, daemons := []string{"off", "on"}, []*running{}
	for i := range names {
		dir := newDir(b)
		writeSkill(b, dir, "bench", `allowed-tools: "Bash(true:*)"`, map[string]string{"scripts/pass.py": "pass\n"})
		daemons = append(daemons, startDaemonIn(b, dir, []string{"", fmt.Sprintf("tracing: {endpoint: 'http://%s'}\n", r.address)}[i]))
	}
	requests := map[string]*pb.ExecuteRequest{
		"true":   {Skill: "bench", Source: &pb.ExecuteRequest_Command{Command: "true"}},
		"python": script("bench", "scripts/pass.py"),
	}
	for _, row := range []string{"true", "python"} {
		b.Run(row, func(b *testing.B) {
			ctx := metadata.AppendToOutgoingContext(b.Context(), "traceparent", given)
			took, used := make([][]time.Duration, 2), make([]time.Duration, 2)
			for i, d := range daemons {
				for range 50 {
					timed(b, ctx, d, requests[row]) // so that the pool prewarms sandboxes of this kind
				}
				used[i] = -processorTime(b, d)
			}
			for n := 0; b.Loop(); n++ {
				for k := range daemons {
					i := (n + k) % 2
					took[i] = append(took[i], timed(b, ctx, daemons[i], requests[row]))
				}
			}
			var medians []float64
			for i, d := range daemons {
				slices.Sort(took[i])
				medians = append(medians, float64(took[i][len(took[i])/2].Microseconds()))
				b.ReportMetric(medians[i], names[i]+"-us")
				b.ReportMetric(float64((used[i]+processorTime(b, d)).Microseconds())/float64(len(took[i])), names[i]+"-cpu-us")
			}
			b.ReportMetric(100*(medians[1]/medians[0]-1), "%more")
		})
	}
}

// timed runs a request and returns the time until the end of its stream.
func timed(b *testing.B, ctx context.Context, d *running, m *pb.ExecuteRequest) time.Duration {
	begin := time.Now()
	s, err := d.runs.Execute(ctx, m)
	if err != nil {
		b.Fatal(err)
	}
	r, err := collect(b, s, 0, nil)
	if err != nil || r.outcome.GetExitCode() != 0 {
		b.Fatal(r.outcome, err)
	}
	return time.Since(begin)
}

// processorTime returns the time that a daemon's own process has used (schedstat in
// Documentation/scheduler/sched-stats.rst, for each thread).
func processorTime(b *testing.B, d *running) (sum time.Duration) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", d.cmd.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	for _, path := range threads {
		data, err := os.ReadFile(path)
		if err != nil {
			b.Fatal(err)
		}
		var ran int64
		if _, err := fmt.Sscan(string(data), &ran); err != nil {
			b.Fatal(err)
		}
		sum += time.Duration(ran)
	}
	return sum
}
