package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

const (
	proxyHost    = "10.9.0.1" // on the machine of the internet
	proxyPort    = "3128"
	shopAddress  = webAddress + ":8080"
	proxyAccount = "skillrun"
	proxySecret  = "pr0xy-s3cr3t"
)

// serveShop starts a web server that shows from which address it was asked. It is also an index of packages, and returns
// the addresses that asked for these.
func serveShop(t *testing.T, n *namespace) (askers *sync.Map) {
	t.Helper()
	askers = &sync.Map{}
	from := func(r *http.Request) string {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		return host
	}
	index := packages(func(r *http.Request) { askers.Store(from(r), true) })
	var l net.Listener
	n.do(t, func() (err error) {
		l, err = net.Listen("tcp", shopAddress)
		return err
	})
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			index.ServeHTTP(w, r)
			return
		}
		fmt.Fprintf(w, "%s from %s\n", r.Host, from(r))
	})}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return askers
}

// startTinyproxy starts a real proxy on the machine of the internet. It wants a password, and refuses
// forbidden.example and all ports but 443 and 8080.
func startTinyproxy(t *testing.T, n *namespace, dir string) {
	t.Helper()
	if _, err := exec.LookPath("tinyproxy"); err != nil {
		t.Skip("tinyproxy is not installed")
	}
	for name, text := range map[string]string{
		"tinyproxy.conf": "Listen " + proxyHost + "\nPort " + proxyPort + "\nMaxClients 20\nTimeout 60\nBasicAuth " + proxyAccount + " " + proxySecret +
			"\nConnectPort 443\nConnectPort 8080\nFilter \"" + dir + "/filter\"\n",
		"filter":            "^forbidden\\.example$\n",
		"proxy-resolv.conf": "nameserver " + webAddress + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.Command("nsenter", "--net="+n.path, "unshare", "--mount", "/bin/sh", "-c",
		`mount --bind "$1/proxy-resolv.conf" /etc/resolv.conf && exec tinyproxy -d -c "$1/tinyproxy.conf"`, "sh", dir)
	out, err := c.StdoutPipe()
	if err == nil {
		c.Stderr = c.Stdout
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	t.Cleanup(func() { _ = c.Process.Kill(); <-read; _ = c.Wait() })
	ready := make(chan bool, 1)
	go func() {
		defer close(read)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if strings.Contains(lines.Text(), "Accepting connections") {
				ready <- true
			}
		}
		ready <- false
	}()
	if !<-ready {
		t.Fatal("tinyproxy did not start")
	}
}

// startBehindProxy starts a daemon whose internet has a proxy, and a skill that may reach names of example.
func startBehindProxy(t *testing.T, dir, extra string) *running {
	t.Helper()
	d, _ := startBehindProxyWithIndex(t, dir, extra)
	return d
}

// startBehindProxyWithIndex also returns the addresses that ask for packages.
func startBehindProxyWithIndex(t *testing.T, dir, extra string) (d *running, askers *sync.Map) {
	t.Helper()
	internet, machine := newNamespace(t), newNamespace(t)
	connect(t, machine, daemonAddress+"/24", internet, webAddress+"/24")
	internet.do(t, func() error { return setUp(proxyHost + "/24") })
	machine.do(t, func() error { return setUp("10.9.0.2/24") })
	serveWeb(t, internet)
	askers = serveShop(t, internet)
	startTinyproxy(t, internet, dir)
	if err := os.WriteFile(filepath.Join(dir, "password"), []byte(proxySecret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	writeSkill(t, dir, "online", "network_access: true", map[string]string{"scripts/ask.py": ask})
	return launchIn(t, dir, `
network: {allow: ["*.example:443,8080,8081", "`+shopAddress+`"]}
network_proxy:
  url: http://`+proxyHost+`:`+proxyPort+`
  username: `+proxyAccount+`
  password: {file: `+dir+`/password}
`+extra, machine), askers
}

func wantProxyReason(t *testing.T, r *result, reason string) {
	t.Helper()
	for _, e := range r.events {
		if strings.Contains(e.GetDenied().GetReason(), reason) {
			return
		}
	}
	t.Errorf("no refusal because %q: %v", reason, r.events)
}

// A real proxy opens the connections of a sandbox, with the password. The sandbox does not reach the proxy, and
// does not learn the password. Each refusal of the proxy is an event.
func TestNetworkProxy(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	d := startBehindProxy(t, dir, "  no_proxy: [direct.example]\n")
	r := d.run(script("online", "scripts/ask.py", "http://shop.example:8080/", "http://direct.example:8080/"))
	// Both names have one address, so the second name opens the address without the proxy, as no_proxy says.
	r.wantStdout(t, "shop.example:8080 from "+webAddress+"\ndirect.example:8080 from "+daemonAddress+"\n")
	r = d.run(script("online", "scripts/ask.py", "http://"+proxyHost+":"+proxyPort+"/"))
	wantProxyReason(t, r, "an own address (the proxy of the daemon)")
	r = d.run(script("online", "scripts/ask.py", "http://web.example:8081/"))
	if out := r.stdout.String(); !strings.Contains(out, "Connection refused") {
		t.Errorf("got %q", out)
	}
	wantProxyReason(t, r, "the proxy refused the connection: 403")
	r = d.run(shell("online", "env; cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'; exit 1"))
	if strings.Contains(r.stdout.String(), proxySecret) || strings.Contains(r.stdout.String(), proxyHost) {
		t.Error("the script has the proxy")
	}
	if err := os.WriteFile(filepath.Join(dir, "password"), []byte("wrong"), 0o600); err != nil {
		t.Fatal(err)
	}
	r = d.run(shell("online", "python3 scripts/ask.py http://shop.example:8080/; exit 3"))
	const reason = "the proxy refused the connection: 401 Unauthorized; it does not accept network_proxy.username and network_proxy.password"
	wantProxyReason(t, r, reason)
	if !strings.Contains(r.outcome.Advice, reason) {
		t.Errorf("advice %q", r.outcome.Advice)
	}
	if err := os.Remove(filepath.Join(dir, "password")); err != nil {
		t.Fatal(err)
	}
	if r = d.run(script("online", "scripts/ask.py")); r.outcome.End != pb.ExecutionEnd_EXECUTION_END_SETUP_FAILED {
		t.Errorf("without a password: %v", r.outcome)
	}
	doctor, err := exec.Command(binary(t, "skillrun"), "--address", "unix://"+dir+"/s.sock", "doctor").CombinedOutput()
	if !strings.Contains(string(doctor), "the proxy of network_proxy can't be used") {
		t.Errorf("doctor: %v\n%s", err, doctor)
	}
}

// A proxy that looks names up carries them where the machine has no name server.
func TestNetworkProxyResolvesNames(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	d := startBehindProxy(t, dir, "  resolve_names: true\nnetwork_resolvers: [\""+webAddress+":5300\"]\n")
	r := d.run(script("online", "scripts/ask.py", "http://shop.example:8080/", "http://other.example:8080/", "http://shop.test:8080/", "http://"+shopAddress+"/"))
	if out := r.stdout.String(); !strings.HasPrefix(out, "shop.example:8080 from "+webAddress+"\nother.example:8080 from "+webAddress+"\nhttp://shop.test:8080/ ") ||
		!strings.HasSuffix(out, "\n"+shopAddress+" from "+webAddress+"\n") {
		t.Errorf("got %q", out)
	}
	shop := func(c *pb.NetworkConnection) bool { return c.Name == "shop.example" && c.Address == "198.18.0.1" }
	if c := r.outcome.Usage.Network.GetConnections(); len(c) != 3 || !slices.ContainsFunc(c, shop) { // in the order of their ends
		t.Errorf("usage: %v", c)
	}
	r = d.run(script("online", "scripts/ask.py", "http://forbidden.example:8080/"))
	wantProxyReason(t, r, "the proxy refused the connection: 403 Forbidden")
	if _, err := os.Stat("/usr/bin/curl"); err != nil {
		t.Skip("curl is not installed")
	}
	d.run(shell("online", "curl -sS http://shop.example:8080/")).wantStdout(t, "shop.example:8080 from "+webAddress+"\n")
}

// skillrun prepare downloads through the proxy, with the proxy's password, unless no_proxy has the index. A refusal of the
// proxy is the reason of the failure.
func TestPrepareThroughProxy(t *testing.T) {
	t.Parallel()
	const index = "environments: {index: 'http://me:s3cret@pypi.example:8080/simple/'}\n"
	for _, tt := range []struct{ name, proxy, from string }{
		{"addresses", "", webAddress},
		{"names", "  resolve_names: true\nnetwork_resolvers: ['" + webAddress + ":5300']\n", webAddress},
		{"no_proxy", "  no_proxy: [pypi.example]\n", daemonAddress},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := newDir(t)
			writeSkill(t, dir, "greet", needsGreet, map[string]string{"scripts/greet.py": "import skgreet\nskgreet.say()\n"})
			d, askers := startBehindProxyWithIndex(t, dir, tt.proxy+index)
			if stdout, stderr, code := prepareBy(t, d, "greet"); code != 0 || !strings.HasSuffix(stdout, "skbase==2.0\nskgreet==1.0\n") {
				t.Fatalf("prepare: got %d, %q, %q", code, stdout, stderr)
			}
			d.run(script("greet", "scripts/greet.py")).wantStdout(t, "hello from base\n")
			askers.Range(func(from, _ any) bool {
				if from != tt.from {
					t.Errorf("%v asked the index, want only %s", from, tt.from)
				}
				return true
			})
			if strings.Contains(d.log.String(), proxySecret) {
				t.Error("the proxy's password is in the log")
			}
			if tt.from == daemonAddress {
				return
			}
			if err := os.WriteFile(filepath.Join(dir, "password"), []byte("wrong"), 0o600); err != nil {
				t.Fatal(err)
			}
			_, stderr, code := prepareBy(t, d, "greet", "--rebuild")
			if code != 125 || !strings.Contains(stderr, "the proxy refused the connection: 401 Unauthorized; it does not accept network_proxy.username and network_proxy.password") {
				t.Errorf("with a wrong password: got %d, %q", code, stderr)
			}
		})
	}
}

// A mistake in the proxy's configuration is told with its key, and without a password.
func TestConfigOfProxy(t *testing.T) {
	const good = "url: 'http://proxy.example:3128'"
	for _, tt := range []struct{ keys, want string }{
		{"{url: 'socks5://proxy:1'}", "network_proxy.url: not the URL of an HTTP proxy; write http://HOST:PORT"},
		{"{url: 'http://proxy.example'}", "network_proxy.url: the URL has no port"},
		{"{url: 'http://proxy.example:0'}", "network_proxy.url: the URL has no port"},
		{"{url: 'http://a:s3cr3t@proxy.example:3128'}", "network_proxy.url: the URL has a user name; write it into network_proxy.username"},
		{"{url: 'http://proxy:s3cr3t'}", "network_proxy.url: not the URL"},
		{"{no_proxy: [a.example]}", "network_proxy: has no url"},
		{"{" + good + ", username: a}", "network_proxy.password: is not set"},
		{"{" + good + ", password: {env: KEY}}", "network_proxy.username: is not set, but network_proxy.password is"},
		{"{" + good + ", username: 'a:b', password: {env: KEY}}", "network_proxy.username"},
		{"{" + good + ", username: a, password: s3cr3t}", "network_proxy.password: not a place"},
		{"{" + good + ", username: a, password: {file: x}}", "network_proxy.password.file: the path is not absolute"},
		{"{" + good + ", ca_file: x}", "network_proxy.ca_file: the path is not absolute"},
		{"{" + good + ", no_proxy: ['a.example:80']}", "network_proxy.no_proxy[0]: \"a.example:80\" is no destination"},
		{"{" + good + ", no_proxy: [10.0.0.0/33]}", "network_proxy.no_proxy[0]"},
		{"{" + good + ", no_proxy: [10.0.0.1/8]}", "network_proxy.no_proxy[0]: \"10.0.0.1/8\": the address has bits beyond the prefix length; write 10.0.0.0/8 or 10.0.0.1"},
		{"{" + good + ", no_proxy: ['[a.example]']}", "network_proxy.no_proxy[0]: \"[a.example]\" is no destination"},
		{"{" + good + ", no_proxy: ['[2001:db8::']}", "network_proxy.no_proxy[0]"},
		{"{" + good + ", no_proxy: [" + strings.Repeat("a.example, ", maxNoProxy+1) + "]}", "network_proxy.no_proxy: 201 entries; at most 200"},
	} {
		_, err := loadConfig(writeConfig(t, "network_proxy: "+tt.keys+"\n"))
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: got %v", tt.keys, err)
		}
	}
	c, err := loadConfig(writeConfig(t, "network_proxy: {url: 'https://[2001:db8::1]:3129/', username: a, password: {env: KEY}, ca_file: /x, resolve_names: true, no_proxy: [10.1.2.3, 'fd00::/8', '[2001:db8::/32]', '[2001:db8::7]', '*.a.example']}\n"))
	if err != nil {
		t.Fatal(err)
	}
	p := c.NetworkProxy.proxy()
	if got := fmt.Sprintf("%+v", *p); got != "{Host:2001:db8::1 Port:3129 Secure:true Username:a Password:the environment variable KEY CA:/x ResolvesNames:true Direct:{Names:[*.a.example] Prefixes:[10.1.2.3/32 fd00::/8 2001:db8::/32 2001:db8::7/128]}}" {
		t.Errorf("got %s", got)
	}
	if none := (&proxyConfig{}).proxy(); none != nil {
		t.Errorf("without a URL: %v", none)
	}
}

// A missing file of the proxy, of a credential or of listen.tls is reported with its key, each on one line.
func TestInspectNamesKeysOfFiles(t *testing.T) {
	path := writeConfig(t, `network:
  credentials:
    - name: a
      domain: a.example
      secret: {file: /none/secret}
    - name: b
      domain: b.example
      secret: {env: NOT_SET_ANYWHERE}
      ca_file: /none/ca
network_proxy:
  url: http://proxy.example:3128
  username: u
  password: {file: /none/password}
  ca_file: /none/proxy-ca
identity: {tokens: tokens}
listen: {tcp: "0.0.0.0:1", tls: {certificate: /none/cert, key: /none/key}}
`)
	c, found, err := readConfig(path)
	if err != nil || found.err() != nil {
		t.Fatal(err, found.err())
	}
	c.inspect(t.Context(), "", found.bad)
	for _, want := range []string{
		"line 5: network.credentials[0].secret.file: open /none/secret: no such file or directory; write a file that the daemon can read",
		"line 9: network.credentials[1].ca_file: open /none/ca: no such file or directory; write a file with the server's authority (PEM)",
		"line 13: network_proxy.password.file: open /none/password: no such file or directory",
		"line 14: network_proxy.ca_file: open /none/proxy-ca: no such file or directory",
		"line 16: listen.tls: stat /none/cert: no such file or directory; stat /none/key: no such file or directory; write a certificate",
	} {
		if err := found.err(); err == nil || !strings.Contains(err.Error(), "\n  "+want) {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
}
