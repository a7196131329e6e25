package gateway

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// A TLS server may answer the client's first message with a HelloRetryRequest (RFC 8446, 4.1.4), to get
// other keys. The client then sends a second message with a server name, again in plain text, and some
// servers use the second name. So the Gateway checks it like the first one. Only the server's answer
// distinguishes the second message from encrypted bytes.

const (
	serverHello   = 2
	retryRandomAt = recordHeader + messageHeader + 2 // after the version
)

// retryRandom replaces the random bytes in a HelloRetryRequest (RFC 8446, 4.1.3).
var retryRandom = []byte("\xcf\x21\xad\x74\xe5\x9a\x61\x11\xbe\x1d\x8c\x02\x1e\x65\xb8\x91" +
	"\xc2\xa2\x11\x16\x7a\xbb\x8c\x5e\x07\x9e\x09\xe2\xc8\xa8\x33\x9c")

// receive carries the server's data, and inspects the first answer.
func (c *connection) receive() (err error) {
	if !c.decision.reads() {
		return c.inward(nil)
	}
	from := bufio.NewReaderSize(c.out, peekSize)
	c.retry, err = asksAgain(from)
	close(c.answered)
	if err != nil {
		return err
	}
	return c.inward(rest(from))
}

// asksAgain reports whether the server's first message is a HelloRetryRequest. It waits for no more bytes
// than a TLS server sends at once. The end of the data is no error: the next read finds it again. Any other error is
// not found again: after a reset, the socket reports the end of the data.
func asksAgain(from *bufio.Reader) (bool, error) {
	start, err := from.Peek(1)
	if err == nil && start[0] == handshakeRecord {
		start, err = from.Peek(retryRandomAt + len(retryRandom))
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	// start[recordHeader] is the type of the message, after the header of its record.
	return err == nil && len(start) > 1 && start[recordHeader] == serverHello && bytes.Equal(start[retryRandomAt:], retryRandom), nil
}

// sendToHello sends the records before the client's second message with a name. A client may send early
// data after its first message; a server that asks for other keys skips this data. again is true if the
// second message must come next.
func (c *connection) sendToHello(in *bufio.Reader) (again bool, err error) {
	for {
		start, err := in.Peek(recordHeader)
		if err != nil {
			return false, nil // not a whole record; outward then sends the same bytes, and finds the same end
		}
		if start[0] == handshakeRecord && recordSize(start) > recordHeader {
			// This may be the second message. Only the answer tells, so the client's bytes wait for it.
			<-c.answered
			return c.retry, nil
		}
		// Before the answer, other records are early data, and pass. After an answer that asks for nothing, all that
		// follows is encrypted.
		select {
		case <-c.answered:
			if !c.retry {
				return false, nil
			}
		default:
		}
		if _, err := io.CopyN(passWriter{c}, in, int64(recordSize(start))); err != nil {
			return false, err
		}
	}
}
