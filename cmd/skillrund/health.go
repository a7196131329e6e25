package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/skillrun/skillrun/internal/server"
)

// A readiness has everything that decides the daemon's health. The zero readiness: the daemon starts.
type readiness struct {
	mu        sync.Mutex
	server    *server.Server // nil: not made yet
	started   bool
	draining  bool
	unaudited bool                   // the audit log cannot be written
	missing   []string               // missing boundaries; nothing is executed without them
	allowed   []string               // missing boundaries that boundaries.allow_missing names
	tenants   []server.TenantProblem // of the last reload
}

// set changes the readiness, and then the health that gRPC serves.
func (r *readiness) set(change func(*readiness)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(r)
	if r.server != nil {
		r.server.SetHealth(r.health())
	}
}

// health returns the health that every caller of gRPC may know. r.mu is held.
func (r *readiness) health() server.Health {
	return server.Health{
		Ready:    r.started && !r.draining && !r.unaudited && len(r.missing) == 0,
		Draining: r.draining, Degraded: len(r.allowed) > 0,
	}
}

// current returns the health for the operator's metrics. There, a mistake in a tenant's configuration counts as degraded,
// too.
func (r *readiness) current() server.Health {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.health()
	// Not in health: its readers need no credential, and must not learn that some tenant has a mistake.
	h.Degraded = h.Degraded || len(r.tenants) > 0
	return h
}

// report returns the answer to /readyz: whether the daemon takes executions, and a text with a line for the
// state and one for each cause. The reasons of mistakes quote files, so they are not in it: the reader needs no
// credential.
func (r *readiness) report() (ready bool, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h, state := r.health(), "not ready"
	switch {
	case h.Draining:
		state = "draining"
	case h.Ready && (h.Degraded || len(r.tenants) > 0):
		state = "degraded"
	case h.Ready:
		state = "ready"
	}
	lines := []string{state}
	for _, name := range r.missing {
		lines = append(lines, fmt.Sprintf("boundary %s is missing; nothing is executed", name))
	}
	if r.unaudited {
		lines = append(lines, "the audit log cannot be written; nothing is executed")
	}
	for _, name := range r.allowed {
		lines = append(lines, fmt.Sprintf("boundary %s is missing, as boundaries.allow_missing allows", name))
	}
	for _, p := range r.tenants {
		about := "tenant " + p.Tenant
		if p.Tenant == "" {
			about = "tenants"
		}
		lines = append(lines, fmt.Sprintf("%s: a mistake in %s", about, filepath.Base(p.File)))
	}
	return h.Ready, strings.Join(lines, "\n") + "\n"
}

// judged notes the missing boundaries. A boundary in boundaries.allow_missing is a warning; any other keeps
// the daemon from executing.
func (d *daemon) judged() {
	var allowed []string
	// d.missing has only the boundaries without which nothing runs. The others that were not found are allowed ones.
	for _, b := range d.probing.found {
		if !b.Found && !slices.Contains(d.missing, b.Name) {
			allowed = append(allowed, b.Name)
		}
	}
	d.readiness.set(func(r *readiness) { r.missing, r.allowed = d.missing, allowed })
}
