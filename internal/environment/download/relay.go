package download

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"sync"
)

// Bounds of the relay.
const (
	// Requests that are fetched at a time.
	maxRelayed = 4
	// Requests that were read and not yet answered, the fetched ones included.
	maxRelayWait   = 64
	maxRelayLine   = 4 << 10 // bytes of one request
	relayFrameSize = 64 << 10
)

// Kinds of frames to the sandbox. A frame has the request's id (32 bits), the kind, the length
// of the payload (32 bits) and the payload. Numbers are big endian.
const (
	frameHead = 'h' // JSON: status, type, length
	frameData = 'd'
	frameEnd  = 'e' // a payload means that the answer is not complete
)

// A Relay reads requests, one line of JSON each, from a build's standard output and writes
// answers to its standard input. The line {"drop": 7} ends the download of answer 7: pip or npm has
// hung up. Without it, the download of an endless file would go on after the build has failed, until
// the bound of all downloads, and the build's error would blame the index. The requests come from a
// stranger's program, so the Relay obeys only the Fetcher's rules and these bounds.
type Relay struct {
	// The context of all downloads; build cancels it when its sandbox has ended.
	ctx   context.Context
	fetch func(context.Context, string) Response // nil: without an index every answer is 404
	out   *io.PipeWriter
	// writing keeps the head and the payload of a frame together.
	writing sync.Mutex
	// The begin of a request whose newline has not come. Only Write uses it, which the
	// sandbox calls from one goroutine.
	line []byte
	// Semaphores: a request takes waiting when it is read and fetching when its fetch begins.
	// Both go back after the answer.
	fetching chan struct{}
	waiting  chan struct{}
	running  sync.WaitGroup
	// dropping protects dropped, which has what ends the download of each request that was read
	// and not yet answered.
	dropping sync.Mutex
	dropped  map[uint32]context.CancelFunc
}

// NewRelay returns a Relay, which is the build's standard output, and the build's standard input.
// The caller calls Close in any case, also if the sandbox did not start.
// ctx is the context of all downloads. get answers a request; nil: every answer is 404.
func NewRelay(ctx context.Context, get func(context.Context, string) Response) (*Relay, *io.PipeReader) {
	r, w := io.Pipe()
	return &Relay{ctx: ctx, fetch: get, out: w,
		fetching: make(chan struct{}, maxRelayed), waiting: make(chan struct{}, maxRelayWait),
		dropped: map[uint32]context.CancelFunc{}}, r
}

var errRelay = errors.New("relay: not a request")

// Write takes the build's standard output.
// After an error the sandbox drops the rest of the output, so the build gets no answer to
// later requests. It ends by its own timeout or by environments.wall_time.
func (r *Relay) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		head, rest, whole := bytes.Cut(p, []byte("\n"))
		if len(r.line)+len(head) > maxRelayLine {
			return 0, errRelay
		}
		r.line = append(r.line, head...)
		if p = rest; !whole {
			break
		}
		var req struct {
			ID   uint32 `json:"id"`
			Path string `json:"path"`
			Drop uint32 `json:"drop"`
		}
		if err := json.Unmarshal(r.line, &req); err != nil {
			return 0, errRelay
		}
		r.line = r.line[:0]
		if req.Drop != 0 {
			r.drop(req.Drop)
			continue
		}
		select {
		case r.waiting <- struct{}{}:
		default:
			return 0, errRelay
		}
		ctx, cancel := context.WithCancel(r.ctx)
		r.dropping.Lock()
		r.dropped[req.ID] = cancel
		r.dropping.Unlock()
		r.running.Go(func() {
			defer func() { <-r.waiting }()
			defer r.drop(req.ID)
			defer cancel() // two requests can have one id
			select {
			case r.fetching <- struct{}{}:
			case <-r.ctx.Done():
				return
			}
			defer func() { <-r.fetching }()
			r.answer(ctx, req.ID, req.Path)
		})
	}
	return n, nil
}

// drop ends the download of a request, if it is still under way.
func (r *Relay) drop(id uint32) {
	r.dropping.Lock()
	defer r.dropping.Unlock()
	if cancel := r.dropped[id]; cancel != nil {
		cancel()
		delete(r.dropped, id)
	}
}

// answer fetches a path and writes the answer. Frames of several answers mix on the pipe; the
// id tells them apart. A body that breaks off ends in a frame with a payload, because the head
// has already gone.
func (r *Relay) answer(ctx context.Context, id uint32, path string) {
	res := status(404)
	if r.fetch != nil {
		res = r.fetch(ctx, path)
	}
	defer res.body.Close()
	head, _ := json.Marshal(map[string]any{"status": res.status, "type": res.kind, "length": res.length}) // can't fail
	if r.frame(id, frameHead, head) != nil {
		return
	}
	buf := make([]byte, relayFrameSize)
	for {
		n, err := res.body.Read(buf)
		if n > 0 && r.frame(id, frameData, buf[:n]) != nil {
			return
		}
		if err == io.EOF {
			_ = r.frame(id, frameEnd, nil)
			return
		}
		if err != nil {
			_ = r.frame(id, frameEnd, []byte("incomplete"))
			return
		}
	}
}

// frame writes one frame. io.Pipe has no buffer: a build that doesn't read its input stops all
// answers, and with them the downloads, until close.
func (r *Relay) frame(id uint32, kind byte, payload []byte) error {
	head := binary.BigEndian.AppendUint32(nil, id)
	head = append(head, kind)
	head = binary.BigEndian.AppendUint32(head, uint32(len(payload)))
	r.writing.Lock()
	defer r.writing.Unlock()
	if _, err := r.out.Write(head); err != nil {
		return err
	}
	if len(payload) == 0 {
		return nil
	}
	_, err := r.out.Write(payload)
	return err
}

// Close ends the Relay after its build, and waits for its requests under way. in is the reader of NewRelay.
func (r *Relay) Close(in *io.PipeReader) {
	in.Close() // a writer that waits gives up
	r.running.Wait()
}
