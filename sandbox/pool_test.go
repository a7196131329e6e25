package sandbox

import "testing"

func openPrepared(t testing.TB) *Host {
	c := testConfig(t)
	c.Prepared = 4
	return openWith(t, c)
}

func TestPreparedTrue(t *testing.T) {
	h := openPrepared(t)
	for range 3 {
		got := run(t, h, Spec{Program: command("/usr/bin/true")}, "")
		if got.exit.End != Exited || got.exit.Code != 0 {
			t.Errorf("got %+v", got)
		}
	}
	noLeftovers(t, h)
}

// Ended sandboxes are freed behind their answers, a few at a time, and no more wait for
// that than there may.
func TestFreedBehind(t *testing.T) {
	for _, tt := range []struct {
		name  string
		count int   // as many as there may be
		bytes int64 // of each
	}{
		{"count", maxBehind, 1},
		{"bytes", 4, maxBehindBytes / 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &pool{}
			begun, goOn := make(chan struct{}, maxBehind), make(chan struct{})
			free := func() { begun <- struct{}{}; <-goOn }
			for i := range tt.count {
				if !p.behind(tt.bytes, free) {
					t.Fatalf("sandbox %d: not taken", i)
				}
			}
			if p.behind(tt.bytes, free) {
				t.Error("one too many is taken")
			}
			for range min(tt.count, maxFreers) {
				<-begun
			}
			if len(begun) > 0 {
				t.Errorf("freed at once: got %d more than %d", len(begun), maxFreers)
			}
			close(goOn)
			p.done.Wait()
			if got, want := len(begun)+min(tt.count, maxFreers), tt.count; got != want {
				t.Errorf("freed: got %d, want %d", got, want)
			}
			if p.endedCount != 0 || p.endedBytes != 0 || p.freers != 0 {
				t.Errorf("left: got %d with %d bytes, and %d who free", p.endedCount, p.endedBytes, p.freers)
			}
			if !p.behind(maxBehindBytes, free) {
				t.Error("when nothing waits none is taken")
			}
			p.done.Wait()
		})
	}
}
