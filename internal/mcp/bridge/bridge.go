// Package bridge carries the conversation of an agent, which speaks MCP on standard input and output, to a daemon, and
// over a restart to the next daemon. The command `skillrun mcp` uses it.
//
// Theory of operation. Each connection is a link. Messages of the agent go to the current link. Without a current
// link they wait, and reconnect makes the next link. Three things can happen to a link:
//
//	the daemon asks to leave it    The link is no longer current. It stays until its calls are answered. A call that
//	                               was on its way is refused, and goes to the next link: see message.refused.
//	it ends                        Calls that only read go to the next link. Others may have been done, so they are
//	                               answered with an error: nothing is done twice.
//	no daemon comes back           Waiting messages are answered with an error. The agent's next message tries again.
//
// A new link begins with the agent's own initialize, whose answer the agent has already. After that the agent is told
// that lists may have changed. Config.Connect gives the daemon the same name of the conversation for all links, by
// which the daemon finds the session of files.
//
// Goroutines: take reads standard input, receive reads one link, and reconnect runs while no link is current. mu is
// never held during a read or write.
package bridge

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	skillrun "github.com/skillrun/skillrun/clients/go"
)

// Config is a conversation of an agent.
type Config struct {
	// Connect connects to a daemon, and has its promise to speak MCP by lines. The error is an *AbsentError if a
	// daemon can be there later.
	Connect func(context.Context) (*Connection, error)
	// Patience bounds each wait for a daemon.
	Patience skillrun.Patience
	// OnWait is called before each pause of a wait. answered: a daemon has answered that it stops, or has no room.
	OnWait func(answered bool)
	At     string // the daemon's address, for people
	Note   func(format string, args ...any)

	Stdin  io.Reader
	Stdout io.Writer
}

// A Connection is a connection to a daemon that speaks MCP by lines. R reads from it, and can have its first bytes.
type Connection struct {
	net.Conn
	R *bufio.Reader
}

// Read takes the bytes in R first, then the bytes of the connection.
func (c *Connection) Read(p []byte) (int, error) { return c.R.Read(p) }

// Run connects to a daemon, and forwards messages until standard input or output ends, or ctx. A read of standard
// input can't be interrupted: its goroutine may outlive Run, and ends with the process.
func Run(ctx context.Context, c Config) error {
	b := &bridge{Config: c, pauses: pauses{Patience: c.Patience, onWait: c.OnWait}}
	return b.run(ctx)
}

// A bridge is one conversation of an agent. It outlives its connections to daemons.
type bridge struct {
	Config
	pauses   pauses     // of each wait for a daemon
	printing sync.Mutex // keeps lines whole
	broken   chan error // gets the first error of stdout

	ctx        context.Context // done when run returns
	background sync.WaitGroup

	mu         sync.Mutex
	room       sync.Cond // waiting has become shorter
	current    *link     // nil: messages wait
	connecting bool      // reconnect runs
	links      map[*link]bool
	waiting    []*message // for the next link, in their order
	greeting   *greeting  // nil: the agent has no answer to initialize yet, or its version has no initialize
	unanswered int        // requests whose answer the agent expects
	over       bool       // no request will come
	answered   chan struct{}
}

// A link is one connection to a daemon.
type link struct {
	*Connection
	writing sync.Mutex // keeps lines whole

	// mu of the bridge guards these.
	open map[string]*sending // requests without an answer, by id
	left bool                // the daemon takes no new requests
	gone bool                // the connection has ended
}

// A sending is a message on a link. The bridge registers it under mu, and sends it without.
type sending struct {
	*message
	on   *link
	sent bool // the whole line was written; writing of the link guards it
}

// A greeting has the messages that begin a link, and the daemons' answers to them.
type greeting struct {
	request     *message
	initialized []byte // the agent's notification; nil: it has not come yet
	first       serverInfo
	latest      json.RawMessage // the newest answer of a daemon
}

// serverInfo is a part of the answer to initialize.
type serverInfo struct {
	Version      string                                `json:"protocolVersion"`
	Capabilities map[string]struct{ ListChanged bool } `json:"capabilities"`
}

const (
	// ConnectTimeout bounds connecting, and the daemon's first answers. During a restart, a connection can wait in the
	// kernel for the next daemon; the caller adds its patience for that.
	ConnectTimeout = 10 * time.Second
	// lastAnswers is how long answers are waited for after the end of standard input: an
	// agent that goes wants none, a pipe such as printf ... | skillrun mcp does.
	lastAnswers = 2 * time.Second
	// maxWaiting is the most messages that wait for a link. The daemon takes as many requests at once.
	maxWaiting = 64
	// maxTries is on how many connections a request is tried that may be repeated. It could be the reason for
	// their end.
	maxTries = 3
	// The pauses between two tries to connect begin with firstPause, and double up to mostPause.
	firstPause = 50 * time.Millisecond
	mostPause  = time.Second
)

// lists are the notifications about lists that may have changed, by the capability that announces them.
var lists = map[string]string{
	"tools": "notifications/tools/list_changed", "prompts": "notifications/prompts/list_changed", "resources": "notifications/resources/list_changed",
}

// run is Run.
func (b *bridge) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	b.ctx, b.room.L = ctx, &b.mu
	b.links, b.broken, b.answered = map[*link]bool{}, make(chan error, 1), make(chan struct{})
	defer b.close(cancel)
	b.connecting = true
	if err := b.reconnect(); err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	// It has room for one, so that the goroutine does not wait for a bridge that has returned.
	input := make(chan error, 1)
	go func() {
		input <- eachLine(bufio.NewReaderSize(b.Stdin, 64<<10), func(line []byte) { b.take(readMessage(line)) })
	}()
	select {
	case err := <-input:
		if err != nil {
			return err
		}
	case err := <-b.broken:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	// Standard input is over. The daemon sees the connection end, and ends what still runs.
	select {
	case <-b.last():
	case err := <-b.broken:
		return err
	case <-time.After(lastAnswers):
	case <-ctx.Done():
	}
	return nil
}

// close ends the goroutines. One of them may be in a write to an agent that does not read; it ends with the process.
func (b *bridge) close(cancel context.CancelCauseFunc) {
	cancel(nil)
	b.mu.Lock()
	for l := range b.links {
		l.Close()
	}
	b.room.Broadcast()
	b.mu.Unlock()
	ended := make(chan struct{})
	go func() { b.background.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(lastAnswers):
	}
}

// last marks the end of the requests. The channel is closed when the last answer has been printed.
func (b *bridge) last() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	if b.unanswered == 0 {
		close(b.answered)
	}
	return b.answered
}

// print writes a line for the agent.
func (b *bridge) print(line []byte) {
	b.printing.Lock()
	defer b.printing.Unlock()
	if _, err := b.Stdout.Write(line); err != nil {
		select {
		case b.broken <- &writeError{err}:
		default:
		}
	}
}

// reply prints the answer to a request of the agent.
func (b *bridge) reply(to *message, line []byte) {
	b.print(line)
	b.mu.Lock()
	defer b.mu.Unlock()
	if to.method == methodListen {
		return
	}
	if b.unanswered--; b.over && b.unanswered == 0 {
		close(b.answered)
	}
}

// take sends a message of the agent to a daemon. It returns when the message is sent, or waits with few others.
func (b *bridge) take(m *message) {
	b.mu.Lock()
	if id := m.cancels(); id != "" {
		has, dropped := b.cancel(id)
		b.mu.Unlock()
		switch {
		case dropped != nil:
			b.reply(dropped, dropped.answer(codeCancelled, "cancelled"))
		case has != nil:
			(&sending{message: m, on: has}).send()
		}
		return
	}
	for len(b.waiting) >= maxWaiting && b.ctx.Err() == nil {
		b.room.Wait()
	}
	if m.isCall() && m.method != methodListen {
		b.unanswered++
	}
	if m.method == methodInitialized && b.greeting != nil {
		b.greeting.initialized = m.line
	}
	b.mu.Unlock()
	b.route(m)
}

// cancel notes that the agent wants no answer to a request. It returns the link that has the request, or the request
// itself if it waits for a link. mu is held.
func (b *bridge) cancel(id string) (has *link, dropped *message) {
	for l := range b.links {
		if s := l.open[id]; s != nil {
			s.cancelled = true
			return l, nil
		}
	}
	if i := slices.IndexFunc(b.waiting, func(m *message) bool { return m.id == id }); i >= 0 {
		dropped = b.waiting[i]
		b.waiting = slices.Delete(b.waiting, i, i+1)
		b.room.Broadcast()
	}
	return nil, dropped
}

// route sends a message on the current link. Without one, the message waits.
func (b *bridge) route(m *message) {
	b.mu.Lock()
	s := b.enqueue(m)
	b.mu.Unlock()
	s.send()
}

// enqueue registers a message on the current link. The caller must send it after it has released mu. Without a current
// link the message waits, and the result is nil. mu is held.
func (b *bridge) enqueue(m *message) *sending {
	if b.current != nil {
		return b.current.register(m)
	}
	b.waiting = append(b.waiting, m)
	b.startConnecting()
	return nil
}

// register notes a request before it is sent, so that no answer comes earlier. mu of the bridge is held.
func (l *link) register(m *message) *sending {
	s := &sending{message: m, on: l}
	if m.isCall() {
		l.open[m.id] = s
	}
	return s
}

// send writes the message. After an error the daemon cannot have the whole line, and receive sees the end of the link.
// On nil it does nothing.
func (s *sending) send() {
	if s == nil {
		return
	}
	s.on.writing.Lock()
	defer s.on.writing.Unlock()
	if _, err := s.on.Write(s.line); err != nil {
		s.on.Close()
		return
	}
	s.sent = true
}

// receive handles the messages of a daemon until the link ends. The end can cut the last line off.
func (b *bridge) receive(l *link) {
	for {
		line, err := readLine(l.R)
		if err != nil {
			break
		}
		if len(bytes.TrimSpace(line)) > 0 {
			b.fromDaemon(l, readMessage(line))
		}
	}
	l.Close()
	b.lost(l)
}

// fromDaemon handles a message of a daemon.
func (b *bridge) fromDaemon(l *link, m *message) {
	switch {
	case m.method == methodLeave:
		b.mu.Lock()
		b.leave(l)
		b.mu.Unlock()
	case strings.HasPrefix(m.method, ownPrefix): // of a newer daemon
	case m.method == methodAcknowledged && b.acknowledged(l, m):
	case m.method != "" || m.id == "":
		b.print(m.line)
	default:
		b.answer(l, m)
	}
	b.mu.Lock()
	done := l.left && len(l.open) == 0
	b.mu.Unlock()
	if done {
		l.Close()
	}
}

// answer forwards an answer of a daemon, unless the request goes on with the next daemon.
func (b *bridge) answer(l *link, m *message) {
	refused := m.refused()
	b.mu.Lock()
	request := l.open[m.id]
	delete(l.open, m.id)
	switch {
	case request == nil:
		elsewhere := l.left // a listening request that the next daemon has
		b.mu.Unlock()
		if !elsewhere {
			b.print(m.line)
		}
	case refused && !request.cancelled:
		b.leave(l)
		again := b.enqueue(request.message)
		b.mu.Unlock()
		again.send()
	case refused:
		b.leave(l)
		b.mu.Unlock()
		b.reply(request.message, request.answer(codeCancelled, "cancelled"))
	default:
		b.mu.Unlock()
		if request.method == methodInitialize {
			b.noteGreeting(request.message, m)
		}
		b.reply(request.message, m.line)
	}
}

// leave ends the use of a link for new requests, because its daemon has asked for it. Requests that listen, which would
// stay for ever, go to the next daemon. mu is held.
func (b *bridge) leave(l *link) {
	if l.left {
		return
	}
	l.left = true
	for id, s := range l.open {
		if s.method == methodListen && !s.cancelled {
			delete(l.open, id)
			s.renewed = true
			b.waiting = append(b.waiting, s.message)
		}
	}
	if b.current == l {
		b.current = nil
		b.startConnecting()
	}
}

// lost handles the end of a link. Each of its requests is answered, or goes to the next daemon.
func (b *bridge) lost(l *link) {
	unanswered, again := b.detach(l)
	if b.ctx.Err() != nil {
		return
	}
	for _, m := range unanswered {
		code, why := codeCancelled, "cancelled"
		if !m.cancelled {
			code, why = codeUnanswered, "the daemon at "+b.At+" ended before it answered. "+
				"The request may have been done, so it was not sent again. Look at what it has changed, for example with list_files, before you repeat it"
		}
		b.reply(m, m.answer(code, why))
	}
	for _, s := range again {
		s.send()
	}
}

// detach ends the use of a link whose connection is closed. It returns the requests that get no answer (unanswered),
// and the requests that the caller must send on the next link (again).
func (b *bridge) detach(l *link) (unanswered []*message, again []*sending) {
	// A write that is under way ends, because the connection is closed. After it, sent of each request is right.
	l.writing.Lock()
	defer l.writing.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	l.gone = true
	delete(b.links, l)
	if b.current == l {
		b.current = nil
		b.startConnecting()
	}
	for _, id := range slices.Sorted(maps.Keys(l.open)) { // the output must not vary
		if s := l.open[id]; s.cancelled || s.sent && s.isLost() {
			unanswered = append(unanswered, s.message)
		} else {
			again = append(again, b.enqueue(s.message))
		}
	}
	return unanswered, again
}

// startConnecting starts reconnect, unless it runs. mu is held.
func (b *bridge) startConnecting() {
	if b.connecting || b.ctx.Err() != nil {
		return
	}
	b.connecting = true
	b.background.Go(func() {
		// The agent has been told.
		_ = b.reconnect()
	})
}

// reconnect makes the current link, and sends the waiting messages. It waits for a daemon as the other commands do.
// Before it returns an error, it answers the waiting messages with the error.
func (b *bridge) reconnect() error {
	pauses := b.pauses
	for {
		l, err := b.openLink()
		if err == nil {
			if b.deliver(l) {
				return nil
			}
			err = &AbsentError{errors.New("the daemon at " + b.At + " stops"), true}
		}
		if !pauses.wait(b.ctx, err) {
			b.giveUp(err)
			return err
		}
	}
}

// openLink connects to a daemon, and repeats the agent's initialize there.
func (b *bridge) openLink() (*link, error) {
	conn, err := b.Connect(b.ctx)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(b.ctx, func() { conn.Close() })()
	l := &link{Connection: conn, open: map[string]*sending{}}
	if err := b.greet(l); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// deliver sends the waiting messages, and makes the link the current one. It returns false if the link has ended or
// the daemon has asked to leave it; then all messages that are not done wait again.
func (b *bridge) deliver(l *link) bool {
	b.mu.Lock()
	b.links[l] = true
	b.mu.Unlock()
	b.background.Go(func() { b.receive(l) })
	for {
		b.mu.Lock()
		switch {
		case b.ctx.Err() != nil:
			l.Close()
			fallthrough
		case l.left || l.gone:
			b.mu.Unlock()
			return false
		case len(b.waiting) == 0:
			b.current, b.connecting = l, false
			b.mu.Unlock()
			return true
		}
		m := b.waiting[0]
		b.waiting = b.waiting[1:]
		b.room.Broadcast()
		s := l.register(m)
		b.mu.Unlock()
		s.send()
	}
}

// giveUp answers the requests that wait. Requests that listen go on waiting: the next message tries again.
func (b *bridge) giveUp(err error) {
	b.mu.Lock()
	b.connecting = false
	var unsent []*message
	b.waiting = slices.DeleteFunc(b.waiting, func(m *message) bool {
		if m.isCall() && m.method != methodListen {
			unsent = append(unsent, m)
		}
		return m.method != methodListen
	})
	b.room.Broadcast()
	conversing := b.greeting != nil || len(unsent) > 0
	b.mu.Unlock()
	if b.ctx.Err() != nil || !conversing {
		return
	}
	b.Note("%v; the next request tries again", err)
	for _, m := range unsent {
		b.reply(m, m.answer(codeUnanswered, err.Error()+". Nothing of the request was done"))
	}
}
