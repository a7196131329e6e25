package policy

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func rules(t testing.TB, allow []string, deny ...string) *Rules {
	t.Helper()
	r, err := Parse(Config{Allow: allow, Deny: deny})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Rules keep their text, and their meaning survives the way to text and back.
func TestParseKeepsTheText(t *testing.T) {
	allow := []string{"public", "public:*/udp", "example.com", "*.Example.com:443", "bücher.example:80,443", "8.8.8.8:53/udp",
		"10.0.0.0/8:5432", "10.0.0.0/8/udp", "[2001:db8::/32]:8000-8100", "[2001:db8::1]", "my_bucket.example.com.", "192.168.1.1:*"}
	deny := []string{"*.evil.example", "203.0.113.0/24:25", "public:8080/tcp"}
	r := rules(t, allow, deny...)
	gotAllow, gotDeny := r.Strings()
	if !slices.Equal(gotAllow, allow) || !slices.Equal(gotDeny, deny) {
		t.Fatalf("got %q, %q", gotAllow, gotDeny)
	}
	for _, one := range r.allow {
		again, problem := parseRule(one.write(), false)
		if problem != "" || !again.equal(one) {
			t.Errorf("%s: written as %s, which is %+v, %s", one.text, one.write(), again, problem)
		}
	}
}

func TestParseNormalises(t *testing.T) {
	for text, want := range map[string]string{
		"Example.COM.":           "example.com",
		"bücher.example":         "xn--bcher-kva.example",
		"*.BÜCHER.example":       "*.xn--bcher-kva.example",
		"a.example:443,80":       "a.example",
		"a.example:1-3,2-5,6":    "a.example:1-6",
		"a.example:443/TCP":      "a.example:443",
		"[2001:0DB8:0::/32]/udp": "[2001:db8::/32]/udp",
		"a.example:1-65535":      "a.example:*",
	} {
		one, problem := parseRule(text, false)
		if problem != "" || one.write() != want {
			t.Errorf("%s: got %s, want %s (%s)", text, one.write(), want, problem)
		}
	}
}

func TestParseSaysWhatWouldBeRight(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "empty rule",
		"https://example.com":      "write the domain alone",
		"user@example.com":         "no user name",
		"example.com/path":         "a rule has no path",
		"a b":                      "no blanks",
		"*":                        "write public",
		"*:*":                      "write public",
		"a.*.com":                  "only at the beginning",
		"*.*.com":                  "only at the beginning",
		"443":                      "quote a rule with a comma",
		"example.com:":             "ports are missing",
		"example.com:http":         `"http" is no port`,
		"example.com:0":            `"0" is no port`,
		"example.com:+80":          `"+80" is no port`,
		"example.com:65536":        `"65536" is no port`,
		"example.com:80,":          `"" is no port`,
		"example.com:90-80":        "write 80-90",
		"2001:db8::1":              "in brackets",
		"[2001:db8::1":             "closing bracket",
		"[2001:db8::1]443":         "after the bracket",
		"[2001:db8::1]:":           "after the bracket",
		"[example.com]":            "brackets are for IPv6",
		"[fe80::1%eth0]":           "no zone",
		"[::ffff:10.0.0.1]":        "write the IPv4 address: 10.0.0.1",
		"[::ffff:0:0/96]":          "write the IPv4 CIDR",
		"10.0.0.1/8":               "write 10.0.0.0/8 or 10.0.0.1",
		"[2001:db8::1/32]":         "write [2001:db8::/32] or [2001:db8::1]",
		"10.0.0.0/33":              "no prefix length",
		"10.0.0.0/8/sctp":          `"sctp" is no protocol; write /tcp or /udp`,
		"10.0.0.0/8/tcp/udp":       "a rule has one protocol",
		"example.com:443/tpc":      `"tpc" is no protocol; write /tcp or /udp`,
		"[2001:db8::1]:443/icmp":   `"icmp" is no protocol; write /tcp or /udp`,
		"example.com:443/tcp/udp":  "a rule has one protocol; write one rule with /tcp and one with /udp",
		"example.com/icmp":         "(/tcp or /udp)",
		"10.0.0/8":                 `"10.0.0" is no address; an example of a CIDR is 10.0.0.0/8`,
		"10.0.0.*":                 "10.0.0.0/24",
		"*.*":                      "only at the beginning",
		"a.example,b.example":      "write one rule for each",
		"a.example:80,b.example":   `"b.example" is no port`,
		"all":                      "all means nothing in a rule; for all public addresses, write public",
		"ANY.:443":                 "for all public addresses, write public",
		"internet":                 "write public",
		"yes":                      "write public",
		"no":                       "write none",
		"private":                  "write a CIDR such as 10.0.0.0/8",
		"localhost":                "write its address",
		"127.1":                    "neither a domain name",
		"0x7f.0x1":                 "neither a domain name",
		"2130706433":               "ports without a target",
		"a..b":                     "neither a domain name",
		"ex!mple.com":              "neither a domain name",
		"xn--0.example":            "not a domain name",
		strings.Repeat("a.", 200):  "neither a domain name",
		strings.Repeat("a", 64):    "neither a domain name",
		"224.0.0.1":                "multicast addresses can't be allowed",
		"0.0.0.0":                  "unspecified addresses can't be allowed",
		"[::]:80":                  "unspecified addresses can't be allowed",
		"255.255.255.255":          "broadcast addresses can't be allowed",
		"[64:ff9b::e000:1]":        "multicast addresses can't be allowed",
		"ns.example.com:53/udp":    "name one by its address",
		"public:53,853":            "name one by its address",
		"none":                     "none is in a list with other rules; write it alone",
		"Public.":                  "write public in lower case",
		"a\xff.example":            "text in UTF-8",
		"xn--a":                    "not a domain name",
		"example.com\n":            "no blanks",
		"example.com:80:90":        "one colon, before its ports; write several ports with commas: example.com:80,443",
		"2001:db8::/32:443":        "in brackets",
		"example.com:443/tcp/http": `"tcp/http" is no protocol`,
	} {
		_, err := Parse(Config{Allow: []string{text, "ok.example"}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
			continue
		}
		if m, ok := errors.AsType[*Mistake](err); !ok || m.List != "allow" || m.Rule != text {
			t.Errorf("%q: got the mistake %+v", text, m)
		}
	}
}

func TestParseTellsAllMistakes(t *testing.T) {
	_, err := Parse(Config{Allow: []string{"*", "ok.example", "a b"}, Deny: []string{"https://x"}})
	if err == nil || strings.Count(err.Error(), "\n") != 2 || !strings.Contains(err.Error(), `deny: "https://x"`) {
		t.Errorf("got %v", err)
	}
}

// A deny rule may have a target that no rule can allow.
func TestParseDenyTakesEveryTarget(t *testing.T) {
	rules(t, nil, "224.0.0.0/4", "public:53", "ns.example:853", "[::]")
}

func TestNoListIsPublicAndAnEmptyListIsNothing(t *testing.T) {
	for _, tt := range []struct {
		allow []string
		want  string
	}{{nil, "public"}, {[]string{}, "none"}, {[]string{"none"}, "none"}} {
		r := rules(t, tt.allow)
		allow, deny := r.Strings()
		if !slices.Equal(allow, []string{tt.want}) || len(deny) != 0 {
			t.Errorf("%q: got %q, %q", tt.allow, allow, deny)
		}
		if again := rules(t, allow, deny...); len(again.allow) != len(r.allow) {
			t.Errorf("%q: %q means something else", tt.allow, allow)
		}
	}
	var none *Rules
	if allow, deny := none.Strings(); !slices.Equal(allow, []string{"none"}) || deny != nil {
		t.Errorf("nil Rules: got %q, %q", allow, deny)
	}
}

// FuzzParse: Rules that Parse accepts have the same meaning after a way to text and back, and a rule that
// is only a host's name allows this name.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"public", "example.com:443", "*.a.example:1-9,11/udp", "[2001:db8::/32]:80", "10.0.0.0/8:*", "bücher.example", "[::1]", "64:ff9b::1", "1.2.3.4/32/tcp"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Parse(Config{Allow: []string{text}, Deny: []string{text}})
		if err != nil {
			return
		}
		if len(r.allow) == 0 {
			if text != Nothing {
				t.Fatalf("%q is no rule", text)
			}
			return
		}
		one := r.allow[0]
		again, problem := parseRule(one.write(), false)
		if problem != "" || !again.equal(one) {
			t.Fatalf("%q: written as %q, which is %+v, not %+v (%s)", text, one.write(), again, one, problem)
		}
		if one.kind == nameRule {
			name := one.name
			if one.below {
				name = "x." + name
			}
			if _, ok := canonicalName(name); ok && !rules(t, []string{text}).Name(name).Allowed {
				t.Fatalf("%q does not allow %q", text, name)
			}
		}
		if same, ok := intersect(one, one); one.within(one) != ok || ok && same.text != one.text {
			t.Fatalf("%q with itself is %q", text, same.text)
		}
	})
}

// A deny rule with a word that is no destination would deny nothing.
func TestParseRefusesWordsInDenyRules(t *testing.T) {
	for text, want := range map[string]string{"none": "none is no deny rule", "private": "write a CIDR", "all": "write public"} {
		if _, err := Parse(Config{Deny: []string{text}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
	rules(t, []string{"*.internet", "all.example"})
}

// No advice recommends a rule that Parse refuses.
func TestWordsAreNotRecommended(t *testing.T) {
	if v := rules(t, []string{"a.example"}).Name("localhost"); v.Allowed || v.Missing != "" {
		t.Errorf("got %+v", v)
	}
	if IsNarrow("internet:443") || !IsNarrow("a.example:443") {
		t.Error("a word is narrow, or a name is not")
	}
	to := netip.MustParseAddrPort("20.1.0.1:443")
	if got := Learn([]Connection{{Protocol: "tcp", To: to, Name: "internet"}}); slices.Contains(got, "internet:443") {
		t.Errorf("learned %q", got)
	}
}
