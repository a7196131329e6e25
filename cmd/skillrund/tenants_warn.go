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

// printWarnings writes a line for each warning about a tenant without a mistake.
func (c *config) printWarnings(out io.Writer) {
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

// warnNetwork logs credentials of a tenant that can't be used, and rules that have no effect. It returns them for
// GetCapabilities.
func (d *daemon) warnNetwork(s *tenantSource) (list []server.Warning) {
	add := func(reason string) {
		list = append(list, server.Warning{Tenant: s.name, File: s.found.path, Reason: reason})
	}
	if s.found.lines[join(s.key, "policy.network")] > 0 { // else the credentials are the daemon's
		for _, text := range warnCredentials(d.log, s.config.Policy.Network.Credentials) {
			add(text)
		}
	}
	if keys := s.config.Policy.Network.emptied(d.tenants.network); len(keys) > 0 {
		d.log.Warn("rules of a tenant allow nothing: the daemon's network allows none of it; change one of the two",
			"tenant", s.name, "file", s.found.path, "keys", few(keys))
	}
	for _, w := range s.warnings(d.tenants.network) {
		add(w.String())
	}
	return list
}

// warnAll logs the warnings about the configuration at the start, and keeps them for GetCapabilities.
func (d *daemon) warnAll() {
	t := d.tenants
	for _, text := range warnCredentials(d.log, d.config.Network.Credentials) {
		t.warnings[""] = append(t.warnings[""], server.Warning{File: d.path, Reason: text})
	}
	for name, s := range t.sources {
		t.warnings[name] = d.warnNetwork(s)
	}
}

// warned returns the warnings about the daemon's keys, then the tenants' warnings by the tenants' names.
func (t *tenancy) warned() (list []server.Warning) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(t.warnings)) {
		list = append(list, t.warnings[name]...)
	}
	return list
}
