package gateway

import "testing"

// The stack that waits is used, and by one network only.
func TestWaitingStackIsUsedOnce(t *testing.T) {
	makeWaiting()
	waiting.mu.Lock()
	ahead := waiting.stack
	waiting.mu.Unlock()
	first, err := takeStack()
	if err != nil {
		t.Fatal(err)
	}
	defer first.Destroy()
	second, err := takeStack()
	if err != nil {
		t.Fatal(err)
	}
	defer second.Destroy()
	if ahead == nil || first != ahead || second == first {
		t.Errorf("made ahead %p, taken %p and %p", ahead, first, second)
	}
}
