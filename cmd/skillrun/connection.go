package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
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

	// Only contexts have these.
	tokenCommand  []string
	tokenVariable string
}

// flags adds the flags. The variables are defaults that help does not print, as for --address.
// Each flag has a default, from its variable, so a.flags.Changed tells a flag from a variable.
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
		// pflag prints DefValue as the default. A path from the user's environment does not belong in a help text.
		to.Lookup(f.name).DefValue = ""
	}
}

var errCertAndKey = errors.New("--tls-cert and --tls-key go together: the certificate and its private key")

// config returns the client's TLS, or nil without TLS.
// nil is right for Unix sockets and for loopback; clients/go sends no token over a network in
// clear.
func (c *connection) config() (*tls.Config, error) {
	if (c.files.Certificate == "") != (c.files.Key == "") {
		return nil, errCertAndKey
	}
	if !c.tls && c.files == (skillrun.TLSFiles{}) {
		return nil, nil
	}
	config, err := c.files.Config()
	if err == nil {
		return config, nil
	}
	// The authorities alone show which of the files is wrong.
	flags := "--tls-cert and --tls-key"
	if _, wrong := (skillrun.TLSFiles{CA: c.files.CA}).Config(); wrong != nil {
		flags = "--tls-ca"
	}
	if bad := (*fs.PathError)(nil); errors.As(err, &bad) {
		switch bad.Path {
		case c.files.Certificate:
			flags = "--tls-cert"
		case c.files.Key:
			flags = "--tls-key"
		}
		return nil, fmt.Errorf("%s %s: %w", flags, bad.Path, bad.Err)
	}
	return nil, fmt.Errorf("%s: %s", flags, strings.TrimPrefix(err.Error(), "tls: "))
}

// tokenWord begins a message about the token with the user's word for its source.
func (c *connection) tokenWord() string {
	switch {
	case c.tokenFile != "":
		return "--token-file "
	case len(c.tokenCommand) > 0:
		return "the context's token: "
	}
	return "token: "
}

// token returns the token for a connection, or "" if the flags and the context name none.
func (c *connection) token(ctx context.Context) (string, error) {
	switch {
	case c.tokenFile != "":
		token, err := skillrun.TokenFromFile(c.tokenFile)
		if err != nil {
			err = fmt.Errorf("%s%w", c.tokenWord(), err)
		}
		return token, err
	case len(c.tokenCommand) > 0:
		return skillrun.TokenFromCommand(ctx, c.tokenCommand[0], c.tokenCommand[1:]...)
	case c.tokenVariable != "":
		return c.variable()
	}
	return "", nil
}

// variable returns the token in an environment variable.
func (c *connection) variable() (string, error) {
	token := strings.TrimSpace(os.Getenv(c.tokenVariable))
	if token == "" {
		return "", fmt.Errorf("the context takes its token from $%s, which is not set", c.tokenVariable)
	}
	return token, nil
}

// options are for skillrun.Dial.
// A token file and a token command are passed on, not read here, so that a long session gets a new
// token when the old one expires. A variable can't change while a process runs.
func (c *connection) options() (opts []grpc.DialOption, err error) {
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	if config != nil {
		opts = append(opts, skillrun.WithTLS(config))
	}
	switch {
	case c.tokenFile != "":
		opts = append(opts, skillrun.WithTokenFile(c.tokenFile))
	case len(c.tokenCommand) > 0:
		opts = append(opts, skillrun.WithTokenCommand(c.tokenCommand[0], c.tokenCommand[1:]...))
	case c.tokenVariable != "":
		token, err := c.variable()
		if err != nil {
			return nil, err
		}
		opts = append(opts, skillrun.WithToken(token))
	}
	return opts, nil
}
