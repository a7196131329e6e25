package gateway

import "testing"

// The stack that waits is used, and by one network only.
func TestWaitingStackIsUsedOnce(t *testing.T) {
	makeWaiting()
	waiting.mu.Lock()
	prepared := waiting.stack
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
	if prepared == nil || first != prepared || second == first {
		t.Errorf("prepared %p, taken %p and %p", prepared, first, second)
	}
}
