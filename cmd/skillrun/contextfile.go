package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"gopkg.in/yaml.v3"

	"github.com/skillrun/skillrun/internal/durable"
)

// contextFileVariable names the environment variable with the path of the file of contexts.
const contextFileVariable = "SKILLRUN_CONTEXT_FILE"

const (
	maxContextName = 64
	// maxContextFile is the most that is read of the file, in bytes.
	maxContextFile = 1 << 20
)

// A target is a context of the file: a daemon, and the caller's credentials for it. It has no secret, only
// where one is.
type target struct {
	Address    string `yaml:"address,omitempty" json:"address,omitempty"`
	MCPAddress string `yaml:"mcp_address,omitempty" json:"mcp_address,omitempty"`

	TLS           bool   `yaml:"tls,omitempty" json:"tls,omitempty"`
	TLSCA         string `yaml:"tls_ca,omitempty" json:"tls_ca,omitempty"`
	TLSCert       string `yaml:"tls_cert,omitempty" json:"tls_cert,omitempty"`
	TLSKey        string `yaml:"tls_key,omitempty" json:"tls_key,omitempty"`
	TLSServerName string `yaml:"tls_server_name,omitempty" json:"tls_server_name,omitempty"`

	// At most one of these: a file, a program with its arguments, the name of a variable.
	TokenFile     string   `yaml:"token_file,omitempty" json:"token_file,omitempty"`
	TokenCommand  []string `yaml:"token_command,omitempty,flow" json:"token_command,omitempty"`
	TokenVariable string   `yaml:"token_variable,omitempty" json:"token_variable,omitempty"`
}

// credential says in a word or two where the caller's credential comes from.
func (t *target) credential() string {
	switch {
	case t.TokenFile != "":
		return "token file"
	case len(t.TokenCommand) > 0:
		return "token command"
	case t.TokenVariable != "":
		return "token in $" + t.TokenVariable
	case t.TLSCert != "":
		return "certificate"
	}
	return "-"
}

// contextFile is the file of contexts.
// Two commands that write it at the same time do not see each other's change: the last one wins. A
// person runs these commands, so the file has no lock.
type contextFile struct {
	Current  string             `yaml:"current,omitempty"`
	Contexts map[string]*target `yaml:"contexts"`

	path string
}

// contextPath returns the file's path. It returns an error if the user has no home directory.
func contextPath() (string, error) {
	if path := os.Getenv(contextFileVariable); path != "" {
		return path, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("no directory for the file of contexts: %w; set %s", err, contextFileVariable)
	}
	return filepath.Join(dir, "skillrun", "contexts.yaml"), nil
}

// readContexts reads the file. One that does not exist has no contexts.
func readContexts() (*contextFile, error) {
	path, err := contextPath()
	if err != nil {
		return nil, err
	}
	f := &contextFile{Contexts: map[string]*target{}, path: path}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	// A file that another user can write could send this user's token anywhere, or name a program
	// as its token command. The check is on the open file, so the file can't be exchanged in
	// between.
	if err := onlyOurs(file); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(file, maxContextFile))
	if err != nil {
		return nil, err
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	// A mistyped key must not be ignored: without its tls_ca, a context would trust other
	// authorities.
	decoder.KnownFields(true)
	if err := decoder.Decode(f); err != nil && err != io.EOF {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, f.check()
}

// check finds mistakes that a person made in an editor.
// The commands write nothing that fails here.
func (f *contextFile) check() error {
	for name, t := range f.Contexts {
		if err := contextName(name); err != nil {
			return fmt.Errorf("%s: %w", f.path, err)
		}
		if t == nil {
			return fmt.Errorf("%s: context %s is empty; delete it or give it an address", f.path, name)
		}
		sources := 0
		for _, set := range []bool{t.TokenFile != "", len(t.TokenCommand) > 0, t.TokenVariable != ""} {
			if set {
				sources++
			}
		}
		if sources > 1 {
			return fmt.Errorf("%s: context %s: give one of token_file, token_command and token_variable", f.path, name)
		}
	}
	return nil
}

// write replaces the file as a whole. It has mode 0600, in a directory of mode 0700.
func (f *contextFile) write() error {
	path := f.path
	// A link is kept, and the file that it leads to is replaced.
	if to, err := filepath.EvalSymlinks(path); err == nil {
		path = to
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	var text bytes.Buffer
	text.WriteString("# Written by skillrun context. It has no secrets; 'skillrun context --help' explains it.\n")
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	if err := encoder.Encode(f); err != nil {
		return err
	}
	return durable.WriteFile(path, text.Bytes())
}

// named returns a context that must exist.
func (f *contextFile) named(name string) (*target, error) {
	t := f.Contexts[name]
	if t == nil {
		return nil, fmt.Errorf("no context %q in %s; 'skillrun context list' shows those there are", name, f.path)
	}
	return t, nil
}

// contextName checks a name: it is written in shells and tables.
func contextName(name string) error {
	bad := func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }
	if name == "" || len(name) > maxContextName || strings.HasPrefix(name, "-") || strings.ContainsFunc(name, bad) {
		return fmt.Errorf("%q can't be the name of a context; use 1 to %d letters, digits and marks, without blanks", name, maxContextName)
	}
	return nil
}
