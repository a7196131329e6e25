package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
)

// maxMCPMessage bounds the memory for one message: the largest message_bytes that a daemon
// can have.
const maxMCPMessage = 256 << 20

// readError and writeError say which side of a forwarding broke. forward returns one of them, or
// nil. bridge needs to know the side: an agent that has closed its pipe is no reason to blame the
// daemon.
type (
	readError  struct{ err error }
	writeError struct{ err error }
)

func (e *readError) Error() string  { return "read messages: " + e.err.Error() }
func (e *writeError) Error() string { return "write messages: " + e.err.Error() }
func (e *readError) Unwrap() error  { return e.err }
func (e *writeError) Unwrap() error { return e.err }

// forward copies lines until from ends, which is not an error. It calls before and after with
// each line, before and after the write; nil: no call. The last line may lack its newline; it is
// forwarded with one. forward drops empty lines, because JSON-RPC has no empty messages. before and
// after must not keep line.
func forward(to io.Writer, from io.Reader, before, after func(line []byte)) error {
	r := bufio.NewReaderSize(from, 64<<10)
	for {
		line, err := readLine(r)
		if len(bytes.TrimSpace(line)) > 0 && (err == nil || errors.Is(err, io.EOF)) {
			if line[len(line)-1] != '\n' {
				line = append(line, '\n')
			}
			if before != nil {
				// Before the write, so that no answer comes before its request is noted.
				before(line)
			}
			if _, err := to.Write(line); err != nil {
				return &writeError{err}
			}
			if after != nil {
				after(line)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return &readError{err}
		}
	}
}

// readLine returns a line with its end, or what there is before the end of file.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		piece, err := r.ReadSlice('\n')
		if len(line)+len(piece) > maxMCPMessage {
			return nil, fmt.Errorf("a message of more than %d bytes", maxMCPMessage)
		}
		line = append(line, piece...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// calls are the unanswered requests, by their id in JSON. Both directions of the bridge use one
// calls; mu guards all fields.
type calls struct {
	mu   sync.Mutex
	ids  map[string]bool
	none chan struct{} // closed when no request waits and none will come; see last
	over bool
}

func newCalls() *calls { return &calls{ids: map[string]bool{}, none: make(chan struct{})} }

// last marks the end of the requests. The channel is closed when the last answer has come.
func (c *calls) last() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	c.closeIfNone()
	return c.none
}

// closeIfNone closes c.none if no more answers are expected. c.mu is held. It may be called
// again.
func (c *calls) closeIfNone() {
	if !c.over || len(c.ids) > 0 {
		return
	}
	select {
	case <-c.none:
	default:
		close(c.none)
	}
}

// A messageID is as much of a message as matters here.
type messageID struct {
	ID     json.RawMessage `json:"id"`
	Method *string         `json:"method"`
}

// begin notes a request. The daemon refuses a line that is not a request. A notification has no
// id and gets no answer. A line that is not JSON is passed on all the same.
func (c *calls) begin(line []byte) {
	var m messageID
	if json.Unmarshal(line, &m) != nil || m.Method == nil || m.ID == nil || string(m.ID) == "null" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ids[string(m.ID)] = true
}

// end forgets a request that is answered. A message with a method comes from the daemon itself (a
// notification, or a request to the agent).
func (c *calls) end(line []byte) {
	var m messageID
	if json.Unmarshal(line, &m) != nil || m.Method != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.ids, string(m.ID))
	c.closeIfNone()
}

// answers are errors for all requests that wait, so that an agent does not wait for
// ever.
func (c *calls) answers(why string) [][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all [][]byte
	for id := range c.ids {
		answer, err := json.Marshal(map[string]any{
			"jsonrpc": "2.0", "id": json.RawMessage(id), "error": map[string]any{"code": -32000, "message": why},
		})
		if err == nil {
			all = append(all, append(answer, '\n'))
		}
	}
	// A map has no order; the output must not vary.
	slices.SortFunc(all, bytes.Compare)
	return all
}
