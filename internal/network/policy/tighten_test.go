package policy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

func TestTighten(t *testing.T) {
	for _, tt := range []struct{ a, b, want []string }{
		{nil, nil, []string{"public"}},
		{nil, []string{}, []string{"none"}},
		{nil, []string{"Example.com"}, []string{"Example.com"}},
		{nil, []string{"example.com:*"}, []string{"example.com"}},
		{nil, []string{"example.com:22"}, []string{"none"}},
		{nil, []string{"example.com/udp"}, []string{"none"}},
		{nil, []string{"10.0.0.0/8"}, []string{"none"}},
		{nil, []string{"0.0.0.0/0"}, []string{"0.0.0.0/0"}},
		{nil, []string{"1.1.1.1"}, []string{"1.1.1.1/32"}}, // does not open the machine's address, as public doesn't
		{[]string{"public:*"}, []string{"8.8.8.8:53", "8.8.8.8:50-60"}, []string{"8.8.8.8/32:50-52,54-60"}},
		{[]string{"public:50-100"}, []string{"example.com:53,443", "public:100,853"}, []string{"public:100"}},
		{[]string{"*.example.com"}, []string{"a.example.com", "example.com"}, []string{"a.example.com"}},
		{[]string{"*.example.com"}, []string{"*.a.example.com"}, []string{"*.a.example.com"}},
		{[]string{"*.a.example.com"}, []string{"*.example.com"}, []string{"*.a.example.com"}},
		{[]string{"*.a.example"}, []string{"*.b.example"}, []string{"none"}},
		{[]string{"example.com"}, []string{"93.184.0.0/16"}, []string{"none"}},
		{[]string{"10.0.0.0/8:1-100"}, []string{"10.1.0.0/16:50-200"}, []string{"10.1.0.0/16:50-100"}},
		{[]string{"10.0.0.0/8"}, []string{"10.0.0.1"}, []string{"10.0.0.1/32"}},
		{[]string{"0.0.0.0/0"}, []string{"10.0.0.0/8"}, []string{"none"}},
		{[]string{"10.0.0.0/8"}, []string{"192.168.0.0/16"}, []string{"none"}},
		{[]string{"169.254.0.0/16"}, []string{"169.254.169.254"}, []string{"none"}},
		{[]string{"169.254.169.254"}, []string{"169.254.169.254"}, []string{"169.254.169.254"}},
		{[]string{"public", "example.com:8080"}, []string{"example.com:*", "public"}, []string{"public", "example.com:8080"}},
	} {
		a, b := rules(t, tt.a), rules(t, tt.b)
		for _, both := range []*Rules{a.Tighten(b), b.Tighten(a)} {
			got, _ := both.Strings()
			slices.Sort(got)
			slices.Sort(tt.want)
			if !slices.Equal(got, tt.want) {
				t.Errorf("%q by %q: got %q, want %q", tt.a, tt.b, got, tt.want)
			}
		}
	}
}

func TestTightenKeepsAllDenyRules(t *testing.T) {
	r := rules(t, nil, "a.example", "b.example:80").Tighten(rules(t, nil, "b.example:80", "c.example"))
	if _, deny := r.Strings(); !slices.Equal(deny, []string{"a.example", "b.example:80", "c.example"}) {
		t.Errorf("got %q", deny)
	}
	more, err := r.Denying([]string{"d.example"})
	if err != nil || more.Name("d.example").Allowed || !r.Name("d.example").Allowed {
		t.Errorf("got %v, %v", more, err)
	}
	if _, err := r.Denying([]string{"*"}); err == nil {
		t.Error("a mistake is accepted")
	}
}

// Parse accepts the result. It never allows what one of the two refuses, and for addresses it allows all that both allow,
// also after it went through text. The questions are made of the rules' own edges.
func TestTightenAllowsWhatBothAllow(t *testing.T) {
	if allowed := compareTightened(t, 18, 2_000); allowed < 100 {
		t.Errorf("only %d questions are allowed: the test does not tell much", allowed)
	}
}

// FuzzTighten looks for other rules and questions.
func FuzzTighten(f *testing.F) {
	f.Add(uint64(18))
	f.Fuzz(func(t *testing.T, seed uint64) { compareTightened(t, seed, 10) })
}

// compareTightened compares pairs of random rules with the result of Tighten. It returns the number of questions
// that are allowed.
func compareTightened(t *testing.T, seed uint64, pairs int) (allowed int) {
	random := rand.New(rand.NewPCG(seed, 1))
	own := []netip.Addr{netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("93.184.216.34")}
	for range pairs {
		a, b := randomRules(t, random).WithOwn(addressesOf(own)), randomRules(t, random).WithOwn(addressesOf(own))
		both := a.Tighten(b)
		allow, deny := both.Strings()
		both = rules(t, allow, deny...).WithOwn(addressesOf(own))
		for range 20 {
			p, to, name := pick(random, []Protocol{TCP, UDP}), netip.AddrPortFrom(netip.MustParseAddr(pick(random, someAddrs)), pick(random, somePorts)), pick(random, someNames)
			where := fmt.Sprintf("seed %d: %v by %v is %v; %s %s %s", seed, written(a), written(b), written(both), p, to, name)
			if both.Name(name).Allowed && !(a.Name(name).Allowed && b.Name(name).Allowed) {
				t.Fatalf("%s: Name allows more", where)
			}
			got, want := both.Dial(p, to, nil).Allowed, a.Dial(p, to, nil).Allowed && b.Dial(p, to, nil).Allowed
			if got != want {
				t.Fatalf("%s without the name: Dial is %v, want %v", where, got, want)
			}
			if got {
				allowed++
			}
			if both.Dial(p, to, []string{name}).Allowed && !(a.Dial(p, to, []string{name}).Allowed && b.Dial(p, to, []string{name}).Allowed) {
				t.Fatalf("%s: allows more", where)
			}
			if both.Answer(name, to.Addr()).Allowed && !(a.Answer(name, to.Addr()).Allowed && b.Answer(name, to.Addr()).Allowed) {
				t.Fatalf("%s: Answer allows more", where)
			}
		}
	}
	return allowed
}

var (
	someNames   = []string{"example.com", "a.example.com", "b.a.example.com", "other.example", "com"}
	someAddrs   = []string{"93.184.216.34", "93.184.216.35", "8.8.8.8", "10.0.0.5", "10.0.0.6", "10.1.2.3", "169.254.169.254", "169.254.1.1", "127.0.0.1", "2606:2800::1", "fd00:ec2::254", "fd00::1", "64:ff9b::a00:1", "64:ff9b::808:808", "2002:a00:1::", "::1", "255.255.255.255"}
	somePorts   = []uint16{53, 80, 80, 443, 443, 8080}
	someTargets = []string{"public", "public", "example.com", "a.example.com", "*.example.com", "*.a.example.com", "*.com", "93.184.216.34", "93.184.0.0/16", "0.0.0.0/0", "8.8.8.8", "8.8.8.8/32", "10.0.0.0/8", "10.0.0.5", "10.0.0.5/32", "10.0.0.0/24", "169.254.0.0/16", "169.254.169.254",
		"169.254.169.254/32", "[::/0]", "[2606:2800::/32]", "[2606:2800::1]", "[fd00::/8]", "[fd00:ec2::254]", "[64:ff9b::/96]", "[64:ff9b::a00:1]", "[64:ff9b::a00:0/104]", "[2002::/16]", "[2002:a00:1::]", "128.0.0.0/1", "127.0.0.1"}
	someSuffixes = []string{"", "", ":80", ":443/udp", ":*", ":*/udp", ":1-100", ":50-60,8080", ":53,443", ":53,853,8080/udp", ":80,443", "/udp"}
)

func pick[T any](random *rand.Rand, list []T) T { return list[random.IntN(len(list))] }

func randomRules(t *testing.T, random *rand.Rand) *Rules {
	list := func(n int) []string {
		texts := []string{}
		for range n {
			texts = append(texts, pick(random, someTargets)+pick(random, someSuffixes))
		}
		return texts
	}
	var deny []string
	if random.IntN(3) == 0 {
		deny = list(1)
	}
	return rules(t, list(random.IntN(8)), deny...)
}

func written(r *Rules) string {
	allow, deny := r.Strings()
	return fmt.Sprintf("{allow %q, deny %q}", allow, deny)
}
