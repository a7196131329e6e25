package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// resolvers asks name servers over every transport. Each line has the result of one attempt.
const resolvers = `
import socket, ssl, struct, sys

def question(name):
    return struct.pack("!HHHHHH", 7, 0x100, 1, 0, 0, 0) + b"".join(bytes([len(l)]) + l.encode() for l in name.split(".")) + b"\0" + struct.pack("!HH", 1, 1)

def answers(a):
    return "%d answers" % struct.unpack_from("!H", a, 6)[0] if a else "closed"

def datagram(to, port, name):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.connect((to, port))
    s.send(question(name))
    return answers(s.recv(4096))

def stream(to, port, name, secure):
    s = socket.create_connection((to, port))
    if secure:
        c = ssl.create_default_context()
        c.check_hostname, c.verify_mode = False, ssl.CERT_NONE
        s = c.wrap_socket(s, server_hostname=secure)
    q = question(name)
    s.sendall(struct.pack("!H", len(q)) + q)
    return answers(s.recv(4096)[2:])

for name, do, args in (
    ("UDP", datagram, ("` + resolverHost + `", 53, "other.example")),
    ("TCP", stream, ("` + resolverHost + `", 53, "other.example", None)),
    ("TLS", stream, ("` + resolverHost + `", 853, "other.example", "dns.example")),
    ("plain at 443", stream, (socket.gethostbyname("dns.example"), 443, "other.example", None)),
    ("the sandbox's own, over TCP", stream, ("192.0.0.1", 53, "dns.example", None)),
    ("the sandbox's own, over TLS", stream, ("192.0.0.1", 853, "dns.example", "dns.example")),
):
    try: result = do(*args)
    except OSError as e: result = e.strerror
    print(name + ": " + result, flush=True)
`

// Ways around the rules that need real programs and servers: other forms of addresses, a resolver that lies,
// other resolvers, other names in TLS and HTTP. The log of each server has only the requests that were allowed.
func TestNetworkBypasses(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	h := startHosts(t, dir)
	h.writeFetcher(t, "bypass", "bound", "resolving")
	h.writeNetclient(t, "bypass")
	h.writeNetclient(t, "bound")
	for _, name := range []string{"bypass", "resolving"} {
		if err := os.WriteFile(filepath.Join(dir, "skills", name, "scripts/resolvers.py"), []byte(resolvers), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "secret"), []byte("s3cr3t\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := h.launch(t, fmt.Sprintf(`
network:
  allow: [web.example, dns.example, "*.evil.example"]
  credentials: [{name: web, domain: web.example, secret: {file: %[1]s/secret}, ca_file: %[1]s/ca.pem, "skills": [bound]}]
  "skills": {resolving: {allow: [dns.example, "%[2]s:53,853/udp", "%[2]s:53,853"]}}
`, dir, resolverHost))
	const environment = `export SSL_CERT_FILE=$SKILL_DIR/ca.pem; `
	tests := []struct {
		name   string
		req    *pb.ExecuteRequest
		want   string   // standard output
		seen   []string // requests at the public host: Host and version
		denied string   // part of a refusal's reason
	}{
		{"decimal, octal and short", script("bypass", "scripts/fetch.sh", "http://167772161/", "http://0xa000001/", "http://012.0.0.1/", "http://10.1/", "http://2852039166/", "http://0251.0376.0251.0376/"),
			strings.Repeat("exit 7\n", 6), nil, "private"},
		{"IPv4 in IPv6", script("bypass", "scripts/fetch.sh", "http://[::ffff:10.0.0.1]/", "http://[64:ff9b::a00:1]/", "http://[::10.0.0.1]/", "http://[2002:a00:1::1]/", "http://[64:ff9b::a9fe:a9fe]/", "http://["+privateHost6+"]/", "http://["+publicHost6+"]/"),
			strings.Repeat("exit 7\n", 7), nil, "private"},
		{"a resolver's lies", script("bypass", "scripts/fetch.sh", "http://alias.evil.example/", "http://inner.evil.example/", "http://metadata.evil.example/", "http://daemon.evil.example/", "http://mapped.evil.example/"),
			strings.Repeat("exit 6\n", 5), nil, "link-local"},
		{"rebinding, the first answer", script("bypass", "scripts/fetch.sh", "http://rebind.evil.example/"), "public rebind.evil.example HTTP/1.1 \n", []string{"rebind.evil.example HTTP/1.1"}, ""},
		{"rebinding, the second answer", script("bypass", "scripts/fetch.sh", "http://rebind.evil.example/", "http://"+publicHost+"/"), "exit 6\nexit 7\n", nil, "private"},
		{"another server name", shell("bypass", `getent hosts web.example >/tmp/x; curl -skS --connect-to other.example:443:web.example:443 https://other.example/ 2>/tmp/x || echo "exit $?"`), "exit 35\n", nil, "no rule allows"},
		{"another Host", shell("bypass", `curl -sS -H 'Host: other.example' http://web.example/ 2>/tmp/x || echo "exit $?"`), "exit 56\n", nil, "no rule allows"},
		{"CONNECT", shell("bypass", `curl -sS -p -x http://web.example:80 https://other.example/ 2>/tmp/x || echo "exit $?"`), "exit 56\n", nil, "CONNECT"},
		{"HTTP/2 without TLS", shell("bypass", `curl -sS --http2-prior-knowledge http://web.example/ 2>/tmp/x || echo failed`), "failed\n", nil, "HTTP/1"},
		{"an encrypted server name", shell("bypass", environment+`$SKILL_DIR/bin/netclient hidden https://web.example/ web.example | grep -o 'connection reset'`), "connection reset\n", nil, "ECH"},
		// The rules compare names outside of TLS. Only a credential lets the helper read the requests inside.
		{"another :authority", shell("bypass", environment+`$SKILL_DIR/bin/netclient fronted https://web.example/ other.example`),
			"200 public web.example HTTP/2.0 \n200 public other.example HTTP/2.0 \n", []string{"web.example HTTP/2.0", "other.example HTTP/2.0"}, ""},
		{"another :authority beside a credential", shell("bound", `$SKILL_DIR/bin/netclient fronted https://web.example/ other.example | sed 's/421 .*/421/'`),
			"200 public web.example HTTP/2.0 s3cr3t\n421\n", []string{"web.example HTTP/2.0"}, "another host than its connection"},
		{"DNS over HTTPS", shell("bypass", `curl -sS --cacert $SKILL_DIR/ca.pem --doh-url https://dns.example/dns-query http://other.example/ 2>/tmp/x || echo "exit $?"`), "exit 7\n", nil, "no rule allows"},
		{"other resolvers", script("bypass", "scripts/resolvers.py"), `UDP: Connection refused
TCP: Connection refused
TLS: Connection refused
plain at 443: Connection reset by peer
the sandbox's own, over TCP: 1 answers
the sandbox's own, over TLS: Connection refused
`, nil, "not TLS"},
		{"resolvers that a rule allows", script("resolving", "scripts/resolvers.py"), `UDP: 1 answers
TCP: 1 answers
TLS: 1 answers
plain at 443: Connection reset by peer
the sandbox's own, over TCP: 1 answers
the sandbox's own, over TLS: Connection refused
`, nil, "not TLS"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d.t = t
			// Each sandbox has its own answers, so the next execution asks again.
			h.rebound.Store(tt.name == "rebinding, the second answer")
			r := d.run(tt.req)
			r.wantStdout(t, tt.want)
			var got []string
			for line := range strings.Lines(h.seen(t, "public")) {
				got = append(got, strings.Join(strings.Fields(line)[1:3], " "))
			}
			if !slices.Equal(got, tt.seen) {
				t.Errorf("the public host got %q", got)
			}
			if got := reasons(r); (tt.denied != "") != (len(got) > 0) || !strings.Contains(strings.Join(got, "\n"), tt.denied) {
				t.Errorf("refusals: %q", got)
			}
		})
	}
	for _, name := range []string{"other", "private", "metadata"} {
		if got := h.seen(t, name); got != "" {
			t.Errorf("the host %s got %q", name, got)
		}
	}
}
