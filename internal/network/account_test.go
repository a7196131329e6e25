package network

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/network/policy"
	"github.com/skillrun/skillrun/internal/network/wire"
)

// liarVar makes a helper an attacker. Its value names the attack, a key of liars.
const liarVar = "SKILLRUN_TEST_LIAR"

// lies are about the network with a number.
func lies(network uint64) []wire.Report {
	zone := netip.AddrPortFrom(netip.MustParseAddr("fe80::1").WithZone("\x1b[2J"), 80)
	return []wire.Report{
		{Kind: wire.Denied, Network: network, Denial: &policy.Denial{
			Time: time.Now().Add(1000 * time.Hour), Protocol: "\x1b[2Jtcp", To: zone, Name: strings.Repeat("\u202e", 5000), Reason: "a\nb\x00c",
			Rule: strings.Repeat("x", 50_000), Missing: "169.254.169.254:80\n - 10.0.0.0/8",
		}},
		{Kind: wire.Closed, Network: network, Connection: &policy.Connection{
			Start: time.Unix(0, 0), Took: math.MaxInt64, Protocol: "carrier pigeon", To: zone, Name: "a\tb", Sent: math.MaxInt64, Received: math.MaxInt64,
		}},
		{Kind: wire.Closed, Network: network, Connection: &policy.Connection{Start: time.Now().Add(time.Hour), Took: -5, Protocol: "udp", Sent: -9, Received: math.MinInt64}},
		{Kind: wire.Dropped, Network: network, Dropped: &policy.Dropped{Denials: math.MaxInt64, Connections: -7, Sent: -1}},
		{Kind: wire.Dropped, Network: network, Dropped: &policy.Dropped{Denials: math.MaxInt64, Connections: math.MaxInt64, Sent: math.MaxInt64, Received: math.MaxInt64}},
	}
}

// lie is a helper in the hands of an attacker: it answers each request, and lies about every network.
func lie(how string) int {
	s := wire.NewSocket(os.NewFile(wire.ManagerFD, "manager"))
	for {
		var r wire.Request
		device, err := s.Receive(&r)
		if err != nil {
			return 0
		}
		if device != nil {
			device.Close()
		}
		if r.Kind == wire.Attach {
			liars[how](s, r.Network)
		}
		_ = s.Send(wire.Report{Kind: wire.Reply, Number: r.Number}, -1)
	}
}

var liars = map[string]func(s *wire.Socket, network uint64){
	"lies": func(s *wire.Socket, network uint64) {
		// About networks of other helpers, made-up networks, and the helper's network.
		for _, number := range []uint64{0, network - 1, network + 1, math.MaxUint64, network} {
			for _, r := range lies(number) {
				_ = s.Send(r, -1)
			}
		}
	},
	"flood": func(s *wire.Socket, network uint64) {
		long := wire.Report{Kind: wire.Denied, Network: network, Denial: &policy.Denial{Reason: strings.Repeat("x", 150_000)}}
		go func() {
			for s.Send(long, -1) == nil {
			}
		}()
	},
	"error": func(s *wire.Socket, _ uint64) { refuse(s, "\x1b[2J"+strings.Repeat("x", 100_000)) },
	"stderr": func(*wire.Socket, uint64) {
		for b := make([]byte, 1<<16); ; {
			if _, err := os.Stderr.Write(b); err != nil {
				os.Exit(4)
			}
		}
	},
	"kind":       func(s *wire.Socket, network uint64) { _ = s.Send(wire.Report{Kind: "own", Network: network}, -1) },
	"nothing":    func(s *wire.Socket, network uint64) { _ = s.Send(wire.Report{Kind: wire.Denied, Network: network}, -1) },
	"no JSON":    func(s *wire.Socket, _ uint64) { _, _ = s.File.Write([]byte("{")) },
	"long":       func(s *wire.Socket, _ uint64) { _, _ = s.File.Write(make([]byte, wire.MaxPacket/2)) },
	"descriptor": func(s *wire.Socket, _ uint64) { _ = s.Send(wire.Report{Kind: wire.Reply}, 0) },
	"empty":      func(s *wire.Socket, _ uint64) { _ = unix.Sendmsg(wire.ManagerFD, nil, nil, nil, 0) },
	"silence":    func(s *wire.Socket, _ uint64) { _ = unix.Shutdown(wire.ManagerFD, unix.SHUT_WR) },
	"dies":       func(*wire.Socket, uint64) { os.Exit(3) },
}

// refuse answers the third request, after start and the ping or attach before it.
func refuse(s *wire.Socket, why string) {
	for number := range uint64(10) {
		_ = s.Send(wire.Report{Kind: wire.Reply, Number: number, Error: why}, -1)
	}
}

// lying has all helpers lie until the test ends.
func lying(t *testing.T, how string) {
	t.Helper()
	honest := environment
	t.Cleanup(func() { environment = honest })
	environment = append([]string{liarVar + "=" + how}, honest...)
}

// The daemon corrects impossible numbers in a helper's reports, and drops reports about other networks.
func TestHelperLies(t *testing.T) {
	lying(t, "lies")
	m := newManager(t)
	begin := time.Now()
	other := newBox(t, m, "b")
	other.network.Detach()
	b := newBox(t, m, "a")
	b.network.Detach()
	if len(b.denials) != 1 || len(b.closed) != 2 || len(other.denials) != 1 {
		t.Fatalf("events: %+v %+v, %+v", b.denials, b.closed, other.denials)
	}
	d, now := b.denials[0], time.Now()
	if d.Time.Before(begin) || d.Time.After(now) || d.Protocol != "ip" || d.To.String() != "[fe80::1]:80" || len(d.Rule) != mostText ||
		d.Reason != "a\ufffdb\ufffdc" || strings.Trim(d.Name, "\ufffd") != "" || len(d.Name) > mostText || d.Missing != "" {
		t.Errorf("refusal: %+q", d)
	}
	most := int64(now.Sub(begin)/time.Second+1) * mostBytes
	for _, c := range b.closed {
		if c.Start.Before(begin) || c.Start.After(now) || c.Took < 0 || c.Took > now.Sub(begin) || c.Sent < 0 || c.Received < 0 || c.Sent > most || c.Received > most || c.Sent+c.Received > most {
			t.Errorf("connection: %+v", c)
		}
	}
	if c := b.closed[0]; c.Protocol != "ip" || c.Name != "a\ufffdb" || b.closed[1].Protocol != "udp" || b.closed[1].Sent != 0 {
		t.Errorf("connections: %+v", b.closed)
	}
	if d := b.dropped; d.Denials+d.Connections <= 0 || d.Denials+d.Connections > int64(now.Sub(begin)/time.Second+1)*mostEvents ||
		d.Sent < 0 || d.Received < 0 || d.Sent+d.Received > most {
		t.Errorf("dropped: %+v", d)
	}
	for _, tenant := range []string{"a", "b"} {
		if c := m.Stats().Tenants[tenant]; c.Connections < 2 || c.Sent < 0 || c.Sent > most || c.Repeated < 0 || len(c.Denied) != len(policy.Kinds) {
			t.Errorf("counted of %s: %+v", tenant, c)
		}
	}
}

// A helper that sends what no helper sends is killed, and the log names the reason.
func TestHelperTalksNonsense(t *testing.T) {
	for how, want := range map[string]string{
		"kind": `kind "own"`, "nothing": `kind "denied"`, "no JSON": "JSON", "long": "invalid character", "descriptor": "descriptor", "empty": "", "silence": "", "dies": "exit status 3", "stderr": "exit status",
	} {
		t.Run(how, func(t *testing.T) {
			lying(t, how)
			m := newManager(t)
			p := m.process(t, "a")
			b := attachBox(t, m, "a")
			b.network.manager.watcher.remove(b.network)
			go b.network.begin()
			select {
			case <-p.dead:
			case <-time.After(30 * time.Second):
				t.Fatal("it lives")
			}
			b.network.Detach() // the next helper does the same
			if words := fmt.Sprint(p.lastWords()); !strings.Contains(words, want) {
				t.Errorf("reason: %s", words)
			}
		})
	}
	lying(t, "error")
	m := newManager(t)
	b := attachBox(t, m, "a")
	err := b.network.tenant.carry(m.process(t, "a"), b.network)
	if err == nil || errors.Is(err, errDied) || len(err.Error()) > 2*mostText || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("got %.100v", err)
	}
	b.network.Detach()
}

// A flood of reports of one tenant's helper takes neither the daemon's memory nor another tenant's network.
func TestHelperFloods(t *testing.T) {
	serveEcho(t)
	lying(t, "flood")
	m := newManager(t)
	flood := newBox(t, m, "a")
	environment = environment[1:]
	b := newBox(t, m, "b")
	for range 20 {
		b.echo(t).Close()
	}
	flood.network.Detach()
	b.network.Detach()
	if len(b.closed) != 20 || len(b.denials) != 0 {
		t.Errorf("events: %d, %d", len(b.closed), len(b.denials))
	}
	for _, d := range flood.denials {
		if len(d.Reason) != mostText {
			t.Fatalf("a reason of %d bytes", len(d.Reason))
		}
	}
}
