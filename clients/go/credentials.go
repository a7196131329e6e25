package skillrun

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

// WithToken has every call send a token that the daemon knows, or a JSON Web Token of an issuer
// that it trusts. [Dial] returns an error if the token could be read on the way: the address must be
// a Unix socket or a loopback address, or an option such as [WithTLS] must encrypt the connection. The error is then
// [ErrTokenInClear].
func WithToken(token string) grpc.DialOption {
	return tokenOption{source: func(context.Context) (string, error) { return token, nil }}
}

// WithTokenFile is like WithToken. It reads the file for each call, so that a renewed token counts at
// once.
func WithTokenFile(path string) grpc.DialOption {
	return tokenOption{source: func(context.Context) (string, error) { return TokenFromFile(path) }}
}

// TokenFromFile returns the token in a file as [WithTokenFile] takes it.
func TokenFromFile(path string) (string, error) {
	var token string
	data, err := os.ReadFile(path)
	if err == nil {
		token, err = checkedToken(string(data))
	} else if bad := (*fs.PathError)(nil); errors.As(err, &bad) {
		err = bad.Err // without the path, which is named below
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return token, nil
}

// ErrTokenInClear says that others could read a token on the way to the daemon.
var ErrTokenInClear = errors.New("a token needs an encrypted connection")

// WithTLS encrypts the connection. A nil config trusts the system's authorities.
func WithTLS(config *tls.Config) grpc.DialOption {
	return grpc.WithTransportCredentials(credentials.NewTLS(config))
}

// TLSFiles are files in PEM for [TLSFiles.Config]. Empty ones are left out.
type TLSFiles struct {
	CA               string // the authorities of the daemon's certificate; empty: the system's
	Certificate, Key string // of this client; both or none
	ServerName       string // the name in the daemon's certificate; empty: the host of the address
}

// Config reads the files, for [WithTLS].
func (f TLSFiles) Config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS13, ServerName: f.ServerName}
	if f.CA != "" {
		data, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("%s has no certificate in PEM", f.CA)
		}
	}
	if f.Certificate != "" || f.Key != "" {
		pair, err := tls.LoadX509KeyPair(f.Certificate, f.Key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// tokenOption is an option that Dial itself applies, since it depends on the address.
type tokenOption struct {
	grpc.EmptyDialOption
	source tokenSource
	more   []grpc.DialOption // that the source needs
}

// A tokenSource returns the token for one call.
type tokenSource func(context.Context) (string, error)

// tokenCredentials adds a token to each call.
type tokenCredentials struct {
	source tokenSource
	local  bool // the connection does not leave this machine
}

func (t tokenCredentials) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	token, err := t.source(ctx)
	if err == nil {
		token, err = checkedToken(token)
	}
	if _, ok := status.FromError(err); !ok {
		// gRPC puts its own words before an error that is not a status.
		return nil, status.Error(codes.Unauthenticated, noToken+err.Error())
	}
	if err != nil {
		return nil, fmt.Errorf("%s%w", noToken, err)
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

// noToken begins the message of a call that was not sent because there is no token for it.
const noToken = "token: "

// NoToken returns why a call was not sent: its token could not be read, or is none. It returns "" for other errors. The
// code of such an error is UNAUTHENTICATED, as for a token that the daemon refuses.
func NoToken(err error) string {
	var answer interface{ GRPCStatus() *status.Status }
	// An answer of the daemon has a reason.
	if !errors.As(err, &answer) || answer.GRPCStatus().Code() != codes.Unauthenticated || Reason(err) != "" {
		return ""
	}
	why, ok := strings.CutPrefix(answer.GRPCStatus().Message(), noToken)
	if !ok {
		return ""
	}
	return why
}

// checkedToken returns a token without the blanks around it.
func checkedToken(token string) (string, error) {
	switch token = strings.TrimSpace(token); {
	case token == "":
		return "", errors.New("it is empty")
	case len(token) > maxTokenBytes:
		return "", fmt.Errorf("it has %d bytes; a token has at most %d", len(token), maxTokenBytes)
	}
	return token, nil
}

// RequireTransportSecurity makes gRPC refuse a connection that is not encrypted.
func (t tokenCredentials) RequireTransportSecurity() bool { return !t.local }

// withTokens replaces the options of this package by options of gRPC.
func withTokens(target string, opts []grpc.DialOption) (all []grpc.DialOption) {
	for _, o := range opts {
		t, ok := o.(tokenOption)
		if !ok {
			all = append(all, o)
			continue
		}
		all = append(all, grpc.WithPerRPCCredentials(tokenCredentials{t.source, isLocal(target)}))
		all = append(all, t.more...)
	}
	return all
}

// isLocal reports whether the bytes to a target stay on this machine.
func isLocal(target string) bool {
	if strings.HasPrefix(target, "unix:") || strings.HasPrefix(target, "unix-abstract:") {
		return true
	}
	host, _, err := net.SplitHostPort(strings.TrimPrefix(target, "dns:///"))
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}
