package skill

import (
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/skill/manifest"
)

// Problem is a folder or root that did not load.
type Problem struct {
	// Tenant has the folder for itself; empty: it is shared.
	Tenant string
	Folder string
	// Kept is the name of the skill that stays loaded from the folder's former content;
	// empty if the folder had none.
	Kept string
	// Err is ErrNoManifest, ErrLinkedFolder, ErrTooDeep, a *DuplicateError, a *NamespaceError, a *ReservedNameError,
	// snapshot.ErrChanging, a *snapshot.BoundError, a *manifest.ManifestError, a *snapshot.PathError (the manifest is
	// refused), or an error of the operating system.
	Err error
}

// Problems returns the folders and roots that did not load, in reading order: the shared ones first, then
// each tenant's.
func (r *Registry) Problems() []Problem {
	list := slices.Clone(r.now.Load().problems)
	now := r.mine().now
	for _, tenant := range slices.Sorted(maps.Keys(now)) {
		for _, p := range now[tenant].problems {
			p.Tenant = tenant
			list = append(list, p)
		}
	}
	return list
}

// Problems returns the tenant's problems, and those of shared folders that it may see, without paths of the machine:
// Folder has only the last name, and Err is a text.
func (v View) Problems() (list []Problem) {
	for _, p := range v.registry.Problems() {
		if p.Tenant != "" && p.Tenant != v.tenant {
			continue
		}
		// A shared folder that did not load has no skill's name yet, so its own name stands for it.
		if p.Tenant == "" && !v.sees(filepath.Base(p.Folder)) && (p.Kept == "" || !v.sees(p.Kept)) {
			continue
		}
		list = append(list, Problem{Tenant: p.Tenant, Folder: filepath.Base(p.Folder), Kept: p.Kept, Err: errors.New(p.withoutPaths())})
	}
	return list
}

// withoutPaths returns the reason with names in place of the paths of folders.
func (p Problem) withoutPaths() string {
	if e, ok := errors.AsType[*DuplicateError](p.Err); ok {
		return (&DuplicateError{Name: e.Name, Kept: filepath.Base(e.Kept), Folder: filepath.Base(e.Folder)}).Error()
	}
	return strings.ReplaceAll(p.Err.Error(), strings.TrimSuffix(filepath.Dir(p.Folder), "/")+"/", "")
}

// whyMissing returns why the folder with a skill's name did not load. It returns "" if there is no such folder.
func (v View) whyMissing(name string) string {
	_, bare := manifest.SplitName(name)
	for _, p := range v.Problems() {
		if p.Folder == bare && p.Kept == "" {
			return p.Err.Error()
		}
	}
	return ""
}
