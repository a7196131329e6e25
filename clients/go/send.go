package skillrun

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"google.golang.org/grpc"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// stdinBytes is the size of one Read of standard input.
const stdinBytes = 32 << 10

type interactiveStream = grpc.BidiStreamingClient[pb.ExecuteInteractiveRequest, pb.ExecuteInteractiveResponse]

// sendCall sends the start message and then the files, in the order that the API requires. It
// returns io.EOF if the daemon has ended the stream; Recv then returns the reason.
func sendCall(s interactiveStream, c *call) error {
	start := &pb.ExecuteInteractiveRequest_Start{Start: c.request}
	if err := s.Send(&pb.ExecuteInteractiveRequest{Message: start}); err != nil {
		return err
	}
	var sent, total int64
	for _, u := range c.uploads {
		total += u.size
	}
	for _, u := range c.uploads {
		err := u.send(func(chunk *pb.FileChunk) error {
			err := s.Send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_FileChunk{FileChunk: chunk}})
			if sent += int64(len(chunk.Data)); err == nil && c.on != nil {
				c.on(sent, total)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// A pump sends standard input while the program runs.
type pump struct {
	done atomic.Bool // everything was sent
	err  atomic.Pointer[error]
}

// feed sends the content of r after the start message and the files.
func (p *pump) feed(o *opened, r io.Reader) {
	if sent := <-o.sent; sent {
		p.run(o.interactive, r)
	}
}

// run reads until the end of r, or until the stream accepts no more. It does not know when the
// program ends: a Read may block beyond that time.
func (p *pump) run(s interactiveStream, r io.Reader) {
	for {
		data := make([]byte, stdinBytes)
		n, err := r.Read(data)
		if n > 0 {
			message := &pb.ExecuteInteractiveRequest_Stdin{Stdin: data[:n]}
			if s.Send(&pb.ExecuteInteractiveRequest{Message: message}) != nil {
				return // the receiving side has the reason
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				p.fail(fmt.Errorf("stdin: %w", err))
			}
			break
		}
	}
	end := &pb.ExecuteInteractiveRequest_CloseStdin{CloseStdin: &pb.CloseStdin{}}
	if s.Send(&pb.ExecuteInteractiveRequest{Message: end}) == nil && s.CloseSend() == nil {
		p.done.Store(true)
	}
}

// lost returns the reason why the program may not have received all of its input, or nil.
// It is asked only if the program succeeded. A program that ends without reading everything
// has lost nothing. A stream that broke before everything was sent has.
func (p *pump) lost(breaks int) error {
	if p == nil {
		return nil
	}
	if err := p.err.Load(); err != nil {
		return *err
	}
	if breaks > 0 && !p.done.Load() {
		return errInputLost
	}
	return nil
}

func (p *pump) fail(err error) { p.err.Store(&err) }

var errInputLost = errors.New("stdin: the connection broke before all input was sent")
