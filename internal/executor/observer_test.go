package executor

import (
	"errors"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/sandbox"
)

// An observed notes the calls of an observer.
type observed struct {
	mu      sync.Mutex
	ended   map[End]int
	started []time.Duration
	refused []error
	tenants map[string]bool
}

func (o *observed) Ended(tenant string, started time.Duration, out Outcome, _ string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended[out.End]++
	o.started = append(o.started, started)
	o.tenants[tenant] = true
}

func (o *observed) Refused(tenant string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refused = append(o.refused, err)
	o.tenants[tenant] = true
}

// The observer is told of each end and of each refusal, once.
func TestObserver(t *testing.T) {
	f := newFake()
	x := newExecutor(t, t.TempDir(), f.runs)
	o := &observed{ended: map[End]int{}, tenants: map[string]bool{}}
	x.Observer = o
	f.exit <- sandbox.Exit{End: sandbox.Exited}
	follow(t, x, execute(t, x, scriptRequest()))
	f.exit <- sandbox.Exit{End: sandbox.Signaled, Signal: 9}
	follow(t, x, execute(t, x, scriptRequest()))
	wrong := scriptRequest()
	wrong.Skill = "none"
	if _, _, err := x.Execute(t.Context(), wrong); err == nil {
		t.Fatal("an unknown skill ran")
	}
	x.calls.Wait() // readers see an end before the observer is told
	if want := map[End]int{Exited: 1, Signaled: 1}; !maps.Equal(o.ended, want) {
		t.Errorf("ends %v, want %v", o.ended, want)
	}
	for _, d := range o.started {
		if d <= 0 {
			t.Errorf("a program started after %s", d)
		}
	}
	if len(o.refused) != 1 || !errors.Is(o.refused[0], skill.ErrNotFound) {
		t.Errorf("refused %v", o.refused)
	}
	if len(o.tenants) != 1 || !o.tenants[who.Tenant] {
		t.Errorf("tenants %v", o.tenants)
	}
	if use := x.Usages(); len(use) != 1 || use[who.Tenant].Running != 0 {
		t.Errorf("left %v", use)
	}
}
