package skill

import (
	"context"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
)

// private are the roots of single tenants with their skills, as one immutable value. A reload reads them
// after the shared roots. Only the View of the tenant looks into them.
type private struct {
	roots map[string][]Root
	now   map[string]*snapshotOfRoots // of the last reload
}

// of returns the skills of a tenant's roots: for a tenant without roots an empty value, not nil.
func (p *private) of(tenant string) *snapshotOfRoots {
	if n := p.now[tenant]; n != nil {
		return n
	}
	return &snapshotOfRoots{}
}

// SetPrivate replaces the private roots, by tenant, and loads them. If that fails, a tenant whose roots have
// changed has no skills of roots until a reload succeeds: its former ones may be another tenant's now.
func (r *Registry) SetPrivate(ctx context.Context, roots map[string][]Root) error {
	roots, err := allAbsolute(roots)
	if err != nil {
		return err
	}
	r.loading.Lock()
	was := r.mine()
	if reflect.DeepEqual(was.roots, roots) {
		r.loading.Unlock()
		return nil
	}
	r.private.Store(&private{roots: roots, now: was.now})
	r.loading.Unlock()
	// rewatch has room for one: several changes need one new look at the roots.
	select {
	case r.rewatch <- struct{}{}:
	default: // Watch looks at the roots soon
	}
	if _, err = r.Reload(ctx); err == nil {
		return nil
	}
	r.loading.Lock()
	defer r.loading.Unlock()
	kept := maps.Clone(was.now)
	maps.DeleteFunc(kept, func(tenant string, _ *snapshotOfRoots) bool {
		return !reflect.DeepEqual(was.roots[tenant], roots[tenant])
	})
	r.private.Store(&private{roots: roots, now: kept})
	return err
}

// mine returns the private roots.
func (r *Registry) mine() *private {
	if p := r.private.Load(); p != nil {
		return p
	}
	return &private{}
}

// allRoots returns the shared roots and all private ones.
func (r *Registry) allRoots() []Root {
	list := slices.Clone(r.config.Roots)
	for _, roots := range r.mine().roots {
		list = append(list, roots...)
	}
	return list
}

// absolute returns a copy of roots with absolute paths.
func absolute(roots []Root) ([]Root, error) {
	roots = slices.Clone(roots)
	for i, root := range roots {
		abs, err := filepath.Abs(root.Dir)
		if err != nil {
			return nil, err
		}
		roots[i].Dir = abs
	}
	return roots, nil
}

// allAbsolute does the same for each tenant. It leaves out tenants without roots.
func allAbsolute(all map[string][]Root) (map[string][]Root, error) {
	to := map[string][]Root{}
	for tenant, roots := range all {
		if len(roots) == 0 {
			continue
		}
		var err error
		if to[tenant], err = absolute(roots); err != nil {
			return nil, err
		}
	}
	return to, nil
}
