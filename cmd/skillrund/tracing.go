package main

import (
	"log/slog"
	"net"

	"github.com/skillrun/skillrun/internal/tracing"
)

// tracingConfig is the key tracing: where spans go.
type tracingConfig struct {
	// A URL, http or https. Empty: no spans.
	Endpoint string `yaml:"endpoint"`
	// Insecure allows http to other machines.
	Insecure bool `yaml:"insecure"`
	// A PEM file, and a file with headers, which may be secret.
	CA          string `yaml:"ca"`
	HeadersFile string `yaml:"headers_file"`
	// Of the traces that no caller has begun.
	SampleRatio float64 `yaml:"sample_ratio"`
}

// openTracing returns nil if no endpoint is configured.
func (c *config) openTracing(log *slog.Logger) (*tracing.Tracing, error) {
	if c.Tracing.Endpoint == "" {
		return nil, nil
	}
	return tracing.Open(c.tracing(log))
}

// tracing converts the configuration.
func (c *config) tracing(log *slog.Logger) tracing.Config {
	return tracing.Config{
		Endpoint: c.Tracing.Endpoint, CA: c.Tracing.CA, Headers: c.Tracing.HeadersFile,
		SampleRatio: c.Tracing.SampleRatio, Version: buildVersion(), Log: log,
	}
}

// checkTracing checks that the keys of tracing agree with each other.
func (c *config) checkTracing(bad badFunc) {
	t := c.Tracing
	if !(t.SampleRatio >= 0 && t.SampleRatio <= 1) { // also NaN
		bad("tracing.sample_ratio", "%v; must be 0 to 1", t.SampleRatio)
	}
	if t.Endpoint == "" {
		for _, set := range []struct {
			key string
			yes bool
		}{{"ca", t.CA != ""}, {"headers_file", t.HeadersFile != ""}, {"insecure", t.Insecure}} {
			if set.yes {
				bad(join("tracing", set.key), "is set, but tracing.endpoint is empty; set it, or remove this key")
			}
		}
		return
	}
	host, encrypted, err := tracing.CheckEndpoint(t.Endpoint)
	local := host == "localhost" || net.ParseIP(host).IsLoopback()
	switch {
	case err != nil:
		bad("tracing.endpoint", "%v", err)
	case encrypted && t.Insecure:
		bad("tracing.insecure", "true, but tracing.endpoint is https; remove one of the two")
	case !encrypted && !local && !t.Insecure:
		bad("tracing.endpoint", "%s is not on this machine, and http is not encrypted; write https, or set tracing.insecure: true", t.Endpoint)
	case !encrypted && t.CA != "":
		bad("tracing.ca", "is for https, and tracing.endpoint is http; write https, or remove this key")
	}
}

// inspectTracing reads the files of tracing.
func (c *config) inspectTracing(bad badFunc) {
	if c.Tracing.Endpoint == "" {
		return
	}
	part := tracing.Config{Endpoint: "https://localhost:1"} // so that each file's error has its key
	part.CA = c.Tracing.CA
	if err := part.Check(); err != nil {
		bad("tracing.ca", "%v; write a file with the receiver's authority (PEM)", err)
	}
	part.CA, part.Headers = "", c.Tracing.HeadersFile
	if err := part.Check(); err != nil {
		bad("tracing.headers_file", "%v", err)
	}
}
