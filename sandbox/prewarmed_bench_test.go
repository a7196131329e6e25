package sandbox

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// cost is the processor time that this process and all of h's sandboxes took.
func cost(b *testing.B, h *Host) time.Duration {
	b.Helper()
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	u := h.cgroups.Group(h.groupName()).Usage()
	return time.Duration(r.Utime.Nano()+r.Stime.Nano()) + u.UserCPU + u.SystemCPU
}

func benchmarkPrewarmed(b *testing.B, h *Host, s Spec) {
	s.Mounts = []Mount{{Source: b.TempDir(), Target: "/skills/s"}}
	s.Workspace.Lower = []string{s.Mounts[0].Source}
	_ = os.Chown(s.Mounts[0].Source, 1000, 1000)
	before := cost(b, h)
	var setup, rest, inside time.Duration
	for i := range b.N {
		s.ID = fmt.Sprintf("b%d", i)
		begin := time.Now()
		p, err := h.Start(context.Background(), s, IO{})
		if err != nil {
			b.Fatal(err)
		}
		setup += time.Since(begin)
		begin = time.Now()
		exit, err := p.Wait()
		if err != nil {
			b.Fatal(err)
		}
		inside += exit.Usage.UserCPU + exit.Usage.SystemCPU
		rest += time.Since(begin)
	}
	h.pool.close()
	b.ReportMetric(float64((cost(b, h)-before).Microseconds())/float64(b.N)/1000, "cpu-ms/op")
	b.ReportMetric(float64(inside.Microseconds())/float64(b.N)/1000, "inside-ms/op") // of it, by the program
	b.ReportMetric(float64(setup.Microseconds())/float64(b.N)/1000, "setup-ms/op")
	b.ReportMetric(float64(rest.Microseconds())/float64(b.N)/1000, "rest-ms/op")
}

// BenchmarkPrewarmed runs one execution after the other in prewarmed sandboxes.
func BenchmarkPrewarmed(b *testing.B) {
	h := openForkServer(b)
	benchmarkPrewarmed(b, h, Spec{Program: command("/usr/bin/true")})
}

// BenchmarkPrewarmedPython is the same for a forked Python.
func BenchmarkPrewarmedPython(b *testing.B) {
	h := openForkServer(b)
	s := pythonSpec([]string{"json"}, "-c", "print(2+2)")
	benchmarkPrewarmed(b, h, s)
}
