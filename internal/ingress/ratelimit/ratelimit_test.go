package ratelimit

import (
	"strconv"
	"testing"
	"time"
)

// A peer has its burst at once and its rate afterwards. Has takes nothing, and peers share no tokens.
func TestPeers(t *testing.T) {
	p, now := New(10, 3), time.Unix(1, 0)
	take := func(n, want int) {
		t.Helper()
		got := 0
		for range n {
			if has := p.Has("a", now); has != p.Take("a", now) {
				t.Errorf("Has says %t", has)
			} else if has {
				got++
			}
		}
		if got != want {
			t.Errorf("got %d of %d, want %d", got, n, want)
		}
	}
	take(5, 3)
	if !p.Has("b", now) || !p.Take("b", now) {
		t.Error("another peer is refused")
	}
	now = now.Add(200 * time.Millisecond)
	take(5, 2)
	now = now.Add(time.Hour)
	take(5, 3)
}

// The memory for peers that have gone is given back. A peer without tokens stays.
func TestPeersForget(t *testing.T) {
	p, now := New(50, 256), time.Unix(1, 0)
	for n := range 10 * minSweep {
		now = now.Add(time.Second)
		if !p.Take(strconv.Itoa(n), now) {
			t.Fatalf("peer %d was refused", n)
		}
	}
	if len(p.buckets) > 2*minSweep {
		t.Errorf("%d buckets are left", len(p.buckets))
	}
	for range 256 {
		p.Take("busy", now)
	}
	p.sweepAt = 0
	p.Take("other", now)
	if p.Take("busy", now) {
		t.Error("the bucket of a busy peer was forgotten")
	}
}
