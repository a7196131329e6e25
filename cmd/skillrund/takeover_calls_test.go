package main

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
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

// The next daemon waits for the answer to Serving however long the earlier one is stopped: if it gave up, the earlier
// one would read the call later, and end, too.
func TestServingWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next, earlier := net.Pipe()
		e := &earlierDaemon{calls: newCalls(next)}
		defer e.calls.Close()
		go serveCalls(earlier, map[string]peerMethod{callServing: withoutReply(func(nothing) { time.Sleep(time.Hour) })})
		if err := e.serving(); err != nil {
			t.Error(err)
		}
	})
}

// The death of the earlier daemon is no refusal, also if it has not read the call: the kernel then resets the connection.
func TestServingOutlivesTheEarlierDaemon(t *testing.T) {
	next, theirs, err := socketPair(unix.SOCK_STREAM)
	if err != nil {
		t.Fatal(err)
	}
	e := &earlierDaemon{calls: newCalls(next)}
	defer e.calls.Close()
	served := make(chan error, 1)
	go func() { served <- e.serving() }()
	readable := []unix.PollFd{{Fd: int32(theirs.Fd()), Events: unix.POLLIN}}
	for n := 0; n == 0; {
		if n, err = unix.Poll(readable, -1); err != nil && err != unix.EINTR {
			t.Fatal(err)
		}
	}
	theirs.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// A next daemon that has called Serving, and has ended before the earlier one reads the call, does not serve.
func TestServingOfAnEndedDaemon(t *testing.T) {
	n := &nextDaemon{cmd: &exec.Cmd{}, serving: make(chan struct{}), gone: make(chan struct{})}
	if err := n.nowServes(); err != nil {
		t.Fatal(err)
	}
	for range 100 { // select chooses at random
		if err := n.awaitServing(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	close(n.gone)
	for range 100 {
		if err := n.awaitServing(t.Context()); err == nil {
			t.Fatal("a daemon that has ended serves")
		}
	}
}

// The earlier daemon was stopped until its patience was over. It reads a call of Serving that was made before.
func TestServingUnreadWhileStopped(t *testing.T) {
	over, end := context.WithCancel(t.Context())
	end()
	n := &nextDaemon{cmd: &exec.Cmd{}, serving: make(chan struct{}), gone: make(chan struct{}), unread: time.Hour}
	answer := make(chan error, 1)
	go func() { answer <- n.nowServes() }()
	if err := n.awaitServing(over); err != nil {
		t.Error(err)
	}
	if err := <-answer; err != nil {
		t.Error(err)
	}
}

// A part that can't be taken back for a passing reason is tried again; another error is final.
func TestResumePart(t *testing.T) {
	for _, tt := range []struct {
		err   error
		fails int
		want  int // calls
	}{{nil, 0, 1}, {syscall.EMFILE, 2, 3}, {errors.New("damaged"), 5, 1}, {syscall.EMFILE, 100, resumeAttempts}} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			err := resumePart(func() error {
				if calls++; calls <= tt.fails {
					return tt.err
				}
				return nil
			})
			if calls != tt.want || (err != nil) != (tt.fails >= tt.want) {
				t.Errorf("%v, %d times: %d calls, %v", tt.err, tt.fails, calls, err)
			}
		})
	}
}

// The next daemon calls Serving at the moment in which the earlier one gives up. Both must know the same about the
// takeover: otherwise the next daemon removes socket files that the earlier one still serves.
func TestServingWhileTheEarlierDaemonGivesUp(t *testing.T) {
	over, end := context.WithCancelCause(t.Context())
	end(errors.New("the patience is over"))
	for range 20_000 {
		n := &nextDaemon{cmd: &exec.Cmd{}, serving: make(chan struct{}), gone: make(chan struct{})}
		answer := make(chan error)
		go func() { answer <- n.nowServes() }()
		gaveUp := n.awaitServing(over)
		if refused := <-answer; (gaveUp == nil) != (refused == nil) {
			t.Fatalf("the earlier daemon has %v, the next one %v", gaveUp, refused)
		}
		if gaveUp != nil && gaveUp.Error() != "the patience is over" {
			t.Fatalf("got %v", gaveUp)
		}
	}
}
