package server

import (
	"bytes"
	"io"
	"sync"
)

// stdinBuffer is how many bytes of standard input wait for the program before the sender has
// to wait. So a signal passes a little input that was sent before it and that the program
// never reads.
const stdinBuffer = 256 << 10

// A stdin carries standard input from a stream to a program. The program sets
// the pace: Write blocks while stdinBuffer bytes or more wait, so that the
// stream's flow control holds up the sender. No more than stdinBuffer and one
// message wait.
type stdin struct {
	mu      sync.Mutex
	changed sync.Cond
	waiting bytes.Buffer
	closed  bool
}

func newStdin() *stdin {
	s := &stdin{}
	s.changed.L = &s.mu
	return s
}

// Write returns io.ErrClosedPipe after Close, and if Close comes while it waits.
func (s *stdin) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.waiting.Len() >= stdinBuffer && !s.closed {
		s.changed.Wait()
	}
	// After the wait: a Write that was blocked must not add bytes after Close.
	if s.closed {
		return 0, io.ErrClosedPipe
	}
	s.changed.Broadcast()
	return s.waiting.Write(p)
}

// Read returns io.EOF once the stdin is closed and everything has been read.
func (s *stdin) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.waiting.Len() == 0 && !s.closed {
		s.changed.Wait()
	}
	s.changed.Broadcast()
	return s.waiting.Read(p)
}

// complete reports whether the input has ended. A nil stdin is complete.
func (s *stdin) complete() bool {
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// Close ends the input after the written bytes. It may be called again. On nil it does nothing.
func (s *stdin) Close() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.changed.Broadcast()
	return nil
}
