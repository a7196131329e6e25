package network

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/network/policy"
)

// runQueue returns a queue that runs until the end of the test, and the Manager's end of its socket.
func runQueue(t *testing.T) (*queue, *socket) {
	t.Helper()
	manager, end, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	q := newQueue(newSocket(end))
	ended := make(chan struct{})
	go func() { defer close(ended); q.run() }()
	t.Cleanup(func() { // the next packet ends run
		manager.file.Close()
		q.push(report{Kind: reply})
		<-ended
		end.Close()
	})
	return q, manager
}

// A report that is too long for a packet is counted, and the reports after it are sent.
func TestQueueGoesOn(t *testing.T) {
	q, manager := runQueue(t)
	long := strings.Repeat("x", maxPacket)
	q.push(report{Kind: denied, Network: 1, Denial: &policy.Denial{Name: long}})
	q.push(report{Kind: closed, Network: 2, Connection: &policy.Connection{Name: long, To: netip.MustParseAddrPort("20.1.0.1:80")}})
	q.push(report{Kind: reply, Number: 3, Error: long})
	q.push(report{Kind: reply, Number: 4})
	for _, want := range []report{
		{Kind: dropped, Network: 1, Denials: 1}, {Kind: dropped, Network: 2, Connections: 1},
		{Kind: reply, Number: 3, Error: errLong.Error()}, {Kind: reply, Number: 4},
	} {
		var got report
		if _, err := manager.receive(&got); err != nil || got != want {
			t.Fatalf("got %+v, %v, want %+v", got, err, want)
		}
	}
}

// An event is sent also if no reply follows.
func TestQueueSendsEvents(t *testing.T) {
	q, manager := runQueue(t)
	for network := range uint64(3) {
		q.push(report{Kind: closed, Network: network, Connection: &policy.Connection{To: netip.MustParseAddrPort("20.1.0.1:80")}})
		var got report
		if _, err := manager.receive(&got); err != nil || got.Kind != closed || got.Network != network {
			t.Fatalf("got %+v, %v, want the event of network %d", got, err, network)
		}
	}
}
