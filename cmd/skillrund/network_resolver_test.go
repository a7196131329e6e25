package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"
)

// namesOfHosts are the data of unbound's zone.
var namesOfHosts = []string{
	"web.example A " + publicHost, "other.example A " + otherHost, "six.example AAAA " + publicHost6,
	"wild.example A " + publicHost, "a.wild.example A " + publicHost, "b.a.wild.example A " + publicHost,
	"pypi.example A " + publicHost, "npm.example A " + publicHost, "git.example A " + publicHost,
	"dns.example A " + resolverHost, "private.example A " + privateHost, "metadata.example A " + metadataHost,
}

// startUnbound starts the machine's name server. It also answers over TCP, over TLS and over HTTPS.
func (h *hosts) startUnbound(t *testing.T, n *namespace) {
	t.Helper()
	certificate, key := h.pair.Write(h.dir, "unbound")
	config := `server:
  username: ""
  directory: ` + h.dir + `
  chroot: ""
  pidfile: ""
  use-syslog: no
  log-queries: yes
  module-config: iterator
  target-fetch-policy: "0 0 0 0 0"
  access-control: 0.0.0.0/0 allow
  tls-service-pem: ` + certificate + `
  tls-service-key: ` + key + `
  local-zone: "example." static
  local-zone: "evil.example." transparent
`
	for _, port := range []string{"53", "443", "853"} {
		config += "  interface: " + resolverHost + "@" + port + "\n"
	}
	for _, data := range namesOfHosts {
		config += "  local-data: \"" + data + "\"\n"
	}
	config += "stub-zone:\n  name: evil.example\n  stub-addr: " + liarHost + "\n"
	file := filepath.Join(h.dir, "unbound.conf")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	startServer(t, n, filepath.Join(h.dir, "unbound.log"), "start of service", "unbound", "-d", "-v", "-c", file)
}

// startLiar starts the name server of evil.example beside unbound. Its answers change, or have an
// address that no sandbox may reach.
func (h *hosts) startLiar(t *testing.T, n *namespace) {
	t.Helper()
	var packets net.PacketConn
	n.do(t, func() error {
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			err = netlink.AddrAdd(lo, &netlink.Addr{IPNet: single(liarHost)})
		}
		if err == nil {
			packets, err = net.ListenPacket("udp4", liarHost+":53")
		}
		return err
	})
	s := &dns.Server{PacketConn: packets, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		a := new(dns.Msg).SetReply(q)
		a.Authoritative = true
		for _, text := range falseAnswers(q.Question[0], h.rebound.Load()) {
			if r, err := dns.NewRR(text); err == nil {
				a.Answer = append(a.Answer, r)
			}
		}
		_ = w.WriteMsg(a)
	})}
	go s.ActivateAndServe()
	t.Cleanup(func() { packets.Close() })
}

// falseAnswers returns the records of the answer to a question.
func falseAnswers(q dns.Question, rebound bool) []string {
	name, private := q.Name+" 0 IN ", "inner.evil.example. 0 IN A "+privateHost
	switch q.Name + dns.TypeToString[q.Qtype] {
	case "rebind.evil.example.A":
		if !rebound {
			return []string{name + "A " + publicHost}
		}
		return []string{name + "A " + privateHost}
	case "alias.evil.example.A":
		return []string{name + "CNAME inner.evil.example.", private}
	case "inner.evil.example.A":
		return []string{private}
	case "metadata.evil.example.A":
		return []string{name + "A " + metadataHost}
	case "daemon.evil.example.A":
		return []string{name + "A " + daemonAddress}
	case "mapped.evil.example.AAAA":
		return []string{name + "AAAA ::ffff:" + privateHost, name + "AAAA 64:ff9b::a00:1", name + "AAAA " + privateHost6}
	}
	return nil
}
