package credential

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/net/http/httpguts"
)

// A Source says where a secret is. Exactly one of File, Systemd and Env is set.
type Source struct {
	File    string // path
	Systemd string // name of a credential of the daemon's unit (systemd.exec(5), LoadCredential=)
	Env     string // name of a variable in the daemon's environment
	// Beneath is a directory that File is relative to and can't leave. Empty: File may be anywhere.
	Beneath string
}

// Bounds in bytes. Servers accept 8 KiB of headers.
const (
	maxSecret       = 8 << 10
	maxCertificates = 64 << 10
)

func (s Source) isZero() bool { return s == Source{} }

// Secret returns the secret without the newline at its end, which editors and echo add.
func (s Source) Secret() (string, error) {
	data, err := s.read(maxSecret)
	if err != nil {
		return "", err
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	switch {
	case text == "":
		return "", fmt.Errorf("%s is empty; write the secret into it", s)
	case !httpguts.ValidHeaderFieldValue(text) || strings.TrimSpace(text) != text:
		return "", fmt.Errorf("%s is not one line of text without blanks around it, so no header can have it", s)
	}
	return text, nil
}

// Certificates returns certificates in PEM.
func (s Source) Certificates() (string, error) {
	data, err := s.read(maxCertificates)
	if err == nil && !x509.NewCertPool().AppendCertsFromPEM(data) {
		err = fmt.Errorf("%s has no certificate in PEM", s)
	}
	return string(data), err
}

// String says where the secret is, for errors.
func (s Source) String() string {
	switch {
	case s.Env != "":
		return "the environment variable " + s.Env
	case s.Systemd != "":
		return "the systemd credential " + s.Systemd
	}
	return filepath.Join(s.Beneath, s.File)
}

// read reads at most most bytes. It refuses more, and everything but a regular file: a device may never end.
func (s Source) read(most int64) ([]byte, error) {
	if s.Env != "" {
		value, ok := os.LookupEnv(s.Env)
		switch {
		case !ok:
			return nil, fmt.Errorf("%s is not set for the daemon", s)
		case int64(len(value)) > most:
			return nil, fmt.Errorf("%s has more than %d bytes", s, most)
		}
		return []byte(value), nil
	}
	f, err := s.openFile()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a file", s)
	}
	var b bytes.Buffer
	if n, err := io.Copy(&b, io.LimitReader(f, most+1)); err != nil {
		return nil, err
	} else if n > most {
		return nil, fmt.Errorf("%s has more than %d bytes", s, most)
	}
	return b.Bytes(), nil
}

// openFile does not wait: a path may be a pipe without a writer.
func (s Source) openFile() (*os.File, error) {
	if s.Systemd != "" {
		dir := os.Getenv("CREDENTIALS_DIRECTORY")
		if dir == "" {
			return nil, fmt.Errorf("%s: the daemon's unit has no credentials; add LoadCredential=%s:PATH to it", s, s.Systemd)
		}
		f, err := os.OpenFile(filepath.Join(dir, s.Systemd), os.O_RDONLY|syscall.O_NONBLOCK, 0)
		return f, s.explain(err)
	}
	if s.Beneath == "" {
		// O_NONBLOCK: open(2) of a FIFO would wait for a writer. read then refuses it.
		return os.OpenFile(s.File, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	}
	// OpenRoot, because a tenant's file may be a link: it can't lead out of the directory.
	root, err := os.OpenRoot(s.Beneath)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.OpenFile(s.File, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	return f, s.explain(err)
}

// explain adds the source to an error that has only the last part of the path.
func (s Source) explain(err error) error {
	if err == nil {
		return nil
	}
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		err = path.Err
	}
	return fmt.Errorf("%s: %w", s, err)
}
