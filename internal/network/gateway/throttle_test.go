package gateway

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/skillrun/skillrun/internal/network/networktest"
)

// Refusals beyond the burst are held back to the rate, and the end of the Gateway ends the wait.
func TestThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newThrottle()
		start := time.Now()
		for range wasteBurst {
			b.charge(1)
			b.hold(t.Context())
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("the burst took %v", took)
		}
		for range 10 * wasteRate {
			b.charge(1)
			b.hold(t.Context())
		}
		if took := time.Since(start).Round(time.Second); took != 10*time.Second {
			t.Errorf("%d refusals took %v", 10*wasteRate, took)
		}
		life, end := context.WithCancel(t.Context())
		end()
		start = time.Now()
		b.charge(wasteBurst)
		b.hold(life)
		if took := time.Since(start); took != 0 {
			t.Errorf("after the end it took %v", took)
		}
	})
}

// Each kind of refusal, and each question to the name server, counts. A Gateway that holds can be closed.
func TestRefusalsAreThrottled(t *testing.T) {
	newZone(t)
	b := newBox(t, nil, nil)
	limiter := b.gateway.throttle.limiter
	limiter.SetLimit(rate.Every(time.Hour))
	left := limiter.Tokens()
	counts := func(what string, f func()) {
		t.Helper()
		f()
		now := limiter.Tokens()
		if now > left-0.9 { // a little comes back
			t.Errorf("%s does not count", what)
		}
		left = now
	}
	counts("TCP", func() { _, _ = b.Dial("tcp", networktest.Private+":80") })
	counts("UDP", func() { _ = b.send(t, networktest.Private+":80") })
	counts("a packet", func() { b.gateway.link.deliver(ipv4Packet("192.0.0.2", unix.IPPROTO_IPIP, nil)) })
	counts("a quiet packet", func() { b.gateway.link.deliver([]byte{0}) })
	for _, network := range []string{"udp", "tcp"} {
		counts("a question", func() { b.ask(t, network, "www.test", dns.TypeA) })
	}
	b.gateway.throttle.charge(int(limiter.Tokens()) + 2)
	_ = b.write("udp", networktest.Public+":80") // the reader holds before or after this packet
	b.gateway.Close()
}

// write sends a packet from inside.
func (b *box) write(network, to string) error {
	c, err := b.Dial(network, to)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Write([]byte("x"))
	return err
}
