package tracing

import (
	"bufio"
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"os"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// headers is the path of a file with headers, which it adds to each batch. The file is read each
// time, so a renewed token counts at once.
type headers string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (h headers) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return readHeaders(string(h))
}

// RequireTransportSecurity is false: the configuration's check has decided about the endpoint.
func (headers) RequireTransportSecurity() bool { return false }

// readHeaders reads lines "name: value". Empty lines and lines that begin with # have no meaning.
// An error names the line, and not its content, which may be a secret.
func readHeaders(path string) (map[string]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		name, value = strings.ToLower(strings.TrimSpace(name)), strings.TrimSpace(value)
		if !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return nil, fmt.Errorf("%s: line %d is not a header; write name: value", path, n)
		}
		found[name] = value
	}
	return found, lines.Err()
}

// readAuthorities returns the authorities in a PEM file, or nil, which stands for the system's, for
// an empty path.
func readAuthorities(path string) (*x509.CertPool, error) {
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s has no certificate in PEM", path)
	}
	return pool, nil
}
