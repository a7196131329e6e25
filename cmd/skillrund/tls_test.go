package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/skillrun/skillrun/internal/certtest"
)

// grpcurl returns the path of grpcurl, which make tools installs.
func grpcurl(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("grpcurl"); err == nil {
		return path
	}
	path, err := filepath.Abs("../../.tools/grpcurl")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// mcpTCPAddress is tcpAddress of the MCP listener.
func mcpTCPAddress(t *testing.T, d *running) string {
	t.Helper()
	for line := range strings.Lines(d.log.String()) {
		if _, rest, ok := strings.Cut(line, `msg="listening for MCP" network=tcp address=`); ok {
			return strings.TrimSpace(rest)
		}
	}
	t.Fatalf("no TCP address of MCP in the log:\n%s", d.log.String())
	return ""
}

// gRPC and MCP over TLS, on addresses for other machines; a renewed certificate is in force at
// once.
func TestTLSListeners(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	a := certtest.NewAuthority(t, "authority")
	a.Server("one").Write(dir, "daemon")
	d := startDaemonIn(t, dir, `
listen:
  unix: s.sock
  tcp: "0.0.0.0:0"
  mcp_tcp: "[::]:0"
  tls: {certificate: daemon.crt, key: daemon.key}
identity: {tokens: tokens.json}
`)
	// The daemon logs "[::]:PORT" for both.
	_, port, _ := strings.Cut(tcpAddress(t, d), "]:")
	address := "localhost:" + port
	if out, err := exec.Command(grpcurl(t), "-plaintext", "-connect-timeout", "60", address, "grpc.health.v1.Health/Check").CombinedOutput(); err == nil {
		t.Errorf("without TLS: %s", out)
	}
	_, port, _ = strings.Cut(mcpTCPAddress(t, d), "]:")
	overTLS := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: a.Roots()}}}
	r, err := overTLS.Get("https://localhost:" + port + "/elsewhere")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(r.Body)
	r.Body.Close()
	if err != nil || r.StatusCode != http.StatusNotFound || !strings.Contains(string(body), "the endpoint is /mcp") {
		t.Errorf("MCP: got %v %s, %v", r.Status, body, err)
	}

	probe := func(certificate string) {
		t.Helper()
		if err := probeTLS(t, address, a, certificate); err != nil {
			t.Error(err)
		}
	}
	probe("one")
	a.Server("two").Write(dir, "daemon")
	probe("two")
}

// probeTLS asks for the health of a daemon whose certificate must have a name. It sends no
// credential.
func probeTLS(t *testing.T, address string, a *certtest.Authority, certificate string) error {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		RootCAs: a.Roots(),
		VerifyConnection: func(state tls.ConnectionState) error {
			if got := state.PeerCertificates[0].Subject.CommonName; got != certificate {
				t.Errorf("the certificate is %q, want %q", got, certificate)
			}
			return nil
		},
	})))
	if err != nil {
		return err
	}
	defer conn.Close()
	h, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
	if err == nil && h.Status != healthpb.HealthCheckResponse_SERVING {
		err = fmt.Errorf("the daemon says %s", h.Status)
	}
	return err
}
