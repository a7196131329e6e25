package sandbox

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"
)

// A benchNetwork keeps the interface until the benchmark closes it.
type benchNetwork struct{ tun *os.File }

func (n *benchNetwork) Attach(_ context.Context, l Link) error {
	n.tun = l.TUN
	return nil
}

func (n *benchNetwork) Detach() {}

// BenchmarkNetwork starts programs in prewarmed sandboxes, in turns without and with a network
// that carries nothing. It reports the median time of Start of each, and the difference: the
// price of an interface that was made before. Between two starts it waits until the last interface is gone
// and the next sandbox waits, because the kernel makes and removes interfaces one after the other.
func BenchmarkNetwork(b *testing.B) {
	for _, bm := range []struct {
		name string
		spec Spec
	}{
		{"true", Spec{Program: command("/usr/bin/true")}},
		{"python", pythonSpec([]string{"json"}, "-c", "print(2+2)")},
	} {
		b.Run(bm.name, func(b *testing.B) { benchmarkNetwork(b, bm.spec) })
	}
}

func benchmarkNetwork(b *testing.B, s Spec) {
	h := openForkServer(b)
	benchmarkStart(b, h, s) // makes the bucket of the pool
	first := &benchNetwork{}
	s.Network = first
	benchmarkStart(b, h, s) // the same for sandboxes with an interface
	first.tun.Close()
	s.Network = nil
	var took [2][]time.Duration
	for range b.N {
		for i, n := range []*benchNetwork{nil, {}} {
			if n != nil {
				s.Network = n
			}
			waitForPrewarmed(b, h, s)
			took[i] = append(took[i], benchmarkStart(b, h, s))
			if n != nil {
				n.tun.Close()
			}
			s.Network = nil
		}
	}
	for i := range took {
		slices.Sort(took[i])
	}
	for _, p := range []int{50, 95} {
		without, with := took[0][b.N*p/100].Seconds()*1000, took[1][b.N*p/100].Seconds()*1000
		b.ReportMetric(without, fmt.Sprintf("p%d-without-ms", p))
		b.ReportMetric(with-without, fmt.Sprintf("p%d-added-ms", p))
	}
}

// benchmarkStart runs a program of s to its end, and returns the time that Start took.
func benchmarkStart(b *testing.B, h *Host, s Spec) time.Duration {
	b.Helper()
	s.ID = fmt.Sprintf("b%d", testIDs.Add(1))
	begin := time.Now()
	p, err := h.Start(context.Background(), s, IO{})
	took := time.Since(begin)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := p.Wait(); err != nil {
		b.Fatal(err)
	}
	return took
}

// waitForPrewarmed returns when a sandbox waits for s.
func waitForPrewarmed(b *testing.B, h *Host, s Spec) {
	b.Helper()
	if s.Python != nil {
		waitForReady(b, h, s)
		return
	}
	key := s.withDefaults().profile()
	until(b, "no sandbox waits", func() bool {
		h.pool.mu.Lock()
		defer h.pool.mu.Unlock()
		bucket := h.pool.buckets[key]
		return bucket != nil && len(bucket.waiting) > 0
	})
}
