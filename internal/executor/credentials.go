package executor

import (
	"os"
	"path/filepath"

	"github.com/skillrun/skillrun/internal/network/credential"
)

// trustedDir is the sandbox's directory with trustedFile: the authorities of the machine, and the
// execution's own one, which answers for the domains with a credential.
const (
	trustedDir  = "/opt/certificates"
	trustedFile = "ca-certificates.crt"
)

// trustVariables name trustedFile for programs. OpenSSL, Go and Python's ssl read the first one.
var trustVariables = []string{
	"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO", "PIP_CERT",
	"AWS_CA_BUNDLE", "DENO_CERT", "CARGO_HTTP_CAINFO",
}

// openCredentials reads the secrets of an execution. They stay in memory. The error is a
// *credential.UnavailableError.
func (x *Executor) openCredentials(e *execution) (err error) {
	if e.credentials, err = credential.Open(e.grant.Credentials()); err == nil && e.credentials != nil {
		e.trusted = filepath.Join(x.StagingDir, e.id+".certificates")
	}
	return err
}

// writeTrusted writes the file of authorities. removeWorkspace removes it.
func (e *execution) writeTrusted() error {
	if e.trusted == "" {
		return nil
	}
	if err := os.Mkdir(e.trusted, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(e.trusted, trustedFile), e.credentials.Trusted(), 0o644)
}
