package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

func TestMCPAddress(t *testing.T) {
	for _, tt := range []struct{ address, daemon, want, err string }{
		{"", "unix:///run/skillrun/skillrun.sock", "unix:///run/skillrun/mcp.sock", ""},
		{"", "/x/s.sock", "unix:///x/mcp.sock", ""},
		{"", "unix:relative/s.sock", "unix://relative/mcp.sock", ""},
		{"", "127.0.0.1:7777", "", "can't be derived"},
		{"", "dns:///x:1", "", "can't be derived"},
		{"unix:///x/y", "127.0.0.1:7777", "unix:///x/y", ""},
		{"/x/y", "", "unix:///x/y", ""},
		{"127.0.0.1:1", "", "127.0.0.1:1", ""},
		{"tcp://[::1]:1", "", "[::1]:1", ""},
		{"http://localhost:1/mcp", "", "localhost:1", ""},
		{"https://localhost:1/", "", "localhost:1", ""},
		{"localhost", "", "", "want unix:///path or host:port"},
		{"unix:", "", "", "names no path"},
	} {
		got, err := mcpAddress(tt.address, tt.daemon)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%q, %q: got %v, want %s", tt.address, tt.daemon, err, tt.err)
			}
			continue
		}
		if err != nil || got.String() != tt.want {
			t.Errorf("%q, %q: got %v, %v, want %s", tt.address, tt.daemon, got, err, tt.want)
		}
	}
}

// endpointOf serves connections on a Unix socket, one after the other, and returns its address.
func endpointOf(t *testing.T, serve func(net.Conn, *bufio.Reader)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mcp.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serve(conn, bufio.NewReader(conn))
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return "unix://" + path
}

// switching reads a request and answers it as the daemon does.
func switching(conn net.Conn, r *bufio.Reader, more string) error {
	req, err := http.ReadRequest(r)
	if err != nil || req.URL.Path != mcpPath || req.Header.Get("Upgrade") != mcpProtocol {
		return fmt.Errorf("%v %v", req, err)
	}
	_, err = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+mcpProtocol+"\r\n\r\n"+more)
	return err
}

func runMCP(ctx context.Context, address string, stdin io.Reader) result {
	var stdout, stderr bytes.Buffer
	code := run(ctx, []string{"mcp", "--wait", "0", "--mcp-address", address}, stdin, &stdout, &stderr)
	return result{code, stdout.String(), stderr.String()}
}

// The end of standard input ends the connection, and the command with 0.
func TestMCPInputEnds(t *testing.T) {
	lines := make(chan string, 10)
	address := endpointOf(t, func(conn net.Conn, r *bufio.Reader) {
		defer close(lines)
		if err := switching(conn, r, ""); err != nil {
			t.Error(err)
		}
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			lines <- line
		}
	})
	got := runMCP(t.Context(), address, strings.NewReader("{\"id\":1}\n{\"id\":2}"))
	if got != (result{0, "", ""}) {
		t.Errorf("got %+v", got)
	}
	if first, second := <-lines, <-lines; first != "{\"id\":1}\n" || second != "{\"id\":2}\n" {
		t.Errorf("the daemon got %q, %q", first, second)
	}
	if more, open := <-lines; open {
		t.Errorf("the daemon got more: %q", more)
	}
}

func TestMCPInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	address := endpointOf(t, func(conn net.Conn, r *bufio.Reader) {
		if err := switching(conn, r, ""); err != nil {
			t.Error(err)
		}
		cancel(&interrupt{15})
		io.Copy(io.Discard, r) // until the client hangs up
	})
	stdin, agent := io.Pipe()
	defer agent.Close()
	if got := runMCP(ctx, address, stdin); got.code != codeTerminated || got.stdout != "" {
		t.Errorf("got %+v", got)
	}
}

func TestMCPRefused(t *testing.T) {
	answer := func(text string) func(net.Conn, *bufio.Reader) {
		return func(conn net.Conn, r *bufio.Reader) {
			http.ReadRequest(r)
			io.WriteString(conn, text)
		}
	}
	for _, tt := range []struct{ name, address, want string }{
		{"nobody there", "unix://" + filepath.Join(t.TempDir(), "none.sock"), "no such file or directory (is skillrund running?"},
		{"a closed port", "127.0.0.1:1", "connection refused (is skillrund running?"},
		{"no HTTP", endpointOf(t, answer("hello\n")), "does not answer in HTTP"},
		{"another server", endpointOf(t, answer("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")), "is no MCP endpoint of this version"},
		{"a refusal", endpointOf(t, answer("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 40\r\n\r\n"+`{"error":{"message":"come back later"}}`+" ")), "503 Service Unavailable: come back later"},
		{"a bad token", endpointOf(t, answer("HTTP/1.1 401 Unauthorized\r\nContent-Length: 40\r\n\r\n"+`{"error":{"message":"the token is old"}}`)), "skillrun: the MCP endpoint at "},
		{"no answer", endpointOf(t, func(conn net.Conn, r *bufio.Reader) { http.ReadRequest(r) }), "no answer: unexpected EOF"},
		{"escapes", endpointOf(t, answer("HTTP/1.1 503 \x1b[31m\r\nContent-Length: 38\r\n\r\n"+`{"error":{"message":"\u001b[2Jevil"}}  `)), `503 \x1b[31m: \x1b[2Jevil`},
		{"a header without end", endpointOf(t, func(conn net.Conn, r *bufio.Reader) {
			http.ReadRequest(r)
			io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n")
			for {
				if _, err := io.WriteString(conn, "X-Long: "+strings.Repeat("x", 4<<10)+"\r\n"); err != nil {
					return
				}
			}
		}), "first answer is longer than 65536 bytes"},
		{"no address", "nowhere", "want unix:///path or host:port (see 'skillrun mcp --help')"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := runMCP(t.Context(), tt.address, strings.NewReader(""))
			if got.code != codeFailed || got.stdout != "" || !strings.Contains(got.stderr, tt.want) || strings.Count(got.stderr, "\n") != 1 {
				t.Errorf("got %+v, want %s", got, tt.want)
			}
		})
	}
}

// An https:// address encrypts the connection without --tls.
func TestMCPOverHTTPS(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	first := make(chan byte, 10)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			b, _ := bufio.NewReader(conn).ReadByte()
			conn.Close()
			first <- b
		}
	}()
	address := "https://" + l.Addr().String()
	for _, args := range [][]string{{"--mcp-address", address}, nil} {
		if args == nil {
			t.Setenv(mcpVariable, address)
		}
		code := run(t.Context(), append([]string{"mcp", "--wait", "0"}, args...), strings.NewReader(""), io.Discard, io.Discard)
		if got := <-first; got != 0x16 || code != codeFailed { // a TLS handshake record, RFC 8446, section 5.1
			t.Errorf("%q: the first byte is %#x, the code %d", args, got, code)
		}
	}
}

// An agent that no longer reads ends the command.
func TestMCPAgentStopsReading(t *testing.T) {
	address := endpointOf(t, func(conn net.Conn, r *bufio.Reader) {
		if err := switching(conn, r, "{}\n"); err != nil {
			t.Error(err)
		}
		io.Copy(io.Discard, r)
	})
	stdin, agent := io.Pipe()
	defer agent.Close()
	r, w := io.Pipe()
	r.Close()
	var stderr bytes.Buffer
	if code := run(t.Context(), []string{"mcp", "--mcp-address", address}, stdin, w, &stderr); code != codeFailed || !strings.Contains(stderr.String(), "write messages") {
		t.Errorf("got %d, %s", code, stderr.String())
	}
}
