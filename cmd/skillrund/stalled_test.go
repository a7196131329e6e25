package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A stalledConn passes on the first bytes that its client writes. Then Write blocks until
// the connection is closed.
type stalledConn struct {
	net.Conn
	left    int64 // bytes that still pass
	stalled func()
	closed  chan struct{}
	close   func()
}

func newStalledConn(conn net.Conn, pass int64, stalled func()) *stalledConn {
	closed := make(chan struct{})
	return &stalledConn{
		Conn: conn, left: pass, stalled: stalled,
		closed: closed, close: sync.OnceFunc(func() { close(closed) }),
	}
}

func (c *stalledConn) Write(p []byte) (int, error) {
	if c.left -= int64(len(p)); c.left >= 0 {
		return c.Conn.Write(p)
	}
	c.stalled()
	<-c.closed
	return 0, net.ErrClosed
}

func (c *stalledConn) Close() error {
	c.close()
	return c.Conn.Close()
}

// sharedBytes is a codec whose messages are all the same bytes, so that the attacker
// itself needs no memory for them.
type sharedBytes struct{ data []byte }

func (c sharedBytes) Marshal(any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(c.data)}, nil
}
func (sharedBytes) Unmarshal(mem.BufferSlice, any) error { return nil }
func (sharedBytes) Name() string                         { return "proto" }

// stallMessages sends one message on each of so many streams of one connection. The
// connection stops after pass bytes, when all the messages are incomplete. stallMessages
// returns when the connection has stopped, or when the daemon has refused every message.
func stallMessages(t *testing.T, dial dialFunc, message []byte, streams int, pass int64) {
	t.Helper()
	stalled := make(chan struct{})
	stop := sync.OnceFunc(func() { close(stalled) })
	conn, err := grpc.NewClient("passthrough:///daemon", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			c, err := dial(ctx)
			if err != nil {
				return nil, err
			}
			stalling := newStalledConn(c, pass, stop)
			t.Cleanup(func() { stalling.Close() }) // before conn.Close, which waits for a Write under way
			return stalling, nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	var refused sync.WaitGroup
	for range streams {
		refused.Go(func() {
			s, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
				pb.ExecutionService_ExecuteInteractive_FullMethodName, grpc.ForceCodecV2(sharedBytes{message}))
			if err == nil {
				s.SendMsg(struct{}{})
				s.RecvMsg(new(struct{}))
			}
		})
	}
	over := make(chan struct{})
	go func() {
		refused.Wait()
		close(over)
	}()
	select {
	case <-stalled:
	case <-over:
	}
}

// A daemon with 128 MiB of memory survives 240 MiB of messages that never become complete.
// They come from several callers, then from one. It still answers other requests.
func TestFloodOfStalledMessages(t *testing.T) {
	t.Parallel()
	const (
		connections = 16
		streams     = 10       // of one connection
		pass        = 15 << 20 // bytes of one connection, so not even one message becomes complete
	)
	message := make([]byte, 16<<20-200)
	dir := newDir(t)
	writeHostileSkill(t, dir)
	// The first start unpacks the embedded Python, which would need as much memory again.
	startDaemonIn(t, dir, "").stop()
	d := withMemory(t, dir, "128M", "listen: {unix: s.sock, unix_mode: 0666}\n")
	t.Cleanup(d.stop)
	if err := os.Chmod(d.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	large := code("hostile", "import sys; print(len(sys.stdin.buffer.read()))")
	large.Stdin = &pb.ExecuteRequest_StdinBytes{StdinBytes: make([]byte, 1<<20)} // a caller's share is 2 MiB
	for _, callers := range []int{8, 1} {
		t.Run(fmt.Sprintf("callers=%d", callers), func(t *testing.T) {
			mine := *d
			mine.t = t
			var flood sync.WaitGroup
			for i := range connections {
				flood.Go(func() { stallMessages(t, asUser(dir+"/s.sock", nobody-i%callers), message, streams, pass) })
			}
			flood.Wait()
			if err := asUser(dir+"/s.sock", nobody).askGRPC(t); err != nil {
				t.Errorf("a small request of a caller whose messages stall: %v", err)
			}
			mine.works()
			mine.run(large).wantStdout(t, "1048576\n")
			t.Logf("the daemon has %d MiB of memory", mine.residentBytes()>>20)
		})
	}
	// The connections of the flood are closed. Once the daemon has seen that, there is room
	// for the largest message.
	large.Stdin = &pb.ExecuteRequest_StdinBytes{StdinBytes: make([]byte, 16<<20-200)}
	r, err := d.try(large)
	for status.Code(err) == codes.Unavailable {
		r, err = d.try(large)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.wantStdout(t, "16777016\n")
}
