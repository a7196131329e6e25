package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	skillrun "github.com/skillrun/skillrun/clients/go"
)

// noteGreeting remembers an answered initialize.
func (b *bridge) noteGreeting(request, answer *message) {
	result, failed := answer.outcome()
	g := &greeting{request: request, latest: result}
	if failed != nil || json.Unmarshal(result, &g.first) != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.greeting == nil { // the daemon refuses a second one
		b.greeting = g
	}
}

// greet makes the daemon of a new link know the agent, and tells the agent what may have changed.
func (b *bridge) greet(l *link) error {
	b.mu.Lock()
	if b.greeting == nil {
		b.mu.Unlock()
		return nil
	}
	g := *b.greeting
	b.mu.Unlock()
	l.SetDeadline(time.Now().Add(ConnectTimeout))
	answer, err := b.exchange(l, g.request)
	if err != nil {
		return err
	}
	result, failed := answer.outcome()
	if failed != nil {
		err := fmt.Errorf("the daemon at %s refuses the conversation: %s", b.At, failed.Message)
		if failed.Code == codeUnanswered {
			return &AbsentError{err, true}
		}
		return err
	}
	var now serverInfo
	if json.Unmarshal(result, &now) != nil || now.Version != g.first.Version {
		return fmt.Errorf("the daemon at %s now speaks version %.40q of MCP, this conversation has %.40q; start skillrun mcp again", b.At, now.Version, g.first.Version)
	}
	if g.initialized != nil {
		if _, err := l.Write(g.initialized); err != nil {
			return b.endedEarly(err)
		}
	}
	if err := l.SetDeadline(time.Time{}); err != nil {
		return b.endedEarly(err)
	}
	for _, name := range slices.Sorted(maps.Keys(lists)) {
		// Skills can have changed while there was no link. Other lists change only with the daemon.
		if g.first.Capabilities[name].ListChanged && (name == "resources" || !bytes.Equal(result, g.latest)) {
			b.print(notification(lists[name], nil))
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.greeting.latest = result
	return nil
}

// exchange sends a request on a new link and returns its answer. Notifications that come before go to the agent.
func (b *bridge) exchange(l *link, request *message) (*message, error) {
	if _, err := l.Write(request.line); err != nil {
		return nil, b.endedEarly(err)
	}
	for {
		line, err := readLine(l.R)
		if err != nil {
			return nil, b.endedEarly(err)
		}
		switch m := readMessage(line); {
		case m.method == "" && m.id == request.id:
			return m, nil
		case m.method == methodLeave:
			return nil, &AbsentError{errors.New("the daemon at " + b.At + " stops"), true}
		case m.method != "":
			b.print(m.line)
		}
	}
}

// endedEarly is the error for a link that ends before it is the current one.
func (b *bridge) endedEarly(err error) error {
	return &AbsentError{fmt.Errorf("the daemon at %s ended the connection: %w", b.At, err), false}
}

// acknowledged reports whether a message acknowledges a listening request that the agent has sent to an earlier
// daemon. Then the agent gets notifications instead, because the lists may have changed between the two daemons.
func (b *bridge) acknowledged(l *link, m *message) bool {
	var p struct {
		Meta    map[string]json.RawMessage `json:"_meta"`
		Granted map[string]json.RawMessage `json:"notifications"`
	}
	if json.Unmarshal(m.params, &p) != nil {
		return false
	}
	const subscription = "io.modelcontextprotocol/subscriptionId"
	b.mu.Lock()
	request := l.open[idOf(p.Meta[subscription])]
	renewed := request != nil && request.renewed
	b.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(lists)) {
		if renewed && string(p.Granted[name+"ListChanged"]) == "true" {
			b.print(notification(lists[name], map[string]any{"_meta": map[string]json.RawMessage{subscription: p.Meta[subscription]}}))
		}
	}
	return renewed
}

// An AbsentError says that no daemon took the conversation, and that one can do so later.
type AbsentError struct {
	Err      error
	Answered bool // a daemon has answered that it stops, or has no room now
}

func (e *AbsentError) Error() string { return e.Err.Error() }
func (e *AbsentError) Unwrap() error { return e.Err }

// pauses are the pauses of a bridge that waits for a daemon, with the meaning that they have for the Go client.
type pauses struct {
	skillrun.Patience
	onWait          func(answered bool) // is called before each pause
	tries           int                 // tries that failed
	began, answered time.Time           // the first error; the last answer of a daemon
}

// wait waits after a try that failed with err. It returns false if no try can help, or the time is over. The second try
// follows the first one at once.
func (p *pauses) wait(ctx context.Context, err error) bool {
	absent := (*AbsentError)(nil)
	if !errors.As(err, &absent) || ctx.Err() != nil {
		return false
	}
	now := time.Now()
	if p.tries++; p.tries == 1 {
		p.began, p.answered = now, now
		return true
	}
	if absent.Answered {
		p.answered = now
	}
	left := min(max(p.Draining, p.Absent)-now.Sub(p.began), p.Absent-now.Sub(p.answered))
	if left <= 0 {
		return false
	}
	p.onWait(absent.Answered)
	select {
	case <-time.After(min(firstPause<<min(p.tries-2, 10), mostPause, left)):
		return true
	case <-ctx.Done():
		return false
	}
}
