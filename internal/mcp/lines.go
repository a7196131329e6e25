package mcp

import (
	"bufio"
	"bytes"
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
	l := &lineConn{conn: conn, r: buffered.Reader, max: int(s.maxMessage), patience: s.patience, gone: gone, calls: map[jsonrpc.ID]bool{}}
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
	conn net.Conn
	r    *bufio.Reader
	max  int // bytes of a line
	gone context.CancelCauseFunc
	// patience with a client that doesn't take what it is sent
	patience time.Duration

	writing sync.Mutex

	mu        sync.Mutex
	calls     map[jsonrpc.ID]bool // that wait for their response; false: they only listen
	answers   int                 // being written
	finishing bool
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
	for _, ends := range l.calls {
		done = done && !ends
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

// errLongLine says that a line is past the bound; all of it has been read.
var errLongLine = errors.New("line too long")

// Read returns the next message. What is none, or one call too many, is answered
// here and now: who sends only that, and doesn't take the answers, blocks itself.
func (l *lineConn) Read(context.Context) (jsonrpc.Message, error) {
	for {
		line, err := l.readLine()
		var answer []byte
		switch {
		case errors.Is(err, errLongLine):
			answer = refuse(0, "the message is larger than %d bytes", l.max).encoded()
		case err != nil:
			l.gone(errGone)
			return nil, err
		case len(bytes.TrimSpace(line)) == 0:
			continue
		default:
			var msg jsonrpc.Message
			if msg, answer = l.take(line); answer == nil {
				return msg, nil
			}
		}
		if err := l.write(append(answer, '\n')); err != nil {
			l.gone(errGone)
			return nil, err
		}
	}
}

// take makes a message of a line, or an answer to what can't be one.
func (l *lineConn) take(line []byte) (msg jsonrpc.Message, answer []byte) {
	if _, bad := readEnvelope(line); bad != nil {
		return nil, bad.encoded()
	}
	msg, err := jsonrpc.DecodeMessage(line)
	if err != nil {
		return nil, refuse(0, "not a JSON-RPC message: %v", err).encoded()
	}
	call, ok := msg.(*jsonrpc.Request)
	if !ok || !call.IsCall() {
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
	l.calls[call.ID] = call.Method != methodListen
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

// readLine returns a line without its end.
func (l *lineConn) readLine() ([]byte, error) {
	var line []byte
	long := false
	for {
		piece, err := l.r.ReadSlice('\n')
		if long = long || len(line)+len(piece) > l.max+1; long {
			line = nil
		} else {
			line = append(line, piece...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil:
			return nil, err
		case long:
			return nil, errLongLine
		default:
			return line[:len(line)-1], nil
		}
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
		delete(l.calls, answer.ID)
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
