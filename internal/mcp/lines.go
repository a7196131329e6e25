package mcp

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skillrun/skillrun/internal/permission"
)

// LinesProtocol is what a client upgrades an HTTP connection to, to speak MCP as on
// a pipe: one message a line, both ways. The connection is the session: its end
// cancels what runs, and nothing else ends it. That is all that `skillrun mcp`
// needs to give an agent that starts processes the same server, byte for byte, in
// every version of the protocol.
const LinesProtocol = "skillrun-mcp-lines"

// serveLines takes a connection out of HTTP and serves it until it ends.
func (s *Server) serveLines(w http.ResponseWriter, r *http.Request, who permission.Principal) {
	if r.Method != http.MethodGet {
		refuse(http.StatusBadRequest, "the upgrade to %s is a GET", LinesProtocol).write(w)
		return
	}
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
	conn.SetDeadline(time.Time{})
	c := &caller{who: who}
	ctx, gone := context.WithCancelCause(s.broken)
	defer gone(errGone)
	c.here = ctx
	counted := connectionOf(r)
	counted.Begin()() // it has asked for something
	l := &lineConn{
		conn: conn, r: buffered.Reader, max: int(s.maxMessage), patience: s.patience, lineTime: s.bodyTime,
		hold: func(n int64) (func(), bool) { return s.hold(counted.Peer(), n) }, begin: counted.Begin, gone: gone, calls: map[jsonrpc.ID]lineCall{},
	}
	hello := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + LinesProtocol + "\r\n\r\n"
	if l.write([]byte(hello)) != nil {
		return
	}
	ss, err := s.sdk.Connect(context.WithValue(ctx, callerKey{}, c), l, nil)
	if err != nil {
		s.log.Error("mcp connection", "err", err)
		return
	}
	defer context.AfterFunc(s.stopping, l.finish)()
	defer context.AfterFunc(s.broken, func() { conn.Close() })()
	ss.Wait()
	l.forget()
}

// beginLines counts a connection that Stop has to wait for.
func (s *Server) beginLines() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping.Err() != nil {
		return false
	}
	s.lines.Add(1)
	return true
}

// A lineConn is the server's end of such a connection.
type lineConn struct {
	conn     net.Conn
	r        *bufio.Reader
	max      int                        // bytes of a line
	hold     func(int64) (func(), bool) // counts bytes of lines among those in memory
	begin    func() func()              // of a call on the connection
	lineTime time.Duration              // for a line to arrive
	gone     context.CancelCauseFunc
	// patience with a client that doesn't take what it is sent
	patience time.Duration

	writing sync.Mutex

	mu        sync.Mutex
	calls     map[jsonrpc.ID]lineCall // that wait for their response
	answers   int                     // being written
	finishing bool
}

// A lineCall is a call under way.
type lineCall struct {
	ends bool   // false: it only listens
	done func() // gives back what it holds
}

// forget gives back what calls hold whose answers nobody will take.
func (l *lineConn) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, c := range l.calls {
		delete(l.calls, id)
		c.done()
	}
}

// finish takes no new call and closes the connection after the last one.
func (l *lineConn) finish() {
	l.mu.Lock()
	l.finishing = true
	l.mu.Unlock()
	l.closeIfDone()
}

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

// Connect makes it the SDK's transport.
func (l *lineConn) Connect(context.Context) (sdk.Connection, error) { return l, nil }

// SessionID is empty: the connection is the session.
func (l *lineConn) SessionID() string { return "" }

// Close ends the connection. It may be called more than once.
func (l *lineConn) Close() error { return l.conn.Close() }

// errNoRoom says that there is no memory for a line; all of it has been read.
var errNoRoom = errors.New("no room for the line")

// errLongLine says that a line is past the bound; all of it has been read.
var errLongLine = errors.New("line too long")

// Read returns the next message. What is none, or one call too many, is answered
// here and now: who sends only that, and doesn't take the answers, blocks itself.
func (l *lineConn) Read(context.Context) (jsonrpc.Message, error) {
	for {
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
			continue
		default:
			var msg jsonrpc.Message
			if msg, answer = l.take(line, release); answer == nil {
				return msg, nil
			}
			release()
		}
		if err := l.write(append(answer, '\n')); err != nil {
			l.gone(errGone)
			return nil, err
		}
	}
}

// take makes a message of a line, or an answer to what can't be one. A call holds what
// release gives back until it is answered.
func (l *lineConn) take(line []byte, release func()) (msg jsonrpc.Message, answer []byte) {
	if _, bad := readEnvelope(line); bad != nil {
		return nil, bad.encoded()
	}
	msg, err := jsonrpc.DecodeMessage(line)
	if err != nil {
		return nil, refuse(0, "not a JSON-RPC message: %v", err).encoded()
	}
	call, ok := msg.(*jsonrpc.Request)
	if !ok || !call.IsCall() {
		release() // it is small, or nobody will do anything with it
		return msg, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, open := l.calls[call.ID]
	switch {
	case l.finishing:
		return nil, answerTo(call.ID, codeBusy, errStopping.Message)
	case open:
		return nil, answerTo(call.ID, jsonrpc.CodeInvalidRequest, fmt.Sprintf("request %v is under way already", call.ID.Raw()))
	case len(l.calls) >= maxCalls:
		return nil, answerTo(call.ID, codeBusy, fmt.Sprintf("%d requests are under way on this connection, which is all that it may have; wait for one", maxCalls))
	}
	ends := call.Method != methodListen
	done := release
	if ends {
		end := l.begin()
		done = func() { end(); release() }
	}
	l.calls[call.ID] = lineCall{ends, done}
	return msg, nil
}

// answerTo is an error in answer to a request that nobody else sees.
func answerTo(id jsonrpc.ID, code int64, text string) []byte {
	data, err := jsonrpc.EncodeMessage(&jsonrpc.Response{ID: id, Error: &jsonrpc.Error{Code: code, Message: text}})
	if err != nil {
		return refuse(0, "%s", text).encoded()
	}
	return data
}

// readLine returns a line without its end, and what gives its memory back.
func (l *lineConn) readLine() (line []byte, release func(), err error) {
	line, err = l.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return l.readLong(bytes.Clone(line))
	}
	return bytes.Clone(bytes.TrimSuffix(line, []byte("\n"))), func() {}, err
}

// readLong reads on in a line that is longer than a buffer, for which there is a limited
// time. It counts as the largest there is until its end has come, and then by its size.
// What is refused is read, too, and dropped.
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

// Write sends a message.
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
		// The id is free before the client can know that it is.
		l.mu.Lock()
		if c, ok := l.calls[answer.ID]; ok {
			delete(l.calls, answer.ID)
			defer c.done()
		}
		l.answers++
		l.mu.Unlock()
		defer func() {
			l.mu.Lock()
			l.answers--
			l.mu.Unlock()
			l.closeIfDone()
		}()
	}
	return l.write(append(data, '\n'))
}

// write sends a line. A client that does not take it in time is gone.
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
