package mcp

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skillrun/skillrun/internal/ingress"
	"github.com/skillrun/skillrun/internal/ingress/identity"
	"github.com/skillrun/skillrun/internal/lazyregexp"
	"github.com/skillrun/skillrun/internal/toolview"
)

// The life of a connection without HTTP. serveLines takes it over from net/http and gives it to
// the SDK as a Transport, lineConn. The SDK calls Read in a loop and handles each message in a
// goroutine; their answers come to Write. A call is in lineConn.calls from take to Write. Three
// things end a connection: the client closes it (Read fails), the client does not read (write
// fails), or the daemon stops (finish). The first two cancel the calls through gone; the last one
// waits for them.
//
// Before a daemon stops or hands over, it asks the client to leave (leave). The client then sends its calls on a
// connection to the next daemon, and closes this one after the last answer. A call that was on its way is refused with
// errLeave, and the client sends it again. So at each moment it is known which of the two daemons does a call.

// LinesProtocol is the protocol to which a client upgrades an HTTP connection to speak MCP
// as on a pipe: one message in each line, in both directions. The connection is the
// session, and its end cancels the running calls. `skillrun mcp` copies lines between such
// connections and the agent that started it, so it works with every protocol version.
const LinesProtocol = "skillrun-mcp-lines"

// What `skillrun mcp` needs for a conversation that outlives its connection. cmd/skillrun has the same names.
const (
	// conversationHeader is a header of the upgrade. Connections with the same name have the same session of files.
	conversationHeader = "Skillrun-Conversation"
	// notifyLeave asks the client to leave the connection. It is not for the agent.
	notifyLeave = "notifications/skillrun/leave"
)

// conversationName is the form of names. A client makes a random one, so that no other conversation has it.
var conversationName = lazyregexp.New(`^[0-9A-Za-z]{16,64}$`)

// errLeave refuses a call that comes when the client was asked to leave. Nothing of the call was done.
var errLeave = &jsonrpc.Error{Code: codeBusy, Message: errStopping.Message, Data: json.RawMessage(`{"reason":"leave"}`)}

// serveLines takes a connection over from HTTP and serves it until it ends.
func (s *Server) serveLines(w http.ResponseWriter, r *http.Request, who identity.Identity) {
	if r.Method != http.MethodGet {
		refuse(http.StatusBadRequest, "upgrade to %s with GET", LinesProtocol).write(w)
		return
	}
	name := r.Header.Get(conversationHeader)
	if name != "" && !conversationName.MatchString(name) {
		refuse(http.StatusBadRequest, "%s is not 16 to 64 letters and digits", conversationHeader).write(w)
		return
	}
	leave, bad := s.enterStream(who)
	if bad != nil {
		bad.write(w)
		return
	}
	defer leave()
	if !s.beginLines() {
		refuseStopping().write(w)
		return
	}
	defer s.lines.Done()
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		refuse(http.StatusInternalServerError, "this connection can't be upgraded").write(w)
		return
	}
	defer conn.Close()
	// A hijacked connection may have deadlines of its HTTP request (net/http.Hijacker).
	conn.SetDeadline(time.Time{})
	credentials := credentialsOf(r)
	c := &caller{
		Identity: who, address: ingress.ConnOf(r).From(), conversation: toolview.NamedConversation(name), moveOn: func() bool { return true },
		again: func() (identity.Identity, error) { return s.identify(credentials) },
	}
	ctx, gone := context.WithCancelCause(s.broken)
	defer gone(errGone)
	c.here = ctx
	counted := ingress.ConnOf(r)
	counted.Begin()() // the connection is not idle
	l := &lineConn{
		conn: conn, r: buffered.Reader, max: int(s.maxMessage), patience: s.patience, lineTime: s.bodyTime, leaveTime: s.leaveTime,
		hold: func(n int64) (func(), bool) { return s.hold(counted, n) }, begin: counted.Begin, gone: gone, calls: map[jsonrpc.ID]lineCall{},
	}
	l.fewer.L = &l.mu
	l.count = func() { s.count(ctx, who) }
	l.holdAnswer = func(e envelope) (func(), *refusal) { return s.holdAnswer(who.Tenant, e, l.hold) }
	hello := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + LinesProtocol + "\r\n\r\n"
	if l.write([]byte(hello)) != nil {
		return
	}
	ss, err := s.audienceOf(who.Tenant).sdk.Connect(context.WithValue(ctx, callerKey{}, c), l, nil)
	if err != nil {
		s.log.Error("mcp connection", "err", err)
		return
	}
	defer context.AfterFunc(s.leaving, l.leave)()
	defer context.AfterFunc(s.stopping, l.finish)()
	defer context.AfterFunc(s.broken, func() { conn.Close() })()
	ss.Wait()
	l.forget()
	// After leave the conversation goes on at the next daemon. A reader removes no session, also not by naming the
	// conversation of somebody else.
	if s.leaving.Err() == nil && who.Role.Covers(identity.Invoke) {
		s.tools.EndConversation(who.Principal, c.conversation)
	}
}

// beginLines registers a connection that Stop must wait for. It returns false after Leave.
func (s *Server) beginLines() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaving.Err() != nil {
		return false
	}
	s.lines.Add(1)
	return true
}

// A lineConn is the server's end of an upgraded connection. The SDK reads it from one goroutine
// and writes to it from many.
type lineConn struct {
	conn net.Conn
	r    *bufio.Reader
	max  int                        // maximum length of a line in bytes
	hold func(int64) (func(), bool) // reserves memory for a line, see Config.Hold
	// holdAnswer reserves memory for the answer to a call.
	holdAnswer func(envelope) (release func(), bad *refusal)
	count      func()        // counts a message that is not a call, or that is refused; it may wait
	begin      func() func() // marks the connection as busy until the returned function is called
	lineTime   time.Duration // for a long line to arrive
	leaveTime  time.Duration // for the client to leave, from finish on
	gone       context.CancelCauseFunc
	// patience is how long a client may not read before it is dropped.
	patience time.Duration

	// writing keeps lines whole; mu guards the fields after it.
	writing sync.Mutex

	mu        sync.Mutex
	calls     map[jsonrpc.ID]lineCall // calls without an answer yet
	answers   int                     // answers being written
	reading   int                     // calls that read, without an answer yet
	fewer     sync.Cond               // answers or reading has become less; of mu
	left      bool                    // calls are refused, see leave
	finishing bool                    // the connection ends with the last answer
}

// A lineCall is a call under way.
type lineCall struct {
	ends  bool   // false: a stream that lasts until the client goes away
	reads bool   // see envelope
	done  func() // releases the memory of the call
}

// forget releases the memory of calls whose answers cannot be sent any longer.
func (l *lineConn) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.calls {
		l.remove(id)()
	}
}

// remove takes a call out of calls, and returns the function that releases its memory. l.mu is held.
func (l *lineConn) remove(id jsonrpc.ID) (done func()) {
	c, ok := l.calls[id]
	if !ok {
		return func() {}
	}
	delete(l.calls, id)
	if c.reads {
		l.reading--
		l.fewer.Broadcast()
	}
	return c.done
}

// leave refuses new calls, and asks the client to send them to the next daemon.
func (l *lineConn) leave() {
	l.mu.Lock()
	l.left = true
	l.mu.Unlock()
	// If it can't be sent, the connection ends, which tells the client the same.
	_ = l.write([]byte(`{"jsonrpc":"2.0","method":"` + notifyLeave + `"}` + "\n"))
}

func (l *lineConn) isLeft() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.left
}

// finish closes the connection after the last answer. The client has leaveTime to close it itself: if the daemon
// closed first, a message that is on its way would be lost without an answer.
func (l *lineConn) finish() {
	time.AfterFunc(l.leaveTime, func() {
		l.mu.Lock()
		l.finishing = true
		l.mu.Unlock()
		l.closeIfDone()
	})
}

// closeIfDone closes the connection if it is finishing and no answer is to come. An answer that
// is no longer in calls and not yet on the wire counts in answers. A call that lasts until the
// client goes away (lineCall.ends is false) does not hold up the end.
func (l *lineConn) closeIfDone() {
	l.mu.Lock()
	done := l.finishing && l.answers == 0
	for _, c := range l.calls {
		done = done && !c.ends
	}
	l.mu.Unlock()
	if done {
		l.conn.Close()
	}
}

// Connect implements the SDK's Transport.
func (l *lineConn) Connect(context.Context) (sdk.Connection, error) { return l, nil }

// SessionID is empty: the connection is the session.
func (l *lineConn) SessionID() string { return "" }

// Close ends the connection. It may be called more than once.
func (l *lineConn) Close() error { return l.conn.Close() }

// errNoRoom says that there was no memory for a line. The line has been read to its end.
var errNoRoom = errors.New("no room for the line")

// errLongLine says that a line is too long. The line has been read to its end.
var errLongLine = errors.New("line too long")

// Read returns the next message. It answers invalid messages, and calls beyond maxCalls,
// itself and before it reads on. A client that sends only such messages and does not read
// the answers blocks itself.
func (l *lineConn) Read(context.Context) (jsonrpc.Message, error) {
	for {
		l.awaitReader()
		line, release, err := l.readLine()
		var answer []byte
		switch {
		case errors.Is(err, errLongLine):
			answer = refuse(0, "the message is larger than %d bytes", l.max).encoded()
		case errors.Is(err, errNoRoom):
			answer = refuseBusy().encoded()
		case err != nil:
			l.gone(errGone)
			return nil, err
		case len(bytes.TrimSpace(line)) == 0:
			l.count()
			continue
		default:
			var msg jsonrpc.Message
			if msg, answer = l.take(line, release); answer == nil {
				return msg, nil
			}
			release()
		}
		if !l.isLeft() { // a call that is refused because of that counts in the next daemon
			l.count()
		}
		if err := l.write(append(answer, '\n')); err != nil {
			l.gone(errGone)
			return nil, err
		}
	}
}

// awaitReader waits while as many large answers as maxUnread are not sent yet. write bounds the time in which a client
// must read.
func (l *lineConn) awaitReader() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.answers+l.reading >= maxUnread {
		l.fewer.Wait()
	}
}

// take decodes a line as a message, or returns an answer to an invalid one. A call keeps
// its memory until it is answered; take releases the memory of other messages.
func (l *lineConn) take(line []byte, release func()) (msg jsonrpc.Message, answer []byte) {
	e, bad := readEnvelope(line)
	if bad != nil {
		return nil, bad.encoded()
	}
	msg, err := jsonrpc.DecodeMessage(line)
	if err != nil {
		return nil, refuse(0, "not a JSON-RPC message: %v", err).encoded()
	}
	call, ok := msg.(*jsonrpc.Request)
	if !ok || !call.IsCall() {
		release() // it is small, or will be ignored
		l.count()
		return msg, nil
	}
	if _, known := accessTable[call.Method]; !known {
		return nil, answerTo(call.ID, notFound(call.Method))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, open := l.calls[call.ID]
	switch {
	case l.left:
		return nil, answerTo(call.ID, errLeave)
	case open:
		return nil, answerTo(call.ID, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: fmt.Sprintf("request %v is already under way", call.ID.Raw())})
	case len(l.calls) >= maxCalls:
		return nil, answerTo(call.ID, &jsonrpc.Error{Code: codeBusy, Message: fmt.Sprintf("%d requests are under way on this connection, which is the maximum; wait for one to end", maxCalls)})
	}
	releaseAnswer, bad := l.holdAnswer(e)
	if bad != nil {
		return nil, bad.encoded()
	}
	ends := call.Method != methodListen
	done := func() { releaseAnswer(); release() }
	if ends {
		end := l.begin()
		done = func() { end(); releaseAnswer(); release() }
	}
	l.calls[call.ID] = lineCall{ends, e.reads, done}
	if e.reads {
		l.reading++
	}
	return msg, nil
}

// answerTo builds an error that answers a request before the SDK sees it.
func answerTo(id jsonrpc.ID, why *jsonrpc.Error) []byte {
	data, err := jsonrpc.EncodeMessage(&jsonrpc.Response{ID: id, Error: why})
	if err != nil {
		return refuse(0, "%s", why.Message).encoded()
	}
	return data
}

// readLine returns a line without its newline, and a function that releases its memory. A line
// that fits into the buffer of the connection, which net/http has made, is small and not
// counted.
func (l *lineConn) readLine() (line []byte, release func(), err error) {
	line, err = l.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return l.readLong(bytes.Clone(line))
	}
	return bytes.Clone(bytes.TrimSuffix(line, []byte("\n"))), func() {}, err
}

// readLong reads the rest of a line that is longer than the buffer, within lineTime. Until
// its end it counts as the longest line, and then by its length. A refused line is read
// too, and dropped.
func (l *lineConn) readLong(line []byte) (_ []byte, release func(), err error) {
	l.conn.SetReadDeadline(time.Now().Add(l.lineTime))
	defer l.conn.SetReadDeadline(time.Time{})
	release, ok := l.hold(int64(l.max))
	if !ok {
		release, err = func() {}, errNoRoom
	}
	for {
		piece, readErr := l.r.ReadSlice('\n')
		if err == nil && len(line)+len(piece) > l.max+1 {
			err = errLongLine
		}
		if err == nil {
			line = append(line, piece...)
		}
		if errors.Is(readErr, bufio.ErrBufferFull) {
			continue
		}
		release()
		if err = cmp.Or(readErr, err); err != nil {
			return nil, nil, err
		}
		line = line[:len(line)-1]
		if release, ok = l.hold(int64(len(line))); !ok {
			return nil, nil, errNoRoom
		}
		return line, release, nil
	}
}

// Write sends a message. The SDK calls it from many goroutines.
func (l *lineConn) Write(_ context.Context, msg jsonrpc.Message) error {
	answer, isAnswer := msg.(*jsonrpc.Response)
	if isAnswer {
		answer.Error = coded(answer.Error)
	}
	data, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return err
	}
	if isAnswer {
		// The id must be free before the client can see the answer and reuse it.
		l.mu.Lock()
		l.answers++
		defer l.remove(answer.ID)()
		l.mu.Unlock()
		defer func() {
			l.mu.Lock()
			l.answers--
			l.fewer.Broadcast()
			l.mu.Unlock()
			l.closeIfDone()
		}()
	}
	return l.write(append(data, '\n'))
}

// write sends a line. A client that does not read in time is dropped.
func (l *lineConn) write(line []byte) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.conn.SetWriteDeadline(time.Now().Add(l.patience))
	if _, err := l.conn.Write(line); err != nil {
		l.gone(errGone)
		l.conn.Close()
		return err
	}
	return nil
}
