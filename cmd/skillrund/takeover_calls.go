package main

import (
	"fmt"
	"net"
	"net/rpc"
	"net/rpc/jsonrpc"
	"sync"
	"time"
)

// The daemons of a takeover call each other with the client of net/rpc, and serve with serveCalls: rpc.Server finds
// methods by reflection, and in a program with such a lookup the linker keeps every exported method of every type. For
// skillrund that was a sixth of the binary, which each daemon has in memory.

// peerPatience bounds the wait for the answer to a call of the other daemon. A daemon that does not answer in this time
// has been stopped or is out of memory, and must not block its peer.
const peerPatience = 5 * time.Second

// newCalls returns the client for calls over a connection.
func newCalls(c net.Conn) *rpc.Client { return jsonrpc.NewClient(c) }

// callPeer calls a method of the other daemon, and waits for the answer for at most peerPatience. The call runs in a
// goroutine, because it blocks while the socket is full. The goroutine ends with the answer or the connection, and
// never in the middle of a message: the peer could not read the next message after a part of one.
func callPeer(calls *rpc.Client, method string, args, reply any) error {
	answered := make(chan error, 1)
	go func() { answered <- calls.Call(method, args, reply) }()
	select {
	case err := <-answered:
		return err
	case <-time.After(peerPatience):
		return fmt.Errorf("the other daemon does not answer %s", method)
	}
}

// A peerMethod answers the calls of one method.
type peerMethod struct {
	args func() any // a pointer to new arguments
	call func(args any) (reply any, err error)
}

// methodOf returns f as a method.
func methodOf[A, R any](f func(A) (R, error)) peerMethod {
	return peerMethod{
		args: func() any { return new(A) },
		call: func(args any) (any, error) { return f(*args.(*A)) },
	}
}

// withoutReply returns f as a method whose reply is empty.
func withoutReply[A any](f func(A)) peerMethod {
	return methodOf(func(args A) (nothing, error) { f(args); return nothing{}, nil })
}

// nothing stands for arguments or a reply without content.
type nothing struct{}

// serveCalls answers calls, each in a goroutine, until the connection ends. It returns when they have been answered.
func serveCalls(c net.Conn, methods map[string]peerMethod) {
	codec := jsonrpc.NewServerCodec(c)
	defer codec.Close()
	var answers sync.WaitGroup
	defer answers.Wait()
	var writing sync.Mutex
	answer := func(r rpc.Request, reply any, err error) {
		to := rpc.Response{ServiceMethod: r.ServiceMethod, Seq: r.Seq}
		if err != nil {
			to.Error = err.Error()
		}
		writing.Lock()
		defer writing.Unlock()
		_ = codec.WriteResponse(&to, reply) // it fails if the connection has ended; then nobody waits for the answer
	}
	for {
		var r rpc.Request
		if codec.ReadRequestHeader(&r) != nil {
			return
		}
		m, ok := methods[r.ServiceMethod]
		if !ok {
			answer(r, nil, fmt.Errorf("this daemon does not know the call %s", r.ServiceMethod))
			continue
		}
		args := m.args()
		if err := codec.ReadRequestBody(args); err != nil {
			answer(r, nil, err)
			continue
		}
		answers.Go(func() {
			reply, err := m.call(args)
			answer(r, reply, err)
		})
	}
}
