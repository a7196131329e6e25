package main

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/server"
)

// warnings returns the rules that have no effect. They are no mistake: the daemon's rules may become wider.
func (s *tenantSource) warnings(daemon permission.Network) (list []problem) {
	for _, key := range s.config.Policy.Network.emptied(daemon) {
		key = join(s.key, key)
		list = append(list, problem{key, s.found.lineOf(key), "allows nothing, because the daemon's network allows none of it; change one of the two"})
	}
	return list
}

// printWarnings writes a line for each warning about identity, and about a tenant without a mistake. found has the lines
// of the daemon's file.
func (c *config) printWarnings(out io.Writer, found *problems) {
	for _, w := range c.unknownTenants(c.configured) {
		w.line = found.lineOf(w.key)
		fmt.Fprintf(out, "skillrund: warning: config %s: %s\n", found.path, w)
	}
	daemon := c.Network.network()
	for _, s := range c.loaded {
		if len(s.found.list) > 0 {
			continue
		}
		for _, w := range s.warnings(daemon) {
			fmt.Fprintf(out, "skillrund: warning: config %s: %s\n", s.found.path, w)
		}
	}
}

// credentials returns the tenant's own credentials. Without any, it has the daemon's.
func (s *tenantSource) credentials() []credentialConfig {
	if s.found.lines[join(s.key, "policy.network")] == 0 {
		return nil
	}
	return s.config.Policy.Network.Credentials
}

// warnNetwork logs credentials of a tenant that can't be used, and rules that have no effect. It returns the rules
// for GetCapabilities.
func (d *daemon) warnNetwork(s *tenantSource) (list []server.Warning) {
	warnCredentials(d.log, s.credentials())
	if keys := s.config.Policy.Network.emptied(d.tenants.network); len(keys) > 0 {
		d.log.Warn("rules of a tenant allow nothing: the daemon's network allows none of it; change one of the two",
			"tenant", s.name, "file", s.found.path, "keys", few(keys))
	}
	for _, w := range s.warnings(d.tenants.network) {
		list = append(list, server.Warning{Tenant: s.name, File: s.found.path, Reason: w.String()})
	}
	return list
}

// warnAll logs the warnings about the configuration at the start, and keeps those about rules for GetCapabilities.
func (d *daemon) warnAll() {
	t := d.tenants
	d.config.warnProxy(d.log)
	warnCredentials(d.log, d.config.Network.Credentials)
	for _, w := range d.config.unknownTenants(d.config.configured) {
		d.log.Warn("identity names a tenant that is not configured", "key", w.key, "problem", w.text)
	}
	for name, s := range t.sources {
		t.warnings[name] = d.warnNetwork(s)
	}
}

// warned returns the warnings about the daemon's keys, then the warnings about each tenant, ordered by name.
// It reads the secrets, because a file may have been removed since the start.
func (d *daemon) warned() (list []server.Warning) {
	for _, text := range append(d.config.proxyProblems(), credentialProblems(d.config.Network.Credentials)...) {
		list = append(list, server.Warning{File: d.path, Reason: text})
	}
	t := d.tenants
	t.mu.Lock()
	sources, warnings := maps.Clone(t.sources), maps.Clone(t.warnings)
	t.mu.Unlock()
	for _, w := range d.config.unknownTenants(func(name string) bool { return sources[name] != nil }) {
		list = append(list, server.Warning{File: d.path, Reason: w.String()})
	}
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		for _, text := range credentialProblems(sources[name].credentials()) {
			list = append(list, server.Warning{Tenant: name, File: sources[name].found.path, Reason: text})
		}
		list = append(list, warnings[name]...)
	}
	return list
}
