package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/miekg/dns"

	"github.com/skillrun/skillrun/internal/network/dial"
	"github.com/skillrun/skillrun/internal/network/networktest"
	"github.com/skillrun/skillrun/internal/network/policy"
)

// fuzzed is a Gateway without a device, for the parsers. It allows www.test.
func fuzzed(f testing.TB) *Gateway {
	f.Helper()
	rules, err := policy.Parse(policy.Config{Allow: []string{"www.test:*"}})
	if err != nil {
		f.Fatal(err)
	}
	g := &Gateway{life: context.Background(), rules: rules, pins: newPins(), entries: newAdmission(policy.DefaultLimits(), NewShared(policy.DefaultTenantLimits(), dial.Ports{})), report: newReporter(newLog()), throttle: newThrottle()}
	g.names = newNameServer(g, nil)
	return g
}

// For any query, the answer is a well-formed message of a bounded size, which has addresses of allowed
// names alone.
func FuzzQuery(f *testing.F) {
	for _, q := range []struct {
		name string
		kind uint16
	}{{"www.test.", dns.TypeA}, {"WWW.test.", dns.TypeAAAA}, {"evil.test.", dns.TypeA}, {"www.test.", dns.TypeTXT}, {"www.test.", dns.TypeHTTPS}} {
		m := new(dns.Msg).SetQuestion(q.name, q.kind)
		b, _ := m.Pack()
		f.Add(b, false)
		m.SetEdns0(65535, true)
		b, _ = m.Pack()
		f.Add(b, true)
	}
	f.Add([]byte("\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\xc0\x0c\x00\x01\x00\x01"), false) // the name points to itself
	g := fuzzed(f)
	public := netip.MustParseAddr(networktest.Public)
	f.Fuzz(func(t *testing.T, query []byte, tcp bool) {
		g.names.cache = newCache(policy.DefaultLimits())
		g.names.cache.put("www.test", dns.TypeA, resolved{addresses: slices.Repeat([]netip.Addr{public}, maxAnswer), ends: time.Now().Add(time.Hour)})
		b := g.names.answer(query, tcp)
		if b == nil {
			return
		}
		var m dns.Msg
		if err := m.Unpack(b); err != nil || !m.Response || !bytes.Equal(b[:2], query[:2]) {
			t.Fatalf("%v: %x", err, b)
		}
		if !tcp && len(b) > largestQuery {
			t.Errorf("%d bytes by UDP", len(b))
		}
		for _, r := range m.Answer {
			if a, ok := addressOf(r); !ok || a != public || policy.NormalName(r.Header().Name) != "www.test" {
				t.Errorf("answer %v", r)
			}
		}
	})
}

// For any answer of a resolver, a bounded number of addresses is kept, and only public ones.
func FuzzAnswer(f *testing.F) {
	for _, text := range []string{"A " + networktest.Public, "A " + networktest.Private, "A 127.0.0.1", "AAAA ::ffff:10.0.0.1", "AAAA 64:ff9b::a00:1", "AAAA 2600::1", "CNAME evil.test.", "TXT x"} {
		for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA} {
			m := new(dns.Msg).SetQuestion("www.test.", kind)
			m.Response = true
			r, err := dns.NewRR("www.test. 60 IN " + text)
			if err != nil {
				f.Fatal(err)
			}
			m.Answer = []dns.RR{r}
			b, _ := m.Pack()
			f.Add(b, kind == dns.TypeA)
		}
	}
	g := fuzzed(f)
	f.Fuzz(func(t *testing.T, answer []byte, four bool) {
		var m dns.Msg
		if m.Unpack(answer) != nil {
			return
		}
		q := dns.Question{Name: "www.test.", Qtype: dns.TypeAAAA, Qclass: dns.ClassINET}
		if four {
			q.Qtype = dns.TypeA
		}
		found, err := read(&m, q)
		if err != nil {
			return
		}
		if len(found.addresses) > maxAnswer || found.rest() > largestTTL {
			t.Errorf("%d addresses for %s", len(found.addresses), found.rest())
		}
		for _, a := range g.names.judged("www.test", found).addresses {
			inside := a.Unmap()
			if a.Is4() != four || !inside.IsGlobalUnicast() || inside.IsPrivate() || inside.IsLoopback() || inside.IsLinkLocalUnicast() {
				t.Errorf("kept %s", a)
			}
		}
	})
}

// recordedHello is what crypto/tls sends first.
func recordedHello(f testing.TB, c *tls.Config) []byte {
	f.Helper()
	c.InsecureSkipVerify = true
	var sent bytes.Buffer
	_ = tls.Client(&helloRecorder{to: &sent}, c).Handshake()
	return sent.Bytes()
}

// A helloRecorder is a connection whose peer never answers.
type helloRecorder struct {
	net.Conn
	to *bytes.Buffer
}

func (r *helloRecorder) Write(b []byte) (int, error)      { return r.to.Write(b) }
func (r *helloRecorder) Read([]byte) (int, error)         { return 0, io.EOF }
func (r *helloRecorder) Close() error                     { return nil }
func (r *helloRecorder) SetWriteDeadline(time.Time) error { return nil }

// The server name that passes is the one that another parser finds in the bytes that are sent. Where
// packets and records end makes no difference, and no byte after the message is taken.
func FuzzHello(f *testing.F) {
	hello := recordedHello(f, &tls.Config{ServerName: "www.test"})
	f.Add(hello)
	f.Add(hello[:len(hello)-1])
	f.Add(recordedHello(f, &tls.Config{ServerName: "www.test", MaxVersion: tls.VersionTLS12}))
	f.Add(recordedHello(f, &tls.Config{}))
	f.Add(split(hello, 1))
	f.Add(split(hello, 100))
	f.Add(append(slices.Clone(split(hello, 100)[:105]), 0x15, 3, 1, 0, 2, 1, 0)) // a warning between the parts
	f.Fuzz(func(t *testing.T, data []byte) {
		got, read, err := readHello(bytes.NewReader(data))
		slow, slowly, slowErr := readHello(iotest.OneByteReader(bytes.NewReader(data)))
		if (err == nil) != (slowErr == nil) {
			t.Fatalf("%v, but byte by byte %v", err, slowErr)
		}
		if err != nil {
			return
		}
		if !bytes.HasPrefix(data, read) || !bytes.Equal(read, slowly) || got.ServerName != slow.ServerName {
			t.Errorf("read %x, then %x", read, slowly)
		}
		name, encrypted, ok := parseHello(read)
		if !ok || name != got.ServerName || encrypted != slices.Contains(got.Extensions, encryptedHello) {
			t.Errorf("crypto/tls reads %q, %v; the bytes have %q, %v, %v", got.ServerName, got.Extensions, name, encrypted, ok)
		}
	})
}

// split moves a message that is one record into records of size bytes.
func split(record []byte, size int) (records []byte) {
	for part := range slices.Chunk(record[recordHeader:], size) {
		records = append(records, record[0], record[1], record[2], byte(len(part)>>8), byte(len(part)))
		records = append(records, part...)
	}
	return records
}

// parseHello finds the server's name as RFC 8446 (4.1.2) and RFC 6066 (3) say where it is.
func parseHello(records []byte) (name string, encrypted, ok bool) {
	var message reader
	for rest := reader(records); len(rest) > 0; {
		kind := rest.take(1)
		rest.take(2)
		if message = append(message, rest.sized(2)...); len(kind) == 0 || kind[0] != handshakeRecord {
			return "", false, false
		}
	}
	if kind := message.take(1); len(kind) == 0 || kind[0] != 1 {
		return "", false, false
	}
	body := reader(message.sized(3))
	body.take(2 + 32) // version, random
	body.sized(1)     // session
	body.sized(2)     // cipher suites
	body.sized(1)     // compression
	for rest := reader(body.sized(2)); len(rest) > 0; {
		kind, data := rest.number(2), reader(rest.sized(2))
		switch kind {
		case 0:
			names := reader(data.sized(2))
			for len(names) > 0 {
				if kind := names.number(1); kind == 0 {
					name = string(names.sized(2))
				} else {
					names.sized(2)
				}
			}
		case encryptedHello:
			encrypted = true
		}
	}
	return name, encrypted, len(message) == 0 && len(body) == 0
}

// A reader is the rest of a message. Beyond the end it returns nothing.
type reader []byte

func (r *reader) take(n int) []byte {
	n = min(n, len(*r))
	b := (*r)[:n]
	*r = (*r)[n:]
	return b
}

func (r *reader) number(size int) int {
	return int(binary.BigEndian.Uint64(append(make([]byte, 8-size), append(slices.Clone(r.take(size)), make([]byte, size)...)[:size]...)))
}

func (r *reader) sized(size int) []byte { return r.take(r.number(size)) }

// Whatever a server sends, looking for its request for a second name loses no byte, and does not depend
// on where packets end.
func FuzzRetry(f *testing.F) {
	retry := append([]byte("\x16\x03\x03\x00\x60\x02\x00\x00\x5c\x03\x03"), retryRandom...)
	f.Add(retry)
	f.Add(append(retry, make([]byte, 100)...))
	f.Add(retry[:40])
	f.Add([]byte("\x15\x03\x03\x00\x02\x02\x28"))
	f.Fuzz(func(t *testing.T, data []byte) {
		in := bufio.NewReaderSize(bytes.NewReader(data), peekSize)
		again, err := asksAgain(in)
		slow, slowErr := asksAgain(bufio.NewReaderSize(iotest.OneByteReader(bytes.NewReader(data)), peekSize))
		if err != nil || slowErr != nil {
			t.Errorf("errors: %v, %v", err, slowErr)
		}
		if again != slow {
			t.Error("it depends on the packets")
		}
		if again != (len(data) >= 43 && data[0] == 0x16 && data[5] == 2 && bytes.Equal(data[11:43], retryRandom)) {
			t.Errorf("asks again: %v", again)
		}
		if rest, _ := io.ReadAll(in); !bytes.Equal(rest, data) {
			t.Error("bytes are lost")
		}
	})
}

// Each request that passes is written so that every server reads the same request: one Host, which is
// the allowed one, one length, and no line that only some servers take for a line.
func FuzzRequest(f *testing.F) {
	for _, text := range []string{
		"GET / HTTP/1.1\r\nHost: www.test\r\n\r\n",
		"POST /a?b HTTP/1.1\r\nHost: www.test:80\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: www.test\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n2\r\nab\r\n0\r\nX: y\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: www.test\r\nTrailer: X\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: y\r\n\r\n",
		"GET http://evil.test/ HTTP/1.1\r\nHost: www.test\r\n\r\n",
		"GET http://www.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n",
		"GET / HTTP/1.1\nHost: www.test\nX: a\n b\n\n",
		"GET / HTTP/1.0\r\nHost: www.test\r\nConnection: upgrade, http2-settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n",
		"GET // HTTP/1.1\r\nHost: www.test\r\nX: \x00\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: www.test\r\n\r\n",
		"PRI * HTTP/2.0\r\nHost: www.test\r\n\r\nSM\r\n\r\n",
		"CONNECT www.test:80 HTTP/1.1\r\nHost: www.test:80\r\n\r\n",
	} {
		f.Add([]byte(text))
	}
	g := fuzzed(f)
	to := netip.MustParseAddrPort(networktest.Public + ":80")
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &connection{gateway: g, decision: decision{allowed: true, names: []string{"www.test"}, protocol: policy.TCP, to: to}}
		in := bufio.NewReader(&dial.HeadReader{From: bytes.NewReader(data), Left: -1})
		for {
			r, err := http.ReadRequest(in)
			if err != nil || c.checkRequest(r) != nil {
				return
			}
			var sent bytes.Buffer
			if writeRequest(bufio.NewWriter(&sent), r) != nil {
				return
			}
			if problem := ambiguous(sent.Bytes()); problem != "" {
				t.Errorf("%s\nfrom %q\nsent %q", problem, data, sent.Bytes())
			}
		}
	})
}

// ambiguous returns the rule of RFC 9112 that a request breaks, or "".
func ambiguous(request []byte) string {
	head, body, ok := bytes.Cut(request, []byte("\r\n\r\n"))
	if !ok {
		return "the head has no end"
	}
	lines := strings.Split(string(head), "\r\n")
	method, rest, _ := strings.Cut(lines[0], " ")
	target, version, _ := strings.Cut(rest, " ")
	old := version == "HTTP/1.0" // has no transfer codings (RFC 9112, 6.1)
	if method == "" || method == "CONNECT" || version != "HTTP/1.1" && !old || target != "*" && !strings.HasPrefix(target, "/") {
		return "request line"
	}
	fields := http.Header{}
	for _, line := range lines {
		if strings.ContainsAny(line, "\r\n\x00") || line == "" || line[0] == ' ' || line[0] == '\t' {
			return "line " + strconv.Quote(line)
		}
	}
	for _, line := range lines[1:] {
		name, value, ok := strings.Cut(line, ":")
		if !ok || strings.ContainsAny(name, " \t") {
			return "field " + strconv.Quote(line)
		}
		fields.Add(name, strings.TrimSpace(value))
	}
	if host := fields["Host"]; len(host) != 1 || strings.ToLower(strings.TrimSuffix(strings.TrimRight(host[0], ":0123456789"), ".")) != "www.test" {
		return "Host"
	}
	if len(fields["Upgrade"])+len(fields["Http2-Settings"]) > 0 {
		return "another protocol"
	}
	if old && len(fields["Transfer-Encoding"]) > 0 {
		return "a transfer coding in HTTP/1.0"
	}
	return ambiguousBody(fields, body)
}

func ambiguousBody(fields http.Header, body []byte) string {
	length, chunked := fields["Content-Length"], fields["Transfer-Encoding"]
	switch {
	case len(length)+len(chunked) > 1:
		return "two lengths"
	case len(chunked) == 1:
		in := bufio.NewReader(bytes.NewReader(body))
		if _, err := io.Copy(io.Discard, httputil.NewChunkedReader(in)); chunked[0] != "chunked" || err != nil {
			return "chunks"
		}
		// The reader stops before the trailer, which ends with an empty line.
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return "the end of the chunks"
			}
			if line == "\r\n" {
				break
			}
		}
		if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
			return "bytes after the chunks"
		}
	case len(length) == 1:
		if n, err := strconv.Atoi(length[0]); err != nil || n != len(body) {
			return "length"
		}
	case len(body) > 0:
		return "bytes without a length"
	}
	return ""
}

// Whatever a sandbox writes to its interface, the stack goes on.
func FuzzDeliver(f *testing.F) {
	f.Add(synPacket(1000))
	f.Add(ipv6Packet("fd73:6b72::2", "2600::1", 6))
	f.Add(ipv6Packet("fd73:6b72::2", "fd73:6b72::1", 17))
	f.Add(ipv4Packet("192.0.0.2", 17, nil))
	b := newBox(f, nil, nil)
	f.Fuzz(func(_ *testing.T, packet []byte) {
		if len(packet) > 0 && len(packet) <= largestRead {
			b.gateway.link.deliver(packet)
		}
	})
}
