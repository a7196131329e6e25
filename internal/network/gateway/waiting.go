package gateway

import (
	"fmt"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
)

// waiting has the stack of the next network. Nothing in a new stack depends on its sandbox, so it is made before the
// sandbox is known. takeStack returns each stack once: no sandbox gets the stack of another one.
var waiting struct {
	mu    sync.Mutex
	stack *stack.Stack // nil: none waits
	soon  bool         // one will be made
}

// makePause keeps the making of the next stack away from the start of the program.
const makePause = 5 * time.Millisecond

// takeStack returns the stack that waits, or a new one, and has the next one made.
func takeStack() (*stack.Stack, error) {
	waiting.mu.Lock()
	s := waiting.stack
	waiting.stack = nil
	if !waiting.soon {
		waiting.soon = true
		time.AfterFunc(makePause, makeWaiting)
	}
	waiting.mu.Unlock()
	if s != nil {
		return s, nil
	}
	return newStack()
}

func makeWaiting() {
	s, err := newStack()
	waiting.mu.Lock()
	defer waiting.mu.Unlock()
	if waiting.soon = false; err == nil { // else takeStack will have the same error
		waiting.stack = s
	}
}

// newStack makes a stack without an interface.
func newStack() (*stack.Stack, error) {
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol},
	})
	if err := setOptions(s); err != nil {
		s.Destroy()
		return nil, fmt.Errorf("network stack: %v", err)
	}
	s.SetRouteTable([]tcpip.Route{
		{Destination: header.IPv4EmptySubnet, NIC: nic},
		{Destination: header.IPv6EmptySubnet, NIC: nic},
	})
	return s, nil
}
