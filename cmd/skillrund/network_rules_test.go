package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// fetch prints what each URL answers, or curl's exit code: 6 is a name without an address, 7 is a refused
// connection, 35 is a reset in the handshake of TLS, 56 is a later one.
const fetch = `for url; do
    curl -sS --cacert "$SKILL_DIR/ca.pem" "$url" 2>/dev/null || echo "exit $?"
done
`

// writeFetcher writes a skill that has fetch and the authority of the hosts.
func (h *hosts) writeFetcher(t *testing.T, names ...string) {
	t.Helper()
	ca, err := os.ReadFile(filepath.Join(h.dir, "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		writeSkill(t, h.dir, name, "network_access: true", map[string]string{"scripts/fetch.sh": fetch, "ca.pem": string(ca)})
	}
}

// launch starts a daemon that asks unbound.
func (h *hosts) launch(t *testing.T, config string) *running {
	t.Helper()
	return launchIn(t, h.dir, "network_resolvers: ["+resolverHost+"]\n"+config, h.machine)
}

// reasons returns the reasons of the refusals of an execution, sorted, each once.
func reasons(r *result) (all []string) {
	for _, e := range r.events {
		if d := e.GetDenied(); d != nil {
			all = append(all, strings.TrimSpace(d.Rule+" "+d.Reason))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// curl tries each kind of rule with a real resolver and real web servers. The log of each
// server has only the requests that were allowed.
func TestNetworkRules(t *testing.T) {
	t.Parallel()
	type try struct{ url, want string }
	tests := []struct {
		skill, rules string
		tries        []try
		denied       string // part of a refusal's reason
	}{
		{"by-name", `{allow: [web.example]}`, []try{
			{"http://web.example/", "public web.example HTTP/1.1 "},
			{"https://web.example/", "public web.example HTTP/2.0 "},
			{"https://web.example:8443/", "exit 7"},
			{"http://" + publicHost + "/", "exit 56"}, // the address is open, but not for this Host
			{"http://" + otherHost + "/", "exit 7"},
			{"http://other.example/", "exit 6"},
		}, "no rule allows"},
		{"by-address-of-name", `{allow: [web.example]}`, []try{{"http://" + publicHost + "/", "exit 7"}}, ""},
		{"below-a-name", `{allow: ["*.wild.example"]}`, []try{
			{"http://a.wild.example/", "public a.wild.example HTTP/1.1 "},
			{"https://b.a.wild.example/", "public b.a.wild.example HTTP/2.0 "},
			{"http://wild.example/", "exit 6"},
		}, ""},
		{"by-port", `{allow: ["web.example:8443"]}`, []try{
			{"https://web.example:8443/", "public web.example HTTP/2.0 "},
			{"https://web.example/", "exit 7"},
		}, ""},
		{"by-block", `{allow: ["10.0.0.0/24", "[fd00:5::/64]:80"]}`, []try{
			{"http://" + privateHost + "/", "private " + privateHost + " HTTP/1.1 "},
			{"http://[" + privateHost6 + "]/", "private [" + privateHost6 + "] HTTP/1.1 "},
			{"http://private.example/", "exit 6"},
			{"http://10.0.1.1/", "exit 7"},
		}, ""},
		{"name-of-private", `{allow: [private.example, metadata.example]}`, []try{
			{"http://private.example/", "exit 6"}, {"http://metadata.example/", "exit 6"},
		}, "private"},
		{"metadata", `{allow: ["169.254.169.254"]}`, []try{{"http://169.254.169.254/", "metadata 169.254.169.254 HTTP/1.1 "}}, ""},
		{"near-metadata", `{allow: ["169.254.0.0/16"]}`, []try{{"http://169.254.169.254/", "exit 7"}}, "link-local"},
		{"all-public", `{allow: [public]}`, []try{
			{"http://web.example/", "public web.example HTTP/1.1 "},
			{"https://other.example/", "other other.example HTTP/2.0 "},
			{"http://" + otherHost + "/", "other " + otherHost + " HTTP/1.1 "},
			{"http://six.example/", "public six.example HTTP/1.1 "},
			{"http://" + privateHost + "/", "exit 7"},
			{"http://[" + privateHost6 + "]/", "exit 7"},
			{"http://169.254.169.254/", "exit 7"},
			{"http://" + daemonAddress + "/", "exit 7"},
			{"http://[" + daemonHost6 + "]/", "exit 7"},
			{"https://web.example:8443/", "exit 7"},
		}, "own"},
		{"deny-wins", `{allow: [public], deny: [other.example, "20.3.0.0/16"]}`, []try{
			{"http://web.example/", "public web.example HTTP/1.1 "},
			{"http://other.example/", "exit 6"},
			{"http://" + otherHost + "/", "exit 7"},
		}, "20.3.0.0/16"},
		{"by-name-ipv6", `{allow: [six.example]}`, []try{
			{"https://six.example/", "public six.example HTTP/2.0 "},
			{"https://six.example:8443/", "exit 7"},
		}, ""},
		{"by-address-ipv6", `{allow: ["[2600::1]:80"]}`, []try{
			{"http://[2600::1]/", "public [2600::1] HTTP/1.1 "},
			{"https://[2600::1]/", "exit 7"},
		}, ""},
	}
	dir := newDir(t)
	h := startHosts(t, dir)
	h.writeFetcher(t, "nothing")
	config := "network:\n  allow: []\n  \"skills\":\n"
	for _, tt := range tests {
		h.writeFetcher(t, tt.skill)
		config += "    " + tt.skill + ": " + tt.rules + "\n"
	}
	d := h.launch(t, config)
	for _, tt := range tests {
		t.Run(tt.skill, func(t *testing.T) {
			d.t = t
			var urls []string
			var want string
			expect := map[string]string{}
			refused := false
			for _, try := range tt.tries {
				urls = append(urls, try.url)
				want += try.want + "\n"
				if server, rest, ok := strings.Cut(try.want, " "); ok && server != "exit" {
					host, _, _ := strings.Cut(rest, " ")
					expect[server] += host + "\n"
				} else {
					refused = true
				}
			}
			r := d.run(script(tt.skill, "scripts/fetch.sh", urls...))
			r.wantStdout(t, want)
			for _, server := range []string{"public", "other", "private", "metadata"} {
				var got string
				for line := range strings.Lines(h.seen(t, server)) {
					got += strings.Fields(line)[1] + "\n"
				}
				if got != expect[server] {
					t.Errorf("requests at %s: %q, want %q", server, got, expect[server])
				}
			}
			if got := reasons(r); refused != (len(got) > 0) || !strings.Contains(strings.Join(got, "\n"), tt.denied) {
				t.Errorf("refusals: %q", got)
			}
			if n := r.outcome.Evidence.NetworkDeniedCount; refused != (n > 0) {
				t.Errorf("%d refusals", n)
			}
		})
	}
	t.Run("an empty list is nothing", func(t *testing.T) {
		d.t = t
		_, err := d.try(script("nothing", "scripts/fetch.sh", "http://web.example/"))
		wantStatus(t, err, "FailedPrecondition", "NETWORK_NOT_GRANTED")
	})
	t.Run("the request takes away", func(t *testing.T) {
		d.t = t
		req := script("all-public", "scripts/fetch.sh", "http://web.example/", "http://other.example/", "http://"+privateHost+"/")
		req.NetworkRules = &pb.NetworkRules{Allow: []string{"web.example", privateHost}}
		d.run(req).wantStdout(t, "public web.example HTTP/1.1 \nexit 6\nexit 7\n")
	})
}
