package policy

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func addrPort(t testing.TB, text string) netip.AddrPort {
	t.Helper()
	to, err := netip.ParseAddrPort(text)
	if err != nil {
		t.Fatal(err)
	}
	return to
}

func TestDial(t *testing.T) {
	for _, tt := range []struct {
		allow, deny []string
		protocol    Protocol
		to          string
		names       []string
		rule        string // that decides
		missing     string // if not allowed
		allowed     bool
	}{
		{nil, nil, TCP, "93.184.216.34:443", nil, "public", "", true},
		{nil, nil, TCP, "93.184.216.34:80", nil, "public", "", true},
		{nil, nil, TCP, "[2606:2800:220::1]:443", nil, "public", "", true},
		{nil, nil, TCP, "93.184.216.34:22", nil, "", "93.184.216.34:22", false},
		{nil, nil, TCP, "93.184.216.34:22", []string{"example.com"}, "", "example.com:22", false},
		{nil, nil, UDP, "93.184.216.34:443", nil, "", "93.184.216.34:443/udp", false},
		// QUIC needs a resolved name, or a rule with the address.
		{[]string{"public:443/udp"}, nil, UDP, "93.184.216.34:443", nil, "", "93.184.216.34:443/udp", false},
		{[]string{"public:443/udp"}, nil, UDP, "93.184.216.34:443", []string{"example.com"}, "public:443/udp", "", true},
		{[]string{"public:443-444/udp"}, nil, UDP, "93.184.216.34:444", nil, "public:443-444/udp", "", true},
		{[]string{"public:443/udp", "93.184.0.0/16:443/udp"}, nil, UDP, "93.184.216.34:443", nil, "93.184.0.0/16:443/udp", "", true},
		{[]string{}, nil, TCP, "93.184.216.34:443", nil, "", "93.184.216.34:443", false},
		{nil, nil, "sctp", "93.184.216.34:443", nil, "", "", false},
		{nil, nil, TCP, "93.184.216.34:0", nil, "", "", false},
		{nil, nil, TCP, "[64:ff9b::93.184.216.34]:443", nil, "public", "", true}, // of a machine that has only IPv6
		{nil, nil, TCP, "[2002:5db8:d822::1]:443", nil, "reserved", "[2002:5db8:d822::1]:443", false},

		{[]string{"example.com"}, nil, TCP, "93.184.216.34:443", []string{"example.com"}, "example.com", "", true},
		{[]string{"example.com"}, nil, TCP, "93.184.216.34:443", []string{"EXAMPLE.com."}, "example.com", "", true},
		{[]string{"example.com"}, nil, TCP, "93.184.216.34:443", nil, "", "93.184.216.34:443", false},
		{[]string{"example.com"}, nil, TCP, "93.184.216.34:443", []string{"www.example.com"}, "", "www.example.com:443", false},
		{[]string{"example.com"}, nil, TCP, "93.184.216.34:22", []string{"example.com", "git.example.com"}, "", "git.example.com:22", false}, // the newest name
		{[]string{"example.com"}, nil, TCP, "10.0.0.1:443", []string{"example.com"}, "private", "10.0.0.1:443", false},
		{[]string{"*.example.com"}, nil, TCP, "93.184.216.34:443", []string{"a.b.example.com"}, "*.example.com", "", true},
		{[]string{"*.example.com"}, nil, TCP, "93.184.216.34:443", []string{"example.com"}, "", "example.com:443", false},
		{[]string{"*.example.com"}, nil, TCP, "93.184.216.34:443", []string{"notexample.com"}, "", "notexample.com:443", false},
		{[]string{"example.com:8000-8100"}, nil, TCP, "93.184.216.34:8100", []string{"example.com"}, "example.com:8000-8100", "", true},
		{[]string{"example.com:8000-8100"}, nil, TCP, "93.184.216.34:8101", []string{"example.com"}, "", "example.com:8101", false},

		// A CIDR opens the block that it lies in, not one that it only contains.
		{[]string{"10.0.0.0/8:*"}, nil, TCP, "10.1.2.3:5432", nil, "10.0.0.0/8:*", "", true},
		{[]string{"10.1.0.0/16:5432"}, nil, TCP, "10.1.2.3:5432", nil, "10.1.0.0/16:5432", "", true},
		{[]string{"0.0.0.0/0:*"}, nil, TCP, "93.184.216.34:5432", nil, "0.0.0.0/0:*", "", true},
		{[]string{"0.0.0.0/0:*"}, nil, TCP, "10.1.2.3:5432", nil, "private", "10.1.2.3:5432", false},
		{[]string{"[::/0]:*"}, nil, TCP, "[fd00::1]:80", nil, "private", "[fd00::1]:80", false},
		{[]string{"[fd00::/8]:*"}, nil, TCP, "[fd00::1]:80", nil, "[fd00::/8]:*", "", true},
		{[]string{"169.254.0.0/16"}, nil, TCP, "169.254.1.1:80", nil, "169.254.0.0/16", "", true},
		{[]string{"169.254.0.0/16"}, nil, TCP, "169.254.169.254:80", nil, "link-local", "169.254.169.254:80", false},
		{[]string{"169.254.169.254/32"}, nil, TCP, "169.254.169.254:80", nil, "link-local", "169.254.169.254:80", false},
		{[]string{"169.254.169.254"}, nil, TCP, "169.254.169.254:80", nil, "169.254.169.254", "", true},
		{[]string{"168.63.129.0/24"}, nil, TCP, "168.63.129.16:80", nil, "metadata", "168.63.129.16:80", false},
		{[]string{"127.0.0.1:8080"}, nil, TCP, "127.0.0.1:8080", nil, "127.0.0.1:8080", "", true},

		// Name servers need a rule with their address.
		{[]string{"public:*", "public:*/udp"}, nil, UDP, "8.8.8.8:53", nil, "resolver", "8.8.8.8:53/udp", false},
		{[]string{"public:*", "dns.google:*"}, nil, TCP, "8.8.8.8:853", []string{"dns.google"}, "resolver", "8.8.8.8:853", false},
		{[]string{"8.8.8.0/24:53/udp"}, nil, UDP, "8.8.8.8:53", nil, "8.8.8.0/24:53/udp", "", true},

		// Deny wins, for all ports unless it says which.
		{nil, []string{"93.184.0.0/16"}, TCP, "93.184.216.34:443", nil, "93.184.0.0/16", "", false},
		{nil, []string{"93.184.0.0/16:80"}, TCP, "93.184.216.34:443", nil, "public", "", true},
		{nil, []string{"93.184.0.0/16:443/udp"}, TCP, "93.184.216.34:443", nil, "public", "", true},
		{nil, []string{"example.com"}, TCP, "93.184.216.34:443", []string{"good.example", "example.com"}, "example.com", "", false},
		{nil, []string{"*.example.com"}, TCP, "93.184.216.34:443", []string{"example.com"}, "public", "", true},
		{[]string{"93.184.216.34", "10.0.0.1"}, []string{"public"}, TCP, "93.184.216.34:443", nil, "public", "", false},
		{[]string{"93.184.216.34", "10.0.0.1"}, []string{"public"}, TCP, "10.0.0.1:443", nil, "10.0.0.1", "", true},
		{[]string{"[64:ff9b::/96]"}, []string{"93.184.0.0/16"}, TCP, "[64:ff9b::93.184.216.34]:443", nil, "93.184.0.0/16", "", false},
		{nil, []string{"93.184.216.34"}, TCP, "[::ffff:93.184.216.34]:443", nil, "93.184.216.34", "", false},
	} {
		got := rules(t, tt.allow, tt.deny...).Dial(tt.protocol, addrPort(t, tt.to), tt.names)
		if got.Allowed != tt.allowed || got.Rule != tt.rule || got.Missing != tt.missing || got.Allowed != (got.Reason == "") {
			t.Errorf("allow %q, deny %q: %s %s %q: got %+v", tt.allow, tt.deny, tt.protocol, tt.to, tt.names, got)
		}
	}
}

// A deny rule for some ports of a name lets the name be resolved, and is about each address that it had.
func TestDenies(t *testing.T) {
	r := rules(t, []string{"public:*"}, "*.example.com:22", "10.0.0.0/8")
	for _, tt := range []struct {
		port   string
		names  []string
		denied bool
	}{
		{"93.184.216.34:22", nil, false},
		{"93.184.216.34:22", []string{"other.example", "A.example.com."}, true},
		{"93.184.216.34:23", []string{"a.example.com"}, false},
		{"10.0.0.1:23", nil, true},
	} {
		if v, denied := r.Denies(TCP, addrPort(t, tt.port), tt.names); denied != tt.denied || v.Allowed || denied != (v.Reason != "") {
			t.Errorf("%s %q: got %v, %+v", tt.port, tt.names, denied, v)
		}
	}
	if !r.DeniesSome("A.example.com.") || r.DeniesSome("example.com") || r.DeniesSome("-") || !r.Name("a.example.com").Allowed {
		t.Error("another set of names is denied")
	}
	var none *Rules
	if _, denied := none.Denies(TCP, addrPort(t, "10.0.0.1:23"), nil); denied || none.DeniesSome("a.example.com") {
		t.Error("nil Rules have a deny rule")
	}
}

// No rule but one with the address opens a special address, in any form; and Verdict.Missing is a rule
// that does.
func TestSpecialAddressesNeedTheirOwnRule(t *testing.T) {
	wide := []string{"public:*", "public:*/udp", "example.com:*", "*.com:*", "0.0.0.0/0:*", "[::/0]:*", "[::/2]:*", "[2000::/3]:*", "[64:ff9b::/96]:*", "[2002::/16]:*", "[2001::/32]:*", "[64:ff9b:1::/48]:*", "[::/96]:*", "8.0.0.0/5:*"}
	r := rules(t, wide)
	for addr, name := range map[string]string{
		"0.0.0.0": "unspecified", "0.1.2.3": "unspecified", "::": "unspecified", "::ffff:0.0.0.0": "unspecified",
		"127.0.0.1": "loopback", "127.255.255.254": "loopback", "::1": "loopback", "::ffff:127.0.0.1": "loopback", "::7f00:1": "loopback",
		"10.0.0.1": "private", "172.31.255.255": "private", "192.168.0.1": "private", "::ffff:10.0.0.1": "private", "fd12::1": "private",
		"100.64.0.1": "shared", "100.100.100.200": "shared", "100.127.255.255": "shared",
		"169.254.1.1": "link-local", "169.254.169.254": "link-local", "::ffff:169.254.169.254": "link-local", "fe80::1": "link-local", "fe80::1%eth0": "link-local",
		"64:ff9b::a9fe:a9fe": "link-local", "64:ff9b::7f00:1": "loopback", "64:ff9b::10.1.1.1": "private",
		"64:ff9b:1::10.1.1.1": "reserved", "64:ff9b:1::93.184.216.34": "reserved", "64:ff9b:1:a9fe:a9:fe00::": "reserved",
		"2002:a9fe:a9fe::1": "link-local", "2002:7f00:1::": "loopback",
		"2606:2800::5efe:a9fe:a9fe": "link-local", "2606:2800::200:5efe:10.1.1.1": "private",
		"2001:0:a00:1::": "private", "2001:0:5db8:d822:0:0:5601:5601": "link-local", "2001:0:5db8:d822:0:0:80ff:fffe": "loopback",
		"fd00:ec2::254": "private", "168.63.129.16": "metadata", "192.0.0.192": "reserved", "192.0.0.1": "reserved",
		"192.0.2.1": "documentation", "198.51.100.1": "documentation", "203.0.113.1": "documentation", "2001:db8::1": "documentation", "3fff::1": "documentation",
		"198.19.0.1": "benchmarking", "224.0.0.251": "multicast", "239.1.1.1": "multicast", "ff02::1": "multicast", "240.0.0.1": "reserved", "255.255.255.255": "broadcast",
		"100::1": "reserved", "2001:2::1": "reserved", "fec0::1": "reserved", "4000::1": "reserved", "1000::1": "reserved", "a000::1": "reserved", "::5": "unspecified",
	} {
		to := netip.AddrPortFrom(netip.MustParseAddr(addr), 443)
		got := r.Dial(TCP, to, []string{"example.com"})
		if got.Allowed || got.Rule != name || !strings.Contains(got.Reason, name) {
			t.Errorf("%s: got %+v, want %s", addr, got, name)
			continue
		}
		if answer := r.Answer("example.com", to.Addr()); answer.Allowed || answer.Rule != name {
			t.Errorf("%s as an answer: got %+v", addr, answer)
		}
		if never := slices.Contains([]string{"unspecified", "multicast", "broadcast"}, name); never != (got.Missing == "") {
			t.Errorf("%s: got %+v", addr, got)
		}
		if got.Missing == "" {
			continue
		}
		if open := rules(t, []string{got.Missing}).Dial(TCP, to, nil); !open.Allowed {
			t.Errorf("%s: the rule %s does not help: %+v", addr, got.Missing, open)
		}
	}
}

// The addresses of the machine are refused, also where a CIDR opens their block.
func TestOwnAddresses(t *testing.T) {
	own := []netip.Addr{netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("::ffff:93.184.216.34"), netip.MustParseAddr("2606:2800::1")}
	r := rules(t, []string{"public", "10.0.0.0/8", "93.184.216.34/32"}).WithOwn(addressesOf(own))
	exact := rules(t, []string{"10.0.0.5", "93.184.216.34", "[2606:2800::1]"}).WithOwn(addressesOf(own))
	for _, to := range []string{"10.0.0.5:443", "93.184.216.34:80", "[64:ff9b::5db8:d822]:443", "[2606:2800::1]:443"} {
		got := r.Dial(TCP, addrPort(t, to), []string{"example.com"})
		if got.Allowed || got.Rule != "own" {
			t.Errorf("%s: got %+v", to, got)
		}
		if open := exact.Dial(TCP, addrPort(t, to), nil); !open.Allowed && !strings.Contains(to, "64:ff9b") {
			t.Errorf("%s: got %+v", to, open)
		}
	}
	if got := r.Dial(TCP, addrPort(t, "10.0.0.6:443"), nil); !got.Allowed {
		t.Errorf("a neighbour: got %+v", got)
	}
	if got := r.Tighten(rules(t, nil)).Dial(TCP, addrPort(t, "[2606:2800::1]:443"), nil); got.Allowed {
		t.Error("Tighten forgets the machine's addresses")
	}
}

func TestName(t *testing.T) {
	for _, tt := range []struct {
		allow, deny []string
		name        string
		missing     string
		allowed     bool
	}{
		{nil, nil, "example.com", "", true},
		{nil, nil, "Example.Com.", "", true},
		{nil, []string{"example.com"}, "example.com", "", false},
		{nil, []string{"example.com:80"}, "example.com", "", true}, // for the other ports
		{nil, []string{"example.com/tcp"}, "example.com", "", true},
		{nil, []string{"*.example.com"}, "a.example.com", "", false},
		{[]string{"example.com"}, nil, "example.com", "", true},
		{[]string{"example.com"}, nil, "www.example.com", "www.example.com", false},
		{[]string{"bücher.example"}, nil, "xn--bcher-kva.EXAMPLE", "", true},
		{[]string{"10.0.0.0/8"}, nil, "db.internal", "db.internal", false},
		{[]string{}, nil, "example.com", "example.com", false},
		{nil, nil, "", "", false},
		{nil, nil, ".", "", false},
		{nil, nil, "a..b", "", false},
		{nil, nil, "bücher.example", "", false},
		{nil, nil, "a b.example", "", false},
		{nil, nil, "2130706433", "", false},
		{nil, nil, "0x7f000001", "", false},
		{nil, nil, "127.0.0.1", "", false},
		{nil, nil, "0177.0.0.01", "", false},
		{nil, nil, "a.0x1f", "", false},
		{nil, nil, "0xample", "", true},
		{nil, nil, strings.Repeat("a", 64) + ".example", "", false},
		{nil, nil, strings.Repeat("abcdefg.", 40), "", false},
	} {
		got := rules(t, tt.allow, tt.deny...).Name(tt.name)
		if got.Allowed != tt.allowed || got.Missing != tt.missing || got.Allowed != (got.Reason == "") {
			t.Errorf("allow %q, deny %q: %q: got %+v", tt.allow, tt.deny, tt.name, got)
		}
	}
}

func TestAnswer(t *testing.T) {
	for _, tt := range []struct {
		allow, deny []string
		name, addr  string
		allowed     bool
	}{
		{nil, nil, "example.com", "93.184.216.34", true},
		{nil, nil, "example.com", "10.0.0.1", false}, // rebinding
		{[]string{"db.internal", "10.0.0.0/8:5432"}, nil, "db.internal", "10.0.0.1", true},
		{[]string{"db.internal", "10.0.0.0/8:5432"}, nil, "db.internal", "192.168.0.1", false},
		{[]string{"db.internal"}, nil, "other.internal", "93.184.216.34", false},
		{nil, []string{"93.184.0.0/16"}, "example.com", "93.184.216.34", false},
		{nil, []string{"93.184.0.0/16:80"}, "example.com", "93.184.216.34", true},
		{nil, nil, "127.0.0.1", "93.184.216.34", false},
	} {
		got := rules(t, tt.allow, tt.deny...).Answer(tt.name, netip.MustParseAddr(tt.addr))
		if got.Allowed != tt.allowed {
			t.Errorf("allow %q, deny %q: %s is %s: got %+v", tt.allow, tt.deny, tt.name, tt.addr, got)
		}
	}
	// The rule that would help is for the usual ports: a lookup has none.
	if got := rules(t, nil).Answer("example.com", netip.MustParseAddr("fd00::1")); got.Missing != "[fd00::1]" {
		t.Errorf("a private address: got %+v", got)
	}
	if got := rules(t, nil).Answer("example.com", netip.Addr{}); got.Allowed || got.Reason == "" {
		t.Errorf("no address: got %+v", got)
	}
}

func TestNilRulesAllowNothing(t *testing.T) {
	var none *Rules
	for _, got := range []Verdict{none.Name("example.com"), none.Answer("example.com", netip.MustParseAddr("1.1.1.1")), none.Dial(TCP, addrPort(t, "1.1.1.1:443"), nil)} {
		if got.Allowed || got.Reason != "the execution has no network" || got.Missing != "" {
			t.Errorf("got %+v", got)
		}
	}
	if none.Tighten(rules(t, nil)) != nil || rules(t, nil).Tighten(none) != nil || none.WithOwn(nil) != nil {
		t.Error("nil Rules became others")
	}
	if got, err := none.Denying([]string{"10.0.0.0/8"}); got != nil || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
}

// A refusal counts as one of a closed set of kinds.
func TestDenialKind(t *testing.T) {
	for _, tt := range []struct {
		d    Denial
		want string
	}{
		{Denial{Rule: "link-local", Missing: "169.254.169.254:80"}, "link-local"},
		{Denial{Rule: "metadata"}, "metadata"},
		{Denial{Rule: "own"}, KindOwn},
		{Denial{Rule: "resolver"}, KindResolver},
		{Denial{Rule: "*.example.com"}, KindDeny},
		{Denial{Missing: "example.com"}, KindUnlisted},
		{Denial{Reason: "too many connections"}, KindOther},
	} {
		if got := tt.d.Kind(); got != tt.want || !slices.Contains(Kinds, got) {
			t.Errorf("%+v: got %s, want %s", tt.d, got, tt.want)
		}
	}
}

func TestDenialString(t *testing.T) {
	for _, tt := range []struct {
		d    Denial
		want string
	}{
		{Denial{Protocol: "tcp", To: addrPort(t, "169.254.169.254:80"), Rule: "link-local"}, "denied: tcp 169.254.169.254:80, link-local"},
		{Denial{Protocol: "tcp", To: addrPort(t, "1.1.1.1:22"), Name: "one.example", Reason: "no rule allows it"}, "denied: tcp 1.1.1.1:22 (one.example), no rule allows it"},
		{Denial{Protocol: "dns", Name: "a.example", Reason: "no rule allows it"}, "denied: dns a.example, no rule allows it"},
		{Denial{Protocol: "icmp", To: netip.AddrPortFrom(netip.MustParseAddr("1.1.1.1"), 0), Reason: "only TCP and UDP"}, "denied: icmp 1.1.1.1, only TCP and UDP"},
	} {
		if got := tt.d.String(); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}

// FuzzEmbedded: an IPv6 address with a special IPv4 address in it is as closed as that one, however it
// is embedded, and Dial judges every address without a panic.
func FuzzEmbedded(f *testing.F) {
	for _, addr := range []string{"169.254.169.254", "127.0.0.1", "10.0.0.1", "93.184.216.34", "0.0.0.0", "255.255.255.255"} {
		a := netip.MustParseAddr(addr).As4()
		f.Add(a[:], []byte("0123456789abcdef"))
	}
	r, err := Parse(Config{Allow: []string{"public:*", "0.0.0.0/0:*", "[::/0]:*", "example.com:*"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, inner, outer []byte) {
		if len(inner) != 4 || len(outer) != 16 {
			return
		}
		special := !r.Dial(TCP, netip.AddrPortFrom(netip.AddrFrom4([4]byte(inner)), 443), nil).Allowed
		for _, form := range forms([4]byte(inner), [16]byte(outer)) {
			if got := r.Dial(TCP, netip.AddrPortFrom(form, 443), []string{"example.com"}); special && got.Allowed {
				t.Errorf("%s opens %v: %+v", form, inner, got)
			}
		}
		to := netip.AddrFrom16([16]byte(outer))
		if got := r.Dial(TCP, netip.AddrPortFrom(to, 443), nil); got.Allowed && !plain(to).Is4() && !nat64.Contains(to) && !cidr("2000::/3").Contains(to) {
			t.Errorf("%s is not a global address: %+v", to, got)
		}
	})
}

// forms embeds an IPv4 address in IPv6 addresses in all ways. rest fills the other bits.
func forms(a [4]byte, rest [16]byte) []netip.Addr {
	with := func(prefix string, at ...int) netip.Addr {
		p := netip.MustParsePrefix(prefix)
		b, head := rest, p.Addr().As16()
		copy(b[:p.Bits()/8], head[:])
		for i, n := range at {
			b[n] = a[i]
		}
		return netip.AddrFrom16(b)
	}
	inverted := with("2001::/32")
	b := inverted.As16()
	for i := range a {
		b[12+i] = ^a[i]
	}
	isatap := with("2606:2800::/32", 12, 13, 14, 15).As16()
	copy(isatap[8:], []byte{rest[8] & 0x02, 0, 0x5e, 0xfe})
	return []netip.Addr{
		with("::ffff:0:0/96", 12, 13, 14, 15), with("::/96", 12, 13, 14, 15), with("64:ff9b::/96", 12, 13, 14, 15),
		with("64:ff9b:1::/48", 6, 7, 9, 10), with("64:ff9b:1::/48", 7, 9, 10, 11), with("64:ff9b:1::/48", 9, 10, 11, 12), with("64:ff9b:1::/48", 12, 13, 14, 15),
		with("2002::/16", 2, 3, 4, 5), with("2001::/32", 4, 5, 6, 7), netip.AddrFrom16(b),
		netip.AddrFrom16(isatap),
	}
}

func addressesOf(own []netip.Addr) *Own {
	o := &Own{}
	o.Set(own)
	return o
}

// Addresses of the machine may change while Rules use them.
func TestOwnAddressesChange(t *testing.T) {
	var own Own
	r := rules(t, nil).WithOwn(&own)
	for _, tt := range []struct {
		set  []netip.Addr
		want bool
	}{{nil, true}, {[]netip.Addr{netip.MustParseAddr("::ffff:93.184.216.34")}, false}, {nil, true}} {
		if own.Set(tt.set); r.Dial(TCP, addrPort(t, "93.184.216.34:443"), nil).Allowed != tt.want {
			t.Errorf("with %v: allowed is %t", tt.set, !tt.want)
		}
	}
}

// The program chooses the names that it asks for. The text of a name may mean another rule, which the advice must not
// recommend.
func TestMissingRuleMeansTheName(t *testing.T) {
	r := rules(t, []string{"www.example"})
	for _, name := range []string{"public", "PUBLIC.", "none"} {
		if v := r.Name(name); v.Allowed || v.Missing != "" {
			t.Errorf("%s: %+v", name, v)
		}
		if v := r.Dial(TCP, addrPort(t, "93.184.216.34:443"), []string{name}); v.Allowed || v.Missing == name+":443" || v.Missing == "public:443" {
			t.Errorf("%s: %+v", name, v)
		}
	}
	for text, want := range map[string]bool{
		"": false, "public": false, "public:443": false, "*.example.com": false, "10.0.0.0/8": false, "none": false,
		"example.com": true, "example.com:8443/udp": true, "10.0.0.1:80": true, "[2001:db8::1]:443": true,
	} {
		if got := IsNarrow(text); got != want {
			t.Errorf("%q: narrow is %t", text, got)
		}
	}
}
