package main

import (
	"errors"
	"net"
	"testing"
	"time"
)

// A daemon of another version may send a call that this one does not know, or other arguments. The caller learns that,
// and the calls after it are answered.
func TestPeerCalls(t *testing.T) {
	ours, theirs := net.Pipe()
	calls, ended := newCalls(ours), make(chan struct{})
	go func() {
		defer close(ended)
		serveCalls(theirs, map[string]peerMethod{
			"Double": methodOf(func(n int) (int, error) { return 2 * n, nil }),
			"Fail":   methodOf(func(nothing) (int, error) { return 0, errors.New("no room") }),
		})
	}()
	for _, tt := range []struct {
		method string
		args   any
		err    string
	}{
		{"Triple", 1, "this daemon does not know the call Triple"},
		{"Double", "x", "json: cannot unmarshal string into Go value of type int"},
		{"Fail", nothing{}, "no room"},
	} {
		if err := callPeer(calls, tt.method, tt.args, new(int)); err == nil || err.Error() != tt.err {
			t.Errorf("%s: got %v, want %s", tt.method, err, tt.err)
		}
	}
	var four int
	if err := callPeer(calls, "Double", 2, &four); err != nil || four != 4 {
		t.Errorf("got %d, %v", four, err)
	}
	if err := calls.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("still serving, after the end of the connection")
	}
}
