package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	skillrun "github.com/skillrun/skillrun/clients/go"
	"github.com/skillrun/skillrun/internal/certtest"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A secured is a daemon with TLS, tokens and client certificates.
type secured struct {
	*running
	authority *certtest.Authority
	clients   *certtest.Authority
	address   string // of gRPC, host:port
	mcp       string // the URL of MCP
}

func startSecured(t *testing.T, extra string) *secured {
	t.Helper()
	return startSecuredOn(t, "", extra)
}

// startSecuredOn is startSecured with more keys of listen.
func startSecuredOn(t *testing.T, listen, extra string) *secured {
	t.Helper()
	dir := newDir(t)
	s := &secured{authority: certtest.NewAuthority(t, "authority"), clients: certtest.NewAuthority(t, "clients", "spiffe://example.org")}
	s.authority.Server("daemon").Write(dir, "daemon")
	s.authority.WriteRoots(filepath.Join(dir, "ca.crt"))
	s.clients.WriteRoots(filepath.Join(dir, "clients.crt"))
	s.running = startDaemonIn(t, dir, `
listen:
  unix: s.sock
  tcp: "127.0.0.1:0"
  mcp_tcp: "127.0.0.1:0"
  tls: {certificate: daemon.crt, key: daemon.key}
`+listen+`
identity:
  tokens: tokens.json
  authorities: clients.crt
  spiffe: {example.org: clients.crt}
  callers:
    - {caller: "subject:CN=agent", tenant: acme, role: read}
    - {caller: "spiffe://example.org/agents/*", tenant: globex, role: invoke}
`+extra)
	s.address = tcpAddress(t, s.running)
	s.mcp = "https://" + mcpTCPAddress(t, s.running) + "/mcp"
	return s
}

// token runs skillrund token for the daemon's configuration and returns its output.
func (d *running) token(args ...string) string {
	d.t.Helper()
	cmd := exec.Command(binary(d.t, "skillrund"), append([]string{"--config", d.dir + "/skillrund.yaml", "token"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		d.t.Fatalf("skillrund token %v: %v\n%s", args, err, &stderr)
	}
	return strings.TrimSpace(string(out))
}

// trust is a client's TLS without a certificate.
func (s *secured) trust() *tls.Config { return &tls.Config{RootCAs: s.authority.Roots()} }

// connect returns a connection with a certificate, if pair is not nil.
func (s *secured) connect(pair *certtest.Pair) *grpc.ClientConn {
	s.t.Helper()
	config := s.trust()
	if pair != nil {
		config.Certificates = []tls.Certificate{pair.TLS()}
	}
	conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	return conn
}

// with returns a context whose calls have a token.
func with(ctx context.Context, token string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
}

// wantReason checks the code and the reason of a refused call.
func wantReason(t *testing.T, err error, code codes.Code, reason, text string) {
	t.Helper()
	if status.Code(err) != code || skillrun.Reason(err) != reason || !strings.Contains(status.Convert(err).Message(), text) {
		t.Errorf("got %v (%s), want %s %s with %q", err, skillrun.Reason(err), code, reason, text)
	}
}

// Tokens and certificates over TLS, with grpcurl, gRPC and MCP: each caller has its tenant and its
// role, and another tenant's execution does not exist.
func TestCredentials(t *testing.T) {
	t.Parallel()
	s := startSecured(t, "")
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	acme := s.token("create", "--tenant", "acme", "--name", "ci", "--role", "invoke")
	globex := s.token("create", "--tenant", "globex", "--name", "ci", "--role", "admin", "--expires", "0")
	reader := s.token("create", "--tenant", "acme", "--name", "reader", "--role", "read")

	out, err := exec.Command(grpcurl(t), "-cacert", s.dir+"/ca.crt", "-H", "Authorization: Bearer "+acme,
		"-d", `{"skill":"calculator","code":{"text":"echo 42","language":"bash"}}`, s.address, "skillrun.v1.ExecutionService/Execute").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "NDIK") { // base64 of "42\n"
		t.Errorf("grpcurl: %v\n%s", err, out)
	}

	runs := executionClient{pb.NewExecutionServiceClient(s.connect(nil))}
	stream, err := runs.Execute(with(ctx, acme), shell("calculator", "echo hello"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := collect(t, stream, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.wantStdout(t, "hello\n")
	get := &pb.GetExecutionRequest{ExecutionId: r.id}
	if e, err := runs.GetExecution(with(ctx, reader), get); err != nil || e.Principal != "token:ci" {
		t.Errorf("a reader of the tenant: got %v, %v", e, err)
	}
	_, err = runs.GetExecution(with(ctx, globex), get)
	wantReason(t, err, codes.NotFound, "EXECUTION_NOT_FOUND", "")
	if list, err := runs.ListExecutions(with(ctx, globex), &pb.ListExecutionsRequest{}); err != nil || len(list.Executions) > 0 {
		t.Errorf("another tenant's list: %v, %v", list, err)
	}
	if e, err := s.runs.GetExecution(ctx, get); err != nil || e.Tenant != "acme" { // over the Unix socket: an operator
		t.Errorf("an operator: got %v, %v", e, err)
	}
	stream, err = runs.Execute(with(ctx, reader), shell("calculator", "echo hello"))
	if err == nil {
		_, err = stream.Recv()
	}
	wantReason(t, err, codes.PermissionDenied, "ROLE_REQUIRED", "this call needs the role invoke; token:reader of tenant acme has read")

	agent := executionClient{pb.NewExecutionServiceClient(s.connect(s.clients.Client("agent", nil)))}
	if e, err := agent.GetExecution(ctx, get); err != nil || e.Principal != "token:ci" {
		t.Errorf("a certificate: got %v, %v", e, err)
	}
	workload := executionClient{pb.NewExecutionServiceClient(s.connect(s.clients.Client("", nil, "spiffe://example.org/agents/7")))}
	_, err = workload.GetExecution(ctx, get)
	wantReason(t, err, codes.NotFound, "EXECUTION_NOT_FOUND", "")
	stream, err = workload.Execute(ctx, shell("calculator", "echo hello"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err = collect(t, stream, 0, nil); err != nil {
		t.Fatal(err)
	}
	if list, err := runs.ListExecutions(with(ctx, globex), &pb.ListExecutionsRequest{}); err != nil || len(list.Executions) != 1 || list.Executions[0].Principal != "spiffe://example.org/agents/7" {
		t.Errorf("the tenant's list: %v, %v", list, err)
	}

	overTLS := &http.Client{Transport: bearing{&http.Transport{TLSClientConfig: s.trust()}, acme}}
	c, err := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil).Connect(ctx, &mcp.StreamableClientTransport{Endpoint: s.mcp, HTTPClient: overTLS}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	answer, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "run_skill_script", Arguments: map[string]any{
		"skill": "calculator", "script_path": "scripts/calc.py", "arguments": map[string]any{"expression": "6*7"},
	}})
	if err != nil || answer.IsError || !strings.Contains(fmt.Sprint(answer.StructuredContent), "42") {
		t.Errorf("MCP: got %+v, %v", answer, err)
	}
	if limit := dumpLimitOf(t, strconv.Itoa(s.cmd.Process.Pid)); limit == nil || limit.Cur > 1 {
		t.Errorf("a crash may dump the daemon's memory: the limit is %v", limit)
	}
	for _, secret := range []string{acme, globex, reader} {
		if strings.Contains(s.log.String(), secret[len(secret)-20:]) {
			t.Error("the log has a token")
		}
	}
}

// bearing adds a token to each request.
type bearing struct {
	http.RoundTripper
	token string
}

func (b bearing) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.RoundTripper.RoundTrip(r)
}

// A call without a valid credential gets UNAUTHENTICATED with a reason, for gRPC and for MCP. Health
// checks work without a credential.
func TestCredentialsThatAreRefused(t *testing.T) {
	t.Parallel()
	s := startSecured(t, "")
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	revoked := s.token("create", "--name", "old", "--role", "invoke")
	id := strings.Split(revoked, "_")[1]
	if list := s.token("list"); !strings.Contains(list, id) || strings.Contains(list, revoked) {
		t.Errorf("token list: %s", list)
	}
	overTLS := pb.NewSystemServiceClient(s.connect(nil))
	if _, err := overTLS.GetCapabilities(with(ctx, revoked), &pb.GetCapabilitiesRequest{}); err != nil {
		t.Error(err)
	}
	s.token("revoke", id)
	expired := s.token("create", "--name", "short", "--role", "invoke", "--expires", "1ns")
	for _, c := range []struct{ name, token, want string }{
		{"nothing", "", "no credential was sent; send a token (Authorization: Bearer) or a client certificate"},
		{"revoked", revoked, "the token is unknown, or it was revoked"},
		{"expired", expired, "the token has expired at"},
		{"oversized", strings.Repeat("x", 9000), "the token has 9000 bytes; a token has at most 8192"},
		{"algorithm none", "eyJhbGciOiJub25lIn0.eyJpc3MiOiJodHRwczovL2EifQ.", "the token is not one of this daemon"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, client := ctx, &http.Client{Transport: &http.Transport{TLSClientConfig: s.trust()}}
			if c.token != "" {
				ctx, client.Transport = with(ctx, c.token), bearing{client.Transport, c.token}
			}
			_, err := overTLS.GetCapabilities(ctx, &pb.GetCapabilitiesRequest{})
			wantReason(t, err, codes.Unauthenticated, "UNIDENTIFIED", c.want)
			r, err := client.Post(s.mcp, "application/json", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
			if err != nil {
				t.Fatal(err)
			}
			r.Body.Close()
			if r.StatusCode != http.StatusUnauthorized {
				t.Errorf("MCP: got %s, want 401", r.Status)
			}
		})
	}
	past := func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }
	for _, c := range []struct {
		name string
		pair *certtest.Pair
		want string
	}{
		{"another authority", certtest.NewAuthority(t, "clients").Client("agent", nil), "signed by unknown authority"},
		{"an expired certificate", s.clients.Client("agent", past), "has expired"},
		{"two SPIFFE IDs", s.clients.Client("", nil, "spiffe://example.org/agents/1", "spiffe://example.org/agents/2"), "more than one URI SAN"},
		{"no row", s.clients.Client("stranger", nil), "subject:CN=stranger has no row in identity.callers or in a tenant's callers"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := pb.NewSystemServiceClient(s.connect(c.pair)).GetCapabilities(ctx, &pb.GetCapabilitiesRequest{})
			wantReason(t, err, codes.Unauthenticated, "UNIDENTIFIED", c.want)
		})
	}
	if err := probeTLS(t, s.address, s.authority, "daemon"); err != nil {
		t.Errorf("health: %v", err)
	}
	if !strings.Contains(s.log.String(), "callers not identified") {
		t.Error("the log has no line about the callers that were not identified")
	}
}

// The daemon closes the connection of a client whose handshake is too slow, and serves other clients at
// the same time.
func TestSlowTLSHandshake(t *testing.T) {
	t.Parallel()
	s := startSecured(t, "")
	slow, err := net.Dial("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	if _, err := slow.Write([]byte{22, 3, 1, 1, 0}); err != nil { // the header of a TLS record
		t.Fatal(err)
	}
	token := s.token("create", "--name", "a", "--role", "read")
	if _, err := pb.NewSystemServiceClient(s.connect(nil)).GetCapabilities(with(t.Context(), token), &pb.GetCapabilitiesRequest{}); err != nil {
		t.Error(err)
	}
	slow.SetReadDeadline(time.Now().Add(patience))
	if _, err := slow.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Errorf("got %v; want the connection closed", err)
	}
}

// The help of a command needs no configuration.
func TestHelpOfCommands(t *testing.T) {
	for _, args := range [][]string{{"token", "--help"}, {"token", "create", "-h"}, {"audit", "-help"}, {"audit", "verify", "--help"}} {
		if err := run(args, filepath.Join(t.TempDir(), "none.yaml"), false, false, false); err != nil {
			t.Errorf("%q: got %v", args, err)
		}
	}
}

func TestTokenCommand(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "c.yaml")
	if err := os.WriteFile(path, []byte("identity: {tokens: tokens.json}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := loadConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (out, notes string, err error) {
		var o, n bytes.Buffer
		err = tokenCommand(c, args, &o, &n)
		return o.String(), n.String(), err
	}
	out, notes, err := run("create", "--name", "ci", "--role", "admin", "--expires", "0")
	if err != nil || !strings.HasPrefix(out, "skillrun_") || strings.Count(out, "\n") != 1 || !strings.Contains(notes, "of tenant default, role admin, expires never; it can't be shown again") {
		t.Errorf("got %q, %q, %v", out, notes, err)
	}
	if _, _, err := run("create", "--name", "old", "--role", "read", "--expires", "1ns"); err != nil {
		t.Error(err)
	}
	list, _, err := run("list")
	if err != nil || !strings.Contains(list, "ID") || !strings.Contains(list, "never") || !strings.Contains(list, "(expired)") || strings.Contains(list, strings.TrimSpace(out)) {
		t.Errorf("got %q, %v", list, err)
	}
	id := strings.Split(out, "_")[1]
	if _, notes, err = run("revoke", "nobodys", id); err == nil || !strings.Contains(err.Error(), `"nobodys": no such token`) || !strings.Contains(notes, id+" is revoked") {
		t.Errorf("got %q, %v", notes, err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "token: which command?\nusage: skillrund"},
		{[]string{"make"}, `token "make": no such command`},
		{[]string{"create", "--name", "a"}, `"" is not a role; write read, invoke, admin or operator`},
		{[]string{"create", "--role", "read"}, "can't be the name of a token"},
		{[]string{"create", "--name", "a", "--role", "read", "--tenant", "../x"}, "is not a name of a tenant"},
		{[]string{"create", "--name", "a", "--role", "read", "--expires", "-1h"}, "is in the past"},
		{[]string{"create", "--name", "a", "--role", "read", "--expires", "90d"}, "want hours, such as 720h for 30 days"},
		{[]string{"create", "--name", "a", "--role", "read", "more"}, `"more" is too much`},
		{[]string{"create", "--nome"}, "flag provided but not defined: --nome"},
		{[]string{"list", "more"}, `"more" is too much`},
		{[]string{"revoke"}, "which one?"},
	} {
		if _, _, err := run(c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v, want %q", c.args, err, c.want)
		}
	}
	c.Identity.Tokens = ""
	if _, _, err := run("list"); err == nil || !strings.Contains(err.Error(), "set identity.tokens") {
		t.Errorf("got %v", err)
	}
}

// The command, its bridge for agents, and the clients for Go and Python, over TLS with a token.
func TestClientsWithCredentials(t *testing.T) {
	t.Parallel()
	s := startSecured(t, "")
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	token := s.token("create", "--tenant", "acme", "--name", "ci", "--role", "invoke")
	tokenFile, ca := filepath.Join(s.dir, "ci.token"), filepath.Join(s.dir, "ca.crt")
	if err := os.WriteFile(tokenFile, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	agentCert, agentKey := s.clients.Client("agent", nil).Write(s.dir, "agent")
	t.Run("command", func(t *testing.T) {
		out, err := exec.Command(binary(t, "skillrun"), "--address", s.address, "--tls-ca", ca, "--token-file", tokenFile,
			"run", "calculator", "scripts/calc.py", "6*7").CombinedOutput()
		if err != nil || !strings.Contains(string(out), "42") {
			t.Errorf("%v\n%s", err, out)
		}
		ps := exec.Command(binary(t, "skillrun"), "--address", s.address, "--tls-cert", agentCert, "--tls-key", agentKey, "ps", "--all")
		ps.Env = append(os.Environ(), "SKILLRUN_TLS_CA="+ca)
		if out, err := ps.CombinedOutput(); err != nil || !strings.Contains(string(out), "calculator") {
			t.Errorf("ps by certificate: %v\n%s", err, out)
		}
		out, err = exec.Command(binary(t, "skillrun"), "--address", s.address, "--tls-ca", ca, "ps").CombinedOutput()
		if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 126 || !strings.Contains(string(out), "no credential was sent") {
			t.Errorf("without a token: %v\n%s", err, out)
		}
	})
	t.Run("bridge", func(t *testing.T) {
		address := strings.TrimPrefix(strings.TrimSuffix(s.mcp, "/mcp"), "https://")
		bridge := exec.Command(binary(t, "skillrun"), "--tls-ca", ca, "--token-file", tokenFile, "mcp", "--mcp-address", address)
		c, err := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil).Connect(ctx, &mcp.CommandTransport{Command: bridge}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.ListTools(ctx, nil); err != nil {
			t.Error(err)
		}
	})
	t.Run("context", func(t *testing.T) {
		skillrun := func(args ...string) *exec.Cmd {
			cmd := exec.Command(binary(t, "skillrun"), args...)
			cmd.Env = append(os.Environ(), "SKILLRUN_CONTEXT_FILE="+s.dir+"/contexts.yaml")
			return cmd
		}
		for _, args := range [][]string{
			{"context", "set", "prod", "--address", s.address, "--mcp-address", s.mcp, "--tls-ca", ca, "--", "cat", tokenFile},
			{"context", "use", "prod"},
		} {
			if out, err := skillrun(args...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %v\n%s", args, err, out)
			}
		}
		out, err := skillrun("run", "calculator", "scripts/calc.py", "6*7").CombinedOutput()
		if err != nil || !strings.Contains(string(out), "42") {
			t.Errorf("%v\n%s", err, out)
		}
		c, err := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil).Connect(ctx, &mcp.CommandTransport{Command: skillrun("mcp")}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.ListTools(ctx, nil); err != nil {
			t.Error(err)
		}
	})
	t.Run("Go", func(t *testing.T) {
		config, err := skillrun.TLSFiles{CA: ca}.Config()
		if err != nil {
			t.Fatal(err)
		}
		c, err := skillrun.Dial(s.address, skillrun.WithTLS(config), skillrun.WithToken(token))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		out, err := c.Script("calculator", "scripts/calc.py", "6*7").Output(ctx)
		if err != nil || !strings.Contains(string(out), "42") {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("Python", func(t *testing.T) {
		client := exec.Command("/usr/bin/python3", "-c", `
import sys, skillrun
address, ca, token, cert, key, socket = sys.argv[1:]
with skillrun.connect(address, tls_ca=ca, token_file=token) as c:
    print(c.run("calculator", script="scripts/calc.py", args=["6*7"]).result().stdout.decode())
with skillrun.connect(socket, token=open(token).read()) as c:
    print("over the socket:", {e.principal for e in c.executions()})
with skillrun.connect(address, tls_ca=ca, tls_cert=cert, tls_key=key) as c:
    print("by certificate:", {e.principal for e in c.executions()})
for wrong in {"token": "x"}, {"tls_cert": cert}, {"token": "x", "token_file": token}:
    try:
        skillrun.connect("192.0.2.1:7", **wrong)
    except ValueError as e:
        print("refused:", e)
`, s.address, ca, tokenFile, agentCert, agentKey, "unix://"+s.dir+"/s.sock")
		client.Env = append(os.Environ(), "PYTHONPATH=../../clients/python")
		out, err := client.CombinedOutput()
		for _, want := range []string{"42", "over the socket: {'token:ci'}", "by certificate: {'token:ci'}",
			"refused: a token needs an encrypted connection", "refused: tls_cert and tls_key go together", "refused: token and token_file: give one of them"} {
			if err != nil || !strings.Contains(string(out), want) {
				t.Fatalf("%v\n%s\nwant %q", err, out, want)
			}
		}
	})
}

// A key that every user may read is a mistake in the configuration.
func TestKeyForEveryUser(t *testing.T) {
	dir := t.TempDir()
	_, key := certtest.NewAuthority(t, "authority").Server("daemon").Write(dir, "daemon")
	for mode, want := range map[os.FileMode]string{
		0o600: "", 0o640: "",
		0o644: "listen.tls.key: " + key + " has the mode 0644, so every user may read it; run chmod o= " + key,
	} {
		if err := os.Chmod(key, mode); err != nil {
			t.Fatal(err)
		}
		var found []string
		c := defaultConfig()
		c.Listen.TLS.Certificate, c.Listen.TLS.Key = filepath.Join(dir, "daemon.crt"), key
		c.inspect(t.Context(), "", func(at, format string, args ...any) {
			if at == "listen.tls.key" {
				found = append(found, at+": "+fmt.Sprintf(format, args...))
			}
		})
		if got := strings.Join(found, "; "); got != want {
			t.Errorf("%04o: got %q, want %q", mode, got, want)
		}
	}
}

// The Python clients for threads and for asyncio send tokens over TLS, a Unix socket and a loopback
// address. The token may be a text, in a file, or come from a function.
func TestPythonTokens(t *testing.T) {
	t.Parallel()
	s := startSecured(t, "")
	dir := newDir(t)
	plain := startDaemonIn(t, dir, "listen: {unix: s.sock, tcp: \"127.0.0.1:0\"}\nidentity: {tokens: tokens.json}\n")
	for name, d := range map[string]*secured{"TLS": s, "plain": {running: plain}} {
		token := d.token("create", "--tenant", "acme", "--name", "ci", "--role", "invoke")
		if err := os.WriteFile(filepath.Join(dir, name), []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	client := exec.Command(debianPython, "-c", `
import asyncio, sys, skillrun
from skillrun import aio
tls, ca, plain, socket, dir = sys.argv[1:]
read = lambda name: open(dir + "/" + name).read()
ways = [(tls, {"tls_ca": ca, "token_file": dir + "/TLS"}), (tls, {"tls_ca": ca, "token": lambda: read("TLS")}),
        (plain, {"token": read("plain")}), (plain, {"token": lambda: read("plain")}), (socket, {"token_file": dir + "/plain"})]
def check(who):
    assert who == "token:ci", who
for address, options in ways:
    with skillrun.connect(address, **options) as c:
        run = c.run("calculator", script="scripts/calc.py", args=["6*7"], stdin=iter([b""]))
        assert b"42" in run.result().check().stdout
        check(c.execution(run.id).principal)
async def main():
    for address, options in ways:
        async with aio.connect(address, **options) as c:
            run = await c.run("calculator", script="scripts/calc.py", args=["6*7"], stdin=iter([b""]))
            assert b"42" in (await run.result()).check().stdout
            check((await c.execution(run.id)).principal)
            run = await c.run_code("calculator", "print(1)")
            check((await (await run.check())._client.execution(run.id)).principal)
    def fail(): raise OSError("locked")
    for wrong in fail, lambda: "":
        async with aio.connect(plain, token=wrong) as c:
            try:
                await c.capabilities()
            except skillrun.Unauthenticated as e:
                print("aio:", e)
        with skillrun.connect(plain, token=wrong) as c:
            try:
                c.capabilities()
            except skillrun.Unauthenticated as e:
                print("sync:", e)
asyncio.run(main())
for connect in skillrun.connect, aio.connect:
    try:
        connect("192.0.2.1:7", token="x")
    except ValueError as e:
        print("refused:", e)
`, s.address, filepath.Join(s.dir, "ca.crt"), tcpAddress(t, plain), "unix://"+plain.dir+"/s.sock", dir)
	client.Env = append(os.Environ(), "PYTHONPATH=../../clients/python", "PYTHONDONTWRITEBYTECODE=1", "no_proxy=*", "no_grpc_proxy=*")
	out, err := client.CombinedOutput()
	for want, n := range map[string]int{
		"refused: a token needs an encrypted connection": 2,
		"aio: token: locked":                             1, "sync: token: locked": 1, "aio: token: it is empty": 1, "sync: token: it is empty": 1,
	} {
		if err != nil || strings.Count(string(out), want) != n {
			t.Errorf("%v\n%s\nwant %q %d times", err, out, want, n)
		}
	}
}
