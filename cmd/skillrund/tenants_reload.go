package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/server"
	"github.com/skillrun/skillrun/internal/tenant"
)

// A change of files is read when no further change has come for tenantsQuiet, or tenantsMost after the first
// change. So a file that an editor writes in pieces is read once. After a mistake that may end without a change of these
// files, they are read again after tenantsUnread.
const (
	tenantsQuiet  = 200 * time.Millisecond
	tenantsMost   = 2 * time.Second
	tenantsUnread = 5 * time.Second
)

// tenancy has the tenants that are in force. A reload replaces them; running executions
// keep the version with which they were accepted.
type tenancy struct {
	network  permission.Network       // of the daemon
	unread   chan struct{}            // a signal for watchTenants: read the files again after tenantsUnread
	handed   atomic.Bool              // the next daemon reloads the tenants; this one does not
	mu       sync.Mutex               // guards the fields below; also makes reloads take turns
	sources  map[string]*tenantSource // in force, by name
	values   map[string]*tenant.Tenant
	problems []server.TenantProblem      // of the last reload
	warnings map[string][]server.Warning // of the tenants in force, by name; the name "" has the daemon's keys
}

// newTenancy returns the tenants with which the daemon starts.
func newTenancy(c *config, set *tenant.Set) *tenancy {
	t := &tenancy{network: c.Network.network(), unread: make(chan struct{}, 1), sources: map[string]*tenantSource{}, values: map[string]*tenant.Tenant{}, warnings: map[string][]server.Warning{}}
	for _, s := range c.loaded {
		t.sources[s.name] = s
		t.values[s.name], _ = set.Get(s.name)
	}
	return t
}

// degraded returns the problems of the last reload. Each is about a tenant whose former version is in force.
func (t *tenancy) degraded() []server.TenantProblem {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.problems
}

// reloadTenants reads the tenants again. A tenant with a mistake stays as it was, and the log and
// GetCapabilities say why.
func (d *daemon) reloadTenants(ctx context.Context) {
	if !d.config.manyTenants() {
		return
	}
	t := d.tenants
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.handed.Load() {
		return
	}
	list, problems, unread := t.read(&d.config, d.path)
	accepted := chooseVersions(&d.config, list, t.sources)
	for _, s := range list {
		if err := s.found.err(); err != nil {
			problems = append(problems, server.TenantProblem{Tenant: s.name, File: s.found.path, Reason: err.Error(), Kept: t.sources[s.name] != nil})
		}
		unread = unread || s.elsewhere
	}
	if unread {
		select {
		case t.unread <- struct{}{}:
		default: // the signal is there already
		}
	}
	for _, p := range problems {
		if !slices.Contains(t.problems, p) { // one line for each mistake, not for each reload
			text := "tenant not reloaded; its former version stays in force"
			if !p.Kept {
				text = "tenant not loaded"
			}
			d.log.Error(text, "tenant", p.Tenant, "file", p.File, "kept", p.Kept, "err", p.Reason)
		}
	}
	t.problems = problems
	d.readiness.set(func(r *readiness) { r.tenants = problems })
	d.apply(ctx, accepted)
	d.writeInForce()
}

// resumeTenants begins reloads again after a takeover that has failed. The files may have changed since the hand-over, and
// the next daemon may have written its configuration to inForceFile.
func (d *daemon) resumeTenants(ctx context.Context) {
	d.tenants.handed.Store(false)
	d.reloadTenants(ctx)
	d.tenants.mu.Lock()
	defer d.tenants.mu.Unlock()
	d.writeInForce()
}

// read returns the tenants as the files have them now. A tenant whose file can't be read is as in force. unread says that
// the configuration file or tenants_dir could not be read.
func (t *tenancy) read(c *config, path string) (list []*tenantSource, degraded []server.TenantProblem, unread bool) {
	found, fresh := &problems{path: path}, defaultConfig()
	// keep puts the tenants in force into the list instead of the ones that could not be read. mine says which ones
	// these are.
	keep := func(err error, file string, mine func(*tenantSource) bool) {
		degraded = append(degraded, server.TenantProblem{File: file, Reason: err.Error(), Kept: true})
		for _, s := range t.sources {
			if mine(s) {
				list = append(list, s)
			}
		}
	}
	data, err := os.ReadFile(path)
	unread = err != nil
	if err == nil {
		found.decode(data, &fresh)
		// A mistake without a key: the file is not YAML. Mistakes in other keys have no effect now.
		if i := slices.IndexFunc(found.list, func(p problem) bool { return p.key == "" || p.key == "tenants" }); i >= 0 {
			err = &configError{path, found.list[i : i+1]}
		} else if len(fresh.Tenants) == 0 && c.TenantsDir == "" {
			// This daemon would refuse every caller, also the operator. A daemon that starts without tenants serves them.
			err = fmt.Errorf("config %s: tenants: the file has no tenants any longer; %s lets the daemon go on without tenants", path, byTakeover)
		}
	}
	if err != nil {
		fresh.Tenants = nil
		keep(err, path, func(s *tenantSource) bool { return s.key != "" })
	}
	read, err := c.readTenants(fresh.Tenants, found)
	if err != nil {
		unread = true
		read = slices.DeleteFunc(read, func(s *tenantSource) bool { return s.key == "" })
		keep(err, c.TenantsDir, func(s *tenantSource) bool { return s.key == "" })
	}
	for _, s := range read {
		s.inspect()
	}
	return append(list, read...), degraded, unread
}

// chooseVersions chooses the version of each tenant that is in force from now on: the one in list, or, if that has a
// mistake, the one in force until now. A conflict with another tenant is a mistake of the tenant that has
// changed.
func chooseVersions(c *config, list []*tenantSource, inForce map[string]*tenantSource) map[string]*tenantSource {
	changed := func(s *tenantSource) int {
		if old := inForce[s.name]; old != nil && reflect.DeepEqual(old.config, s.config) {
			return 0
		}
		return 1
	}
	list = slices.Clone(list)
	// Unchanged tenants first: they get their callers and folders, and a changed tenant that wants the same ones has
	// the mistake.
	slices.SortStableFunc(list, func(a, b *tenantSource) int { return changed(a) - changed(b) })
	for {
		accepted, ok := choose(c, list, inForce)
		if ok {
			return accepted
		}
		// One more tenant has a mistake now: its former version may be in conflict with others.
	}
}

// choose is one attempt of chooseVersions. It returns false after the first conflict, which it has reported.
func choose(c *config, list []*tenantSource, inForce map[string]*tenantSource) (map[string]*tenantSource, bool) {
	accepted, claims := map[string]*tenantSource{}, c.newClaims()
	for _, s := range list {
		// A tenant with a mistake keeps its callers and folders, so that no other tenant can take them over.
		if old := inForce[s.name]; len(s.found.list) > 0 && old != nil {
			claims.add(&tenantSource{name: old.name, config: old.config, found: &problems{}})
			accepted[old.name] = old
		}
	}
	for _, s := range list {
		if len(s.found.list) > 0 {
			continue
		}
		if !claims.add(s) {
			return nil, false
		}
		accepted[s.name] = s
	}
	return accepted, true
}

// apply puts the accepted tenants in force. d.tenants.mu is held.
func (d *daemon) apply(ctx context.Context, accepted map[string]*tenantSource) {
	t := d.tenants
	var added, updated, removed []string
	var list []*tenant.Tenant
	rows := d.config.callers()
	values, warnings := map[string]*tenant.Tenant{}, map[string][]server.Warning{"": t.warnings[""]}
	for name, s := range accepted {
		old := t.sources[name]
		switch {
		case old == nil:
			added = append(added, name)
		case !reflect.DeepEqual(old.config, s.config):
			updated = append(updated, name)
		}
		// An unchanged tenant keeps its value: the executor compares pointers, and running executions share it.
		value, warned := t.values[name], t.warnings[name]
		if old == nil || !reflect.DeepEqual(old.config, s.config) {
			value = s.config.tenant(name, t.network)
			warned = d.warnNetwork(s)
		}
		values[name], warnings[name] = value, warned
		list = append(list, value)
		rows = append(rows, s.rows()...)
	}
	for name := range t.sources {
		if accepted[name] == nil {
			removed = append(removed, name)
		}
	}
	t.sources, t.values, t.warnings = accepted, values, warnings
	if len(added)+len(updated)+len(removed) == 0 {
		return
	}
	// Before the tenants, so that a new tenant has its skills with its first call.
	if err := d.skills.SetPrivate(ctx, privateRoots(slices.Collect(maps.Values(accepted)))); err != nil && ctx.Err() == nil {
		d.log.Error("skills of tenants not reloaded", "err", err)
	}
	if d.networks != nil {
		for _, name := range added {
			d.networks.Add(name)
		}
	}
	d.executor.SetTenants(list...)
	if err := d.callers.SetRows(rows); err != nil {
		d.log.Error("callers of tenants not reloaded", "err", err) // never: each row was checked
	}
	// After the new tenants, so that an agent that connects again at once finds them.
	d.mcp.DropTenants()
	for _, name := range removed {
		d.metrics.Forget(name)
		if d.networks != nil {
			d.networks.Remove(name)
		}
	}
	d.log.Info("tenants reloaded", "added", few(added), "updated", few(updated), "removed", few(removed), "total", len(accepted))
}

// few returns the first names of a list, for the log.
func few(names []string) string {
	const most = 20
	slices.Sort(names)
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], " "), more)
	}
	return strings.Join(names, " ")
}

// watchTenants reloads the tenants after a change of their files, until ctx ends. If watching fails, the
// daemon goes on; SIGHUP still reloads.
func (d *daemon) watchTenants(ctx context.Context) {
	if !d.config.manyTenants() {
		return
	}
	w, err := fsnotify.NewWatcher()
	if err == nil {
		defer w.Close()
		// The directory of the file, since editors replace files.
		err = w.Add(filepath.Dir(d.path))
		if d.config.TenantsDir != "" {
			err = errors.Join(err, w.Add(d.config.TenantsDir))
		}
	}
	if err != nil {
		d.log.Error("tenants are not watched; send SIGHUP after a change", "err", err)
		return
	}
	d.reloadTenants(ctx) // they may have changed before the watch began
	// A stopped timer for the loop: it is received here, and Reset starts it.
	timer := time.NewTimer(0)
	<-timer.C
	var first time.Time // of the changes that are not read yet
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-w.Events:
			if !d.concernsTenants(e.Name) {
				continue
			}
		case <-w.Errors: // events were lost
		case <-d.tenants.unread:
			if first.IsZero() { // else the timer runs, and ends earlier
				timer.Reset(tenantsUnread)
			}
			continue
		case <-timer.C:
			first = time.Time{}
			d.reloadTenants(ctx)
			continue
		}
		if first.IsZero() {
			first = time.Now()
		}
		timer.Reset(min(tenantsQuiet, max(0, time.Until(first.Add(tenantsMost)))))
	}
}

// concernsTenants reports whether a changed file can have tenants. Kubernetes changes a mounted directory of
// files by a link ..data.
func (d *daemon) concernsTenants(path string) bool {
	return path == d.path || d.config.TenantsDir != "" && filepath.Dir(path) == filepath.Clean(d.config.TenantsDir) || filepath.Base(path) == "..data"
}
