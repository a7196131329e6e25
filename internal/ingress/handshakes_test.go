package ingress

import (
	"crypto/tls"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// A caller who only begins handshakes is refused after a while, and other callers are not.
func TestHandshakesOfOnePeerAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := make(callersListener)
		l := Listen(in, Limits{}, slog.New(slog.DiscardHandler))
		l.config = &tls.Config{}
		let := func(address string, n int) int {
			open := offer(t, in, l, host(address, 1), n)
			for _, c := range open {
				c.Close()
			}
			return len(open)
		}
		if got := let("192.0.2.1", handshakeBurst+10); got != handshakeBurst {
			t.Errorf("at once: got %d, want %d", got, handshakeBurst)
		}
		if got := let("192.0.2.2", 1); got != 1 {
			t.Error("another address was refused")
		}
		time.Sleep(time.Second)
		if got := let("192.0.2.1", 2*handshakesPerSecond); got != handshakesPerSecond {
			t.Errorf("a second later: got %d, want %d", got, handshakesPerSecond)
		}
	})
}
