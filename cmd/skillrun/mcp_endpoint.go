package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/skillrun/skillrun/internal/mcp/bridge"
)

// The path and protocol of the daemon's endpoint; internal/mcp has the same. Connections with the same value of
// conversationHeader have the same session of files.
const (
	mcpPath            = "/mcp"
	mcpProtocol        = "skillrun-mcp-lines"
	conversationHeader = "Skillrun-Conversation"
)

// maxUpgradeBytes bounds the daemon's first answer, which net/http reads into memory.
const maxUpgradeBytes = 64 << 10

// An endpoint is where MCP is spoken. network is "unix" or "tcp", as package net has them;
// address is a path or host:port.
type endpoint struct{ network, address string }

// String returns the endpoint in a form that --mcp-address takes.
func (e endpoint) String() string {
	if e.network == "unix" {
		return "unix://" + e.address
	}
	return e.address
}

// local reports whether the bytes to the endpoint stay on this machine.
func (e endpoint) local() bool {
	host, _, err := net.SplitHostPort(e.address)
	ip := net.ParseIP(host)
	return e.network == "unix" || err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// mcpAddress reads an address, or derives it from the daemon's gRPC address.
func mcpAddress(address, daemon string) (endpoint, error) {
	if address == "" {
		e, err := parseEndpoint(daemon)
		if err != nil || e.network != "unix" {
			return e, fmt.Errorf("--mcp-address: can't be derived from the address %q; give unix:///path or host:port, or set %s", daemon, mcpVariable)
		}
		e.address = filepath.Join(filepath.Dir(e.address), "mcp.sock")
		return e, nil
	}
	e, err := parseEndpoint(address)
	if err != nil {
		return e, fmt.Errorf("--mcp-address: %w", err)
	}
	return e, nil
}

// parseEndpoint accepts unix:PATH, unix:///PATH, an absolute path, and host:port, also as a
// tcp://, http:// or https:// URL without a path or with the path /mcp. The caller encrypts the connection to an
// https:// URL.
func parseEndpoint(address string) (endpoint, error) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok || strings.HasPrefix(address, "/") {
		path = strings.TrimPrefix(path, "//")
		if !ok {
			path = address
		}
		if path == "" {
			return endpoint{}, fmt.Errorf("%q names no path", address)
		}
		return endpoint{"unix", path}, nil
	}
	host := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(strings.TrimSuffix(address, "/"), "tcp://"), "http://"), "https://"), mcpPath)
	if _, _, err := net.SplitHostPort(host); err != nil {
		return endpoint{}, fmt.Errorf("%q: want unix:///path or host:port", address)
	}
	return endpoint{"tcp", host}, nil
}

// dial connects to the endpoint and upgrades the connection from HTTP (RFC 9110, section 7.8).
// Connecting is bounded by bridge.ConnectTimeout, the daemon's first answer by that and patience. Every error is
// a codedError that says what to do, or wraps one as a bridge.AbsentError; except a signal's, which is the cause of ctx.
// The caller closes the connection. conversation is the value of conversationHeader.
func (e endpoint) dial(ctx context.Context, via *connection, conversation string, patience time.Duration) (*bridge.Connection, error) {
	config, err := via.config()
	if err != nil {
		return nil, err
	}
	token, err := via.token(ctx)
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{Timeout: bridge.ConnectTimeout}
	conn, err := dialer.DialContext(ctx, e.network, e.address)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		var op *net.OpError
		if errors.As(err, &op) {
			err = op.Err
		}
		gone := &codedError{codeFailed, fmt.Sprintf("no MCP endpoint at %s: %v (is skillrund running? Its config says where it serves MCP: listen.mcp_unix, listen.mcp_tcp; tell this command by --mcp-address or %s)", e, err, mcpVariable)}
		if unknown := (*net.DNSError)(nil); errors.Is(err, fs.ErrPermission) || errors.As(err, &unknown) {
			return nil, gone
		}
		return nil, &bridge.AbsentError{Err: gone}
	}
	raw := conn
	defer context.AfterFunc(ctx, func() { raw.Close() })()
	switch {
	case config != nil && e.network == "tcp":
		// The address has a port: parseEndpoint has checked it.
		if host, _, err := net.SplitHostPort(e.address); err == nil && config.ServerName == "" {
			config.ServerName = host
		}
		conn = tls.Client(conn, config)
	// A Unix socket and a loopback address do not leave the machine, so no other machine can read the token.
	case token != "" && !e.local():
		conn.Close()
		return nil, &codedError{codeFailed, fmt.Sprintf("%s: a token needs an encrypted connection; give --tls or --tls-ca", e)}
	}
	conn.SetDeadline(time.Now().Add(bridge.ConnectTimeout + patience))
	r, err := upgrade(conn, e, token, conversation)
	if err == nil {
		return &bridge.Connection{Conn: conn, R: r}, nil
	}
	conn.Close()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if busy := (*bridge.AbsentError)(nil); errors.As(err, &busy) {
		return nil, &bridge.AbsentError{Err: &codedError{codeFailed, fmt.Sprintf("the MCP endpoint at %s: %v", e, busy.Err)}, Answered: busy.Answered}
	}
	switch refused := (*refusedError)(nil); {
	case errors.As(err, &refused):
		return nil, &codedError{codeFailed, fmt.Sprintf("the MCP endpoint at %s: %v", e, err)}
	case strings.Contains(err.Error(), "tls: "): // see noAnswer
		return nil, &codedError{codeFailed, fmt.Sprintf("the MCP endpoint at %s: %v (%s)", e, err, connectHelp(err.Error()))}
	}
	return nil, &codedError{codeFailed, fmt.Sprintf("%s is no MCP endpoint of this version (%s): %v", e, version, err)}
}

// upgrade asks for a connection without HTTP. The reader may hold the first bytes of that
// connection. After it the connection has no deadline: an agent may be silent for hours. A bridge.AbsentError says
// that the daemon stops, or has no room.
func upgrade(conn net.Conn, e endpoint, token, conversation string) (*bufio.Reader, error) {
	// The daemon refuses a Host that is not this machine, because of DNS rebinding. A Unix
	// socket has no host, but HTTP/1.1 requires the header (RFC 9112, section 3.2).
	host := "localhost"
	if e.network == "tcp" {
		host = e.address
	}
	credential := ""
	if token != "" {
		credential = "Authorization: Bearer " + token + "\r\n"
	}
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n%s%s: %s\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", mcpPath, host, credential, conversationHeader, conversation, mcpProtocol); err != nil {
		return nil, noAnswer(err)
	}
	// After the upgrade the bridge keeps the reader, which may hold bytes of the next
	// messages. Only its limit goes.
	head := &io.LimitedReader{R: conn, N: maxUpgradeBytes}
	r := bufio.NewReader(head)
	resp, err := http.ReadResponse(r, nil)
	if err != nil && head.N == 0 {
		return nil, fmt.Errorf("its first answer is longer than %d bytes", maxUpgradeBytes)
	}
	if err != nil && head.N == maxUpgradeBytes {
		return nil, noAnswer(err) // not one byte came
	}
	if err != nil {
		// The error of net/http would show bytes of HTTP/2 frames.
		return nil, errors.New("it does not answer in HTTP; is it the socket for gRPC?")
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		defer resp.Body.Close()
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		var why struct{ Error struct{ Message string } }
		err := errors.New(resp.Status)
		if json.Unmarshal(body, &why) == nil && why.Error.Message != "" {
			err = fmt.Errorf("%s: %s", resp.Status, why.Error.Message)
		}
		if resp.StatusCode == http.StatusServiceUnavailable || resp.StatusCode == http.StatusTooManyRequests {
			return nil, &bridge.AbsentError{Err: err, Answered: true}
		}
		if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden {
			return nil, &refusedError{err}
		}
		return nil, err
	}
	head.N = math.MaxInt64 // messages have their own bound
	return r, conn.SetDeadline(time.Time{})
}

// A refusedError is the daemon's answer to a caller that it does not accept.
type refusedError struct{ error }

// noAnswer returns the error for a daemon that has ended the connection without an answer. It returns err unchanged if
// one of the two sides did not trust the other's certificate.
func noAnswer(err error) error {
	// An alert of the other side has no exported type (crypto/tls).
	if strings.Contains(err.Error(), "tls: ") {
		return err
	}
	return &bridge.AbsentError{Err: fmt.Errorf("no answer: %w", err)}
}
