package helper

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/network/policy"
	"github.com/skillrun/skillrun/internal/network/wire"
)

// runQueue returns a queue that runs until the end of the test, and the Manager's end of its socket.
func runQueue(t *testing.T) (*queue, *wire.Socket) {
	t.Helper()
	manager, end, err := wire.SocketPair()
	if err != nil {
		t.Fatal(err)
	}
	q := newQueue(wire.NewSocket(end))
	ended := make(chan struct{})
	go func() { defer close(ended); q.run() }()
	t.Cleanup(func() { // the next packet ends run
		manager.File.Close()
		q.push(wire.Report{Kind: wire.Reply})
		<-ended
		end.Close()
	})
	return q, manager
}

// A report that is too long for a packet is counted, and the reports after it are sent.
func TestQueueGoesOn(t *testing.T) {
	q, manager := runQueue(t)
	long := strings.Repeat("x", wire.MaxPacket)
	q.push(wire.Report{Kind: wire.Denied, Network: 1, Denial: &policy.Denial{Name: long}})
	q.push(wire.Report{Kind: wire.Closed, Network: 2, Connection: &policy.Connection{Name: long, To: netip.MustParseAddrPort("20.1.0.1:80"), Sent: 2, Received: 3}})
	q.push(wire.Report{Kind: wire.Reply, Number: 3, Error: long})
	q.push(wire.Report{Kind: wire.Reply, Number: 4})
	for _, want := range []wire.Report{
		{Kind: wire.Dropped, Network: 1, Dropped: &policy.Dropped{Denials: 1}},
		{Kind: wire.Dropped, Network: 2, Dropped: &policy.Dropped{Connections: 1, Sent: 2, Received: 3}},
		{Kind: wire.Reply, Number: 3, Error: wire.ErrLong.Error()}, {Kind: wire.Reply, Number: 4},
	} {
		var got wire.Report
		if _, err := manager.Receive(&got); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, %v, want %+v", got, err, want)
		}
	}
}

// An event is sent also if no reply follows.
func TestQueueSendsEvents(t *testing.T) {
	q, manager := runQueue(t)
	for network := range uint64(3) {
		q.push(wire.Report{Kind: wire.Closed, Network: network, Connection: &policy.Connection{To: netip.MustParseAddrPort("20.1.0.1:80")}})
		var got wire.Report
		if _, err := manager.Receive(&got); err != nil || got.Kind != wire.Closed || got.Network != network {
			t.Fatalf("got %+v, %v, want the event of network %d", got, err, network)
		}
	}
}
