package main

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"gopkg.in/yaml.v3"

	"github.com/skillrun/skillrun/internal/lazyregexp"
	"github.com/skillrun/skillrun/internal/network/credential"
	"github.com/skillrun/skillrun/internal/network/policy"
)

// A credentialConfig binds a secret to a domain (docs/network.md).
type credentialConfig struct {
	Name      string       `yaml:"name"`
	Domain    string       `yaml:"domain"`
	Header    string       `yaml:"header"`
	Value     string       `yaml:"value"`
	Secret    secretConfig `yaml:"secret"`
	Skills    []string     `yaml:"skills"`
	PlainHTTP bool         `yaml:"plain_http"`
	CAFile    string       `yaml:"ca_file"`

	// The directory of the tenant's secrets, for an entry in a file of tenants_dir. Another person may
	// write that file, so it must not name any file that the daemon can read, nor its environment.
	beneath string
	foreign bool
}

// Exactly one key of a secretConfig is set.
type secretConfig struct {
	File              string `yaml:"file"`
	SystemdCredential string `yaml:"systemd_credential"`
	Env               string `yaml:"env"`

	bare bool // a text, which may be the secret itself
}

// begin takes a text, so that no message has it.
func (s *secretConfig) begin(node *yaml.Node) (done bool) {
	s.bare = node.Kind != yaml.MappingNode
	return s.bare
}

func (s *secretConfig) source() credential.Source {
	return credential.Source{File: s.File, Systemd: s.SystemdCredential, Env: s.Env}
}

func (*secretConfig) wants() string { return "the place of a secret" }

// maxCredentials bounds the entries of one list: all of them go into one packet to the network helper.
const maxCredentials = 16

const defaultHeader = "Authorization"

// A systemdName has no slash and no dot at its beginning, so it can't lead out of the directory of the unit's
// credentials.
var (
	credentialName = lazyregexp.New(`^[a-z0-9][a-z0-9._-]{0,31}$`)
	variableName   = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*$`)
	systemdName    = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
)

// binding converts what check has accepted.
func (c *credentialConfig) binding() credential.Binding {
	b := credential.Binding{
		Name: c.Name, Domain: c.Domain, Header: c.Header, Value: c.Value, PlainHTTP: c.PlainHTTP, Skills: c.Skills,
		Secret: c.Secret.source(),
	}
	if b.Header == "" {
		b.Header = defaultHeader
	}
	if b.Value == "" {
		b.Value = credential.Placeholder
	}
	if c.Secret.File != "" {
		b.Secret.Beneath = c.beneath
	}
	if c.CAFile != "" {
		b.CA = credential.Source{File: c.CAFile, Beneath: c.beneath}
	}
	return b
}

// checkSecrets reports each mistake in a list. No message has a value that could be a secret.
func checkSecrets(key string, list []credentialConfig, bad badFunc) {
	if len(list) > maxCredentials {
		bad(key, "%d entries; at most %d", len(list), maxCredentials)
	}
	seen := map[string]bool{}
	for i := range list {
		c, at := &list[i], index(key, i)
		switch {
		case !credentialName.MatchString(c.Name):
			bad(join(at, "name"), "%q; write a name of 1 to 32 lowercase letters, digits, dots and hyphens, for events and the audit log", c.Name)
		case seen[c.Name]:
			bad(join(at, "name"), "%s is the name of another entry; choose another one", c.Name)
		}
		seen[c.Name] = true
		c.check(at, bad)
	}
}

// check reports each mistake of an entry under the key at. It opens no file; inspectCredentials does.
func (c *credentialConfig) check(at string, bad badFunc) {
	if _, err := policy.ParseDomain(c.Domain); err != nil {
		bad(join(at, "domain"), "%q: %v", c.Domain, err)
	}
	b := c.binding()
	if err := credential.CheckHeader(b.Header); err != nil {
		bad(join(at, "header"), "%q: %v", c.Header, err)
	}
	if err := credential.CheckValue(b.Value); err != nil {
		bad(join(at, "value"), "%v", err) // no %q: the value may be the secret itself, by mistake
	}
	for i, name := range c.Skills {
		if !namesSkill(name) {
			bad(index(join(at, "skills"), i), "%q names no skill; write its full name, or name@sha256: and 64 hex digits", name)
		}
	}
	c.checkSecret(join(at, "secret"), bad)
	if c.CAFile != "" {
		c.checkFile(join(at, "ca_file"), c.CAFile, bad)
	}
}

// checkSecret reports a secret without exactly one place. No message has a text of the entry, because the writer may
// have put the secret itself there.
func (c *credentialConfig) checkSecret(at string, bad badFunc) {
	// Two places would leave open which one counts if the first one can't be read.
	set := 0
	for _, text := range []string{c.Secret.File, c.Secret.SystemdCredential, c.Secret.Env} {
		if text != "" {
			set++
		}
	}
	switch {
	case c.Secret.bare:
		bad(at, "not a place; write {file: PATH}, {systemd_credential: NAME} or {env: NAME}, and never the secret itself")
	case set != 1:
		bad(at, "has %d of the keys file, systemd_credential and env; write one", set)
	case c.Secret.File != "":
		c.checkFile(join(at, "file"), c.Secret.File, bad)
	case c.foreign:
		bad(at, "only the daemon's configuration file may use its environment and its systemd credentials; write file: NAME, for a file in secrets_dir")
	case c.Secret.Env != "" && !variableName.MatchString(c.Secret.Env):
		bad(join(at, "env"), "not the name of an environment variable; write the name alone, not its value")
	case c.Secret.SystemdCredential != "" && !systemdName.MatchString(c.Secret.SystemdCredential):
		bad(join(at, "systemd_credential"), "not the name of a credential; write the name of a line LoadCredential=")
	}
}

// checkFile wants an absolute path, or in a file of tenants_dir a path beneath the tenant's directory. For such a
// path credential.Source also refuses links that lead out of the directory.
func (c *credentialConfig) checkFile(at, file string, bad badFunc) {
	switch {
	case !c.foreign && !filepath.IsAbs(file):
		bad(at, "the path is not absolute; begin it with /")
	case c.foreign && c.beneath == "":
		bad(at, "the daemon has no secrets_dir; set it, or move the tenant into the daemon's configuration file")
	case c.foreign && !filepath.IsLocal(file):
		bad(at, "not a file in %s; write a path that is relative to it", c.beneath)
	}
}

// inspectCredentials reads the secrets in files. A program that a person starts with --check has neither the
// daemon's environment nor its systemd credentials, so warnCredentials reads those.
func inspectCredentials(key string, list []credentialConfig, bad badFunc) {
	for i := range list {
		at, wrong := index(key, i), false
		// An entry with a mistake has not been confined to secrets_dir.
		list[i].check(at, func(string, string, ...any) { wrong = true })
		if b := list[i].binding(); !wrong {
			inspectFiles(join(at, "secret"), b.Secret, join(at, "ca_file"), b.CA, bad)
		}
	}
}

// inspectFiles reads the file of a secret and a file of authorities, as far as the sources name files. The keys are
// those of the secret and of the authorities.
func inspectFiles(secretKey string, secret credential.Source, caKey string, ca credential.Source, bad badFunc) {
	if secret.File != "" {
		if _, err := secret.Secret(); err != nil {
			bad(join(secretKey, "file"), "%v; write a file that the daemon can read", err)
		}
	}
	if ca.File != "" {
		if _, err := ca.Certificates(); err != nil {
			bad(caKey, "%v; write a file with the server's authority (PEM)", err)
		}
	}
}

// warnCredentials logs each missing variable and systemd credential. Executions that need one are refused.
func warnCredentials(log *slog.Logger, list []credentialConfig) {
	for i := range list {
		if b := list[i].binding(); b.Secret.File == "" {
			if err := b.Check(); err != nil {
				log.Error("a credential can't be used; executions that may use it are refused", "credential", b.Name, "err", errors.Unwrap(err))
			}
		}
	}
}

// credentialProblems returns a text for each credential that can't be used now.
func credentialProblems(list []credentialConfig) (texts []string) {
	for i := range list {
		b := list[i].binding()
		if err := b.Check(); err != nil {
			texts = append(texts, fmt.Sprintf("the credential %s can't be used; executions that may use it are refused: %v", b.Name, errors.Unwrap(err)))
		}
	}
	return texts
}

// place notes where the secrets of a tenant lie. A tenant in the daemon's configuration file may use any file.
func (s *tenantSource) place(c *config) {
	if s.key != "" {
		return
	}
	list := s.config.Policy.Network.Credentials
	for i := range list {
		// From here on check and binding keep the entry within secrets_dir.
		list[i].foreign = true
		if c.SecretsDir != "" {
			list[i].beneath = filepath.Join(c.SecretsDir, s.name)
		}
	}
}
