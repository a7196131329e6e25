package record

import (
	"sync"
	"testing"
	"time"
)

// Each write is reported once, and a flush at least once.
func TestWritesAreReported(t *testing.T) {
	var mu sync.Mutex
	counts := map[Operation]int{}
	s := openStore(t, Config{Wrote: func(op Operation, took time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		counts[op]++
		if took < 0 {
			t.Errorf("%s took %s", op, took)
		}
	}})
	l := create(t, s, Execution{})
	appendOutput(t, l, "one")
	appendOutput(t, l, "two")
	end(t, l, "EXITED", start)
	s.flushForQuery(t.Context())
	mu.Lock()
	defer mu.Unlock()
	if counts[Creating] != 1 || counts[Appending] != 2 || counts[Ending] != 1 || counts[Flushing] == 0 {
		t.Errorf("got %v", counts)
	}
	for op := range counts {
		if known := map[Operation]bool{Creating: true, Appending: true, Ending: true, Flushing: true}; !known[op] || len(Operations) != len(known) {
			t.Errorf("%s: not one of %v", op, Operations)
		}
	}
}
