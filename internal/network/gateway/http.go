package gateway

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/skillrun/skillrun/internal/network/dial"
	"github.com/skillrun/skillrun/internal/network/policy"
)

// sendHTTP parses each request of the connection, checks its Host and writes the parsed request. So the
// server sees the request that was checked, even if the client's bytes were ambiguous. A request
// can't change the protocol, because later bytes would pass unchecked.
func (c *connection) sendHTTP() error {
	limited := &dial.HeadReader{From: c.in}
	in := bufio.NewReader(limited)
	out := bufio.NewWriter(passWriter{c})
	for first := true; ; first = false {
		// A request's head is bounded, its body is not: limits.Bytes counts it.
		limited.Left, limited.Lines = dial.MaxHead, dial.MaxLines
		// Before a request the connection may be idle like any other, except before the first one if the client must name
		// one of some names. A head that has begun must end in time.
		if !first || c.decision.names == nil {
			switch _, err := in.Peek(1); {
			case errors.Is(err, io.EOF):
				return c.cut()
			case err != nil:
				return err
			}
		}
		_ = c.in.SetReadDeadline(time.Now().Add(c.gateway.entries.limits.Hello))
		r, err := http.ReadRequest(in)
		if err != nil {
			return c.endOfRequests(err)
		}
		limited.Left = -1
		_ = c.in.SetReadDeadline(time.Time{})
		if err := c.checkRequest(r); err != nil {
			return err
		}
		if err := writeRequest(out, r); err != nil {
			return err
		}
	}
}

// endOfRequests is nil if the client has sent nothing. If it has ended its data within a head, it is not refused.
func (c *connection) endOfRequests(err error) error {
	var failed net.Error
	switch {
	case errors.Is(err, io.EOF):
		return c.cut()
	case !errors.As(err, &failed) && !errors.Is(err, io.ErrUnexpectedEOF):
		err = errors.Join(errNotHello, err)
	}
	return c.late(err, "HTTP")
}

// checkRequest returns a refusedError for a request to another host, or one whose host is not certain: the
// server could read it in another way than net/http does.
func (c *connection) checkRequest(r *http.Request) error {
	refuse := func(reason string) error { return refusedError(c.decision.refuse(policy.Verdict{Reason: reason})) }
	if r.Method == http.MethodConnect {
		return refuse("a CONNECT request asks for a relay")
	}
	if r.ProtoMajor != 1 {
		return refuse("only HTTP/1 can be checked without TLS")
	}
	if r.URL.Opaque != "" { // of "scheme:rest"; it would be written as a target that is no path
		return refuse("the target of the request is not valid")
	}
	name, port := cutPort(r.Host)
	if strings.Trim(port, "0123456789") != "" {
		return refuse("the Host of the request is not valid") // it would be written as an empty one
	}
	return c.names(name, "Host of the request")
}

// writeRequest writes r as one request. Its head goes out before the body is waited for: the client
// may wait for an answer to the head.
func writeRequest(out *bufio.Writer, r *http.Request) error {
	// A server that gets neither header can't change to WebSocket or to HTTP/2 without TLS (RFC 9110, 7.8), whose
	// bytes would pass unchecked.
	r.Header.Del("Upgrade")
	r.Header.Del("Http2-Settings")
	if _, ok := r.Header["User-Agent"]; !ok {
		r.Header["User-Agent"] = []string{""} // or Write adds Go's
	}
	if r.Body != http.NoBody {
		r.Body = flushingBody{r.Body, out}
	}
	if err := r.Write(&requestWriter{out: out, minor: r.ProtoMinor}); err != nil {
		return err
	}
	return out.Flush()
}

// A requestWriter keeps the version of a request of HTTP/1.0. Request.Write writes HTTP/1.1, to which the
// server may answer with chunks that the client does not know. It also writes a Host, which such a request need not have.
type requestWriter struct {
	out   *bufio.Writer
	minor int
	begun bool
}

const newVersion, oldVersion, noHost = " HTTP/1.1\r\n", " HTTP/1.0\r\n", "Host: \r\n"

// Write gets each of the first two lines at once: the one with the version at its end, and Host.
func (w *requestWriter) Write(b []byte) (int, error) {
	if w.minor == 0 && string(b) == noHost {
		return len(b), nil
	}
	if w.begun || w.minor > 0 {
		return w.out.Write(b)
	}
	w.begun = true
	line, ok := strings.CutSuffix(string(b), newVersion)
	if !ok {
		return 0, errVersion
	}
	if _, err := w.out.WriteString(line + oldVersion); err != nil {
		return 0, err
	}
	return len(b), nil
}

// WriteByte tells Request.Write that it needs no buffer.
func (w *requestWriter) WriteByte(b byte) error { return w.out.WriteByte(b) }

var errVersion = errors.New("the first line of the request has no version")

// A flushingBody flushes the writer before each read that may wait.
type flushingBody struct {
	io.ReadCloser
	out *bufio.Writer
}

func (b flushingBody) Read(p []byte) (int, error) {
	if err := b.out.Flush(); err != nil {
		return 0, err
	}
	return b.ReadCloser.Read(p)
}

// A passWriter writes to the destination and counts.
type passWriter struct{ c *connection }

func (w passWriter) Write(b []byte) (int, error) {
	if err := w.c.pass(w.c.out, b, &w.c.sent); err != nil {
		return 0, err
	}
	return len(b), nil
}
