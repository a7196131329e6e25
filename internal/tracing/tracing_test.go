package tracing

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/encoding"

	"github.com/skillrun/skillrun/internal/certtest"
)

func TestEndpoints(t *testing.T) {
	for endpoint, want := range map[string]string{
		"http://127.0.0.1:4317": "", "https://collector.example:4317/": "", "http://[::1]:4317": "",
		"127.0.0.1:4317":               "write http://host:port",
		"http://127.0.0.1":             "write http://host:port",
		"grpc://127.0.0.1:4317":        "write http://host:port",
		"http://:4317":                 "write http://host:port",
		"http://h:4318/v1/traces":      "OTLP over gRPC has no path",
		"https://user:secret@h:4317":   "belong into the headers",
		"https://h:4317?x=1":           "more than a host and a port",
		"http://h:4317 is the address": "write http://host:port",
	} {
		_, _, err := CheckEndpoint(endpoint)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: got %v, want %q", endpoint, err, want)
		}
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	a := certtest.NewAuthority(t, "authority")
	a.Server("receiver").Write(dir, "receiver")
	for name, c := range map[string]struct {
		config Config
		want   string
	}{
		"none":            {Config{}, ""},
		"headers":         {Config{Headers: write("headers", "# a comment\n\nAuthorization: Bearer x\nx-tenant:a\n")}, ""},
		"not a header":    {Config{Headers: write("wrong", "a: b\nsecret\n")}, "line 2 is not a header; write name: value"},
		"control":         {Config{Headers: write("control", "a: secret\x01\n")}, "line 1 is not a header"},
		"missing headers": {Config{Headers: filepath.Join(dir, "none")}, "no such file"},
		"authority":       {Config{CA: filepath.Join(dir, "receiver.crt")}, ""},
		"not PEM":         {Config{CA: write("ca", "secret")}, "has no certificate in PEM"},
		"missing CA":      {Config{CA: filepath.Join(dir, "none")}, "no such file"},
	} {
		c.config.Endpoint = "https://localhost:4317"
		err := c.config.Check()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	got, err := readHeaders(filepath.Join(dir, "headers"))
	if err != nil || len(got) != 2 || got["authorization"] != "Bearer x" || got["x-tenant"] != "a" {
		t.Errorf("got %v, %v", got, err)
	}
}

// Lost spans have one line a minute, which counts all of them.
func TestErrorsAreLoggedOnceAMinute(t *testing.T) {
	var log bytes.Buffer
	e := &exporter{log: slog.New(slog.NewTextHandler(&log, nil))}
	now := time.Now()
	for _, after := range []time.Duration{0, time.Second, 59 * time.Second, time.Minute, 61 * time.Second} {
		e.failed(errors.New("refused"), 10, now.Add(after))
	}
	if got := strings.Count(log.String(), "spans not sent"); got != 2 || !strings.Contains(log.String(), "spans=10 ") || !strings.Contains(log.String(), "spans=30 ") {
		t.Errorf("got %s", log.String())
	}
}

// A nil Tracing is a daemon without an endpoint.
func TestOff(t *testing.T) {
	var off *Tracing
	if off.Tracer() != nil {
		t.Error("a tracer without a Tracing")
	}
	if got := off.Dropped(); got != (Dropped{}) {
		t.Errorf("dropped %+v", got)
	}
	off.Close()
}

// The packages of OpenTelemetry must not register a compressor: gRPC would then unpack requests to any
// size that a message may have, and package budget would count the packed bytes.
func TestNoCompressor(t *testing.T) {
	for _, name := range []string{"gzip", "snappy", "zstd"} {
		if encoding.GetCompressor(name) != nil {
			t.Errorf("%s is registered", name)
		}
	}
}
