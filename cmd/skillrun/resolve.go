package main

import "os"

// contextVariable names the environment variable with the name of a context.
const contextVariable = "SKILLRUN_CONTEXT"

// contextInUse returns the name of the context that a command uses, or "". A context that was not named
// together with an address gives way to it: the credentials for one daemon must not go to another.
func (a *app) contextInUse(f *contextFile) string {
	switch {
	case a.flags.Changed("context"):
		return a.context
	case a.flags.Changed("address") || a.elsewhere:
		return ""
	case a.context != "": // from the variable
		return a.context
	case os.Getenv(addressVariable) != "":
		return ""
	}
	return f.Current
}

// resolve takes from the context each value without a flag. Then a.address and a.connection are final. Calls
// after the first do nothing.
func (a *app) resolve() error {
	if a.resolved {
		return nil
	}
	a.resolved = true
	// Most users have no file of contexts, and then a home directory that can't be read must not stop a command.
	if a.context == "" {
		if path, err := contextPath(); err != nil || !exists(path) {
			return nil // no file, so no current context
		}
	}
	f, err := readContexts()
	if err != nil {
		return err
	}
	name := a.contextInUse(f)
	if name == "" {
		return nil
	}
	t, err := f.named(name)
	if err != nil {
		return err
	}
	a.use(t)
	return nil
}

// exists reports false for a file in a directory that the user may not enter, too.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// use takes the values of a context. A flag on the command line keeps its value.
func (a *app) use(t *target) {
	c := &a.connection
	for _, v := range []struct {
		flag  string
		to    *string
		value string
	}{
		{"address", &a.address, t.Address},
		{"tls-ca", &c.files.CA, t.TLSCA},
		{"tls-cert", &c.files.Certificate, t.TLSCert},
		{"tls-key", &c.files.Key, t.TLSKey},
		{"tls-server-name", &c.files.ServerName, t.TLSServerName},
	} {
		if !a.flags.Changed(v.flag) {
			*v.to = v.value
		}
	}
	if !a.flags.Changed("tls") {
		c.tls = t.TLS
	}
	// The three sources go together, so that a context's token never stands next to a token of the environment.
	if !a.flags.Changed("token-file") {
		c.tokenFile, c.tokenCommand, c.tokenVariable = t.TokenFile, t.TokenCommand, t.TokenVariable
	}
	a.mcpAddress, a.hasContext = t.MCPAddress, true
}

// warnExposed warns about a file with a token that other users may read. It is not refused: secrets that
// Kubernetes mounts have such a mode.
func (a *app) warnExposed(path string) {
	if path != "" && exposed(path) {
		a.note("warning: other users may read the token in %s; chmod 600 %[1]s", path)
	}
}
