package main

import (
	"crypto/tls"
	"errors"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"

	skillrun "github.com/skillrun/skillrun/clients/go"
)

// connection has the flags about the way to the daemon, and the caller's credentials. A token is in
// a file: other users can read a process's arguments, and its children see its environment.
type connection struct {
	tls       bool
	files     skillrun.TLSFiles
	tokenFile string
}

// flags adds the flags. The variables are defaults that help does not print, as for --address.
func (c *connection) flags(to *pflag.FlagSet) {
	to.BoolVar(&c.tls, "tls", false, "encrypt the connection to a host:port; implied by the other --tls flags")
	for _, f := range []struct {
		value          *string
		name, variable string
		usage          string
	}{
		{&c.files.CA, "tls-ca", "SKILLRUN_TLS_CA", "`file` with the authorities of the daemon's certificate (PEM)"},
		{&c.files.Certificate, "tls-cert", "SKILLRUN_TLS_CERT", "`file` with this client's certificate (PEM)"},
		{&c.files.Key, "tls-key", "SKILLRUN_TLS_KEY", "`file` with the private key of --tls-cert (PEM)"},
		{&c.files.ServerName, "tls-server-name", "SKILLRUN_TLS_SERVER_NAME", "`name` in the daemon's certificate, if it is not the host of the address"},
		{&c.tokenFile, "token-file", "SKILLRUN_TOKEN_FILE", "`file` with a token that identifies the caller"},
	} {
		to.StringVar(f.value, f.name, os.Getenv(f.variable), f.usage+" (default $"+f.variable+")")
		to.Lookup(f.name).DefValue = ""
	}
}

// config returns the client's TLS, or nil without TLS.
func (c *connection) config() (*tls.Config, error) {
	if (c.files.Certificate == "") != (c.files.Key == "") {
		return nil, errors.New("--tls-cert and --tls-key go together: the certificate and its private key")
	}
	if !c.tls && c.files == (skillrun.TLSFiles{}) {
		return nil, nil
	}
	return c.files.Config()
}

// token returns the token, or "" without --token-file.
func (c *connection) token() (string, error) {
	if c.tokenFile == "" {
		return "", nil
	}
	data, err := os.ReadFile(c.tokenFile)
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(data)), nil
}

// options are for skillrun.Dial.
func (c *connection) options() (opts []grpc.DialOption, err error) {
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	if config != nil {
		opts = append(opts, skillrun.WithTLS(config))
	}
	if c.tokenFile != "" {
		opts = append(opts, skillrun.WithTokenFile(c.tokenFile))
	}
	return opts, nil
}
