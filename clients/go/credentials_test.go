package skillrun

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The client sends a token only over TLS, a Unix socket or loopback, where other users can't read it.
func TestTokensNeedASafeConnection(t *testing.T) {
	for address, safe := range map[string]bool{
		"": true, "/run/x.sock": true, "unix:///run/x.sock": true, "127.0.0.1:1": true, "[::1]:1": true, "localhost:1": true, "tcp://127.0.0.1:1": true,
		"192.0.2.1:1": false, "daemon.example.org:1": false, "dns:///daemon.example.org:1": false, "127.0.0.1.example.org:1": false,
	} {
		c, err := Dial(address, WithToken("x"))
		if (err == nil) != safe || err != nil && !errors.Is(err, ErrTokenInClear) {
			t.Errorf("%q: got %v", address, err)
		}
		if err == nil {
			c.Close()
		}
		if c, err = Dial(address, WithToken("x"), WithTLS(nil)); err != nil {
			t.Errorf("%q with TLS: %v", address, err)
		} else {
			c.Close()
		}
	}
}

func TestTokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	source := WithTokenFile(path).(tokenOption).source
	got := func() (string, error) {
		m, err := tokenCredentials{source: source}.GetRequestMetadata(context.Background())
		return m["authorization"], err
	}
	if _, err := got(); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("got %v", err)
	}
	for _, text := range []string{"one\n", " two"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if header, err := got(); err != nil || header != "Bearer "+strings.TrimSpace(text) {
			t.Errorf("got %q, %v", header, err)
		}
	}
	if err := os.WriteFile(path, []byte(strings.Repeat("x", maxTokenBytes+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := got(); err == nil || !strings.Contains(err.Error(), "has at most 8192") {
		t.Errorf("got %v", err)
	}
	if err := os.WriteFile(path, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := got(); err == nil || !strings.Contains(err.Error(), "it is empty") {
		t.Errorf("got %v", err)
	}
}

// A token that can't be had is a status without words of gRPC, so that the call fails with this text.
func TestNoToken(t *testing.T) {
	gone := filepath.Join(t.TempDir(), "gone")
	refused := status.Error(codes.PermissionDenied, "the issuer refuses")
	for _, tt := range []struct {
		option grpc.DialOption
		want   string
	}{
		{WithTokenFile(gone), gone + ": no such file or directory"},
		{WithToken(" "), "it is empty"},
		{WithTokenCommand(gone), "command " + gone + ": fork/exec " + gone + ": no such file or directory"},
		{WithTokenFunc(func(context.Context) (string, error) { return "", errors.New("locked") }), "locked"},
	} {
		_, err := tokenCredentials{source: tt.option.(tokenOption).source}.GetRequestMetadata(t.Context())
		if got := NoToken(fmt.Errorf("run demo: %w", err)); got != tt.want || status.Code(err) != codes.Unauthenticated {
			t.Errorf("got %q (%v), want %q", got, err, tt.want)
		}
	}
	_, err := tokenCredentials{source: func(context.Context) (string, error) { return "", refused }}.GetRequestMetadata(t.Context())
	if status.Code(err) != codes.PermissionDenied || NoToken(err) != "" {
		t.Errorf("a status of the source: got %v", err)
	}
	for _, err := range []error{nil, errors.New("token: x"), status.Error(codes.Unauthenticated, "bad token: x")} {
		if got := NoToken(err); got != "" {
			t.Errorf("%v: got %q", err, got)
		}
	}
}

func TestTLSFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, f := range map[string]TLSFiles{
		"has no certificate in PEM": {CA: path},
		"no such file":              {CA: path + "-gone"},
		"failed to find any PEM":    {Certificate: path, Key: path},
	} {
		if _, err := f.Config(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want %q", f, err, want)
		}
	}
	if c, err := (TLSFiles{ServerName: "a"}).Config(); err != nil || c.ServerName != "a" || c.RootCAs != nil {
		t.Errorf("got %+v, %v", c, err)
	}
}
