package skill

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

// Reload reads the roots again. If a folder can no longer be loaded, it keeps its former
// skill and is a Problem. If a folder is gone, so is its skill. Callers may go on using
// a Skill that they hold (View.Hold). An error concerns the shared roots, or ctx; then nothing has changed. If the
// snapshots of a tenant's roots can't be written, the tenant gets a Problem and keeps its former skills. After
// HandOver, Reload does nothing.
// The new lists are built next to the old ones and then stored at once, so look-ups never wait for
// a reload and never see half of it.
func (r *Registry) Reload(ctx context.Context) (Changes, error) {
	r.loading.Lock()
	defer r.loading.Unlock()
	if r.phase.Load() == handedOver {
		return Changes{}, nil
	}

	old, mine := r.now.Load(), r.mine()
	next, err := r.load(ctx, "", r.config.Roots, old)
	if err != nil {
		return Changes{}, err
	}
	all := &private{roots: mine.roots, now: map[string]*snapshotOfRoots{}}
	for tenant, roots := range mine.roots {
		all.now[tenant], err = r.load(ctx, tenant, roots, mine.of(tenant))
		if ctx.Err() != nil {
			return Changes{}, ctx.Err()
		}
		if err != nil {
			all.now[tenant] = mine.of(tenant).failed(roots, err)
		}
	}
	// Before the new skills can be found: they and the former ones can be held from here on.
	unused := r.copies.replace(digestsOfRoots(next, all), r.removes)
	r.now.Store(next)
	r.private.Store(all)
	r.removeCopies(unused)
	r.changes.notify()
	changes := compare(old, next)
	r.log("", old, next, changes)
	for tenant, next := range all.now {
		old := mine.of(tenant)
		r.log(tenant, old, next, compare(old, next))
	}
	return changes, nil
}

// failed returns the former skills of a tenant after a failed load, with the error as a problem. If the tenant's roots
// have changed, it returns no skills, because the former folders may belong to another tenant now.
func (n *snapshotOfRoots) failed(roots []Root, err error) *snapshotOfRoots {
	kept := &snapshotOfRoots{roots: roots}
	if reflect.DeepEqual(n.roots, roots) {
		*kept = *n
		kept.problems = slices.DeleteFunc(slices.Clone(n.problems), func(p Problem) bool { return p.Folder == roots[0].Dir })
	}
	kept.problems = append(kept.problems, Problem{Folder: roots[0].Dir, Err: err})
	return kept
}

// load reads the shared roots, or the roots of one tenant.
func (r *Registry) load(ctx context.Context, tenant string, roots []Root, old *snapshotOfRoots) (*snapshotOfRoots, error) {
	l := &loading{registry: r, tenant: tenant, roots: roots, old: old, next: &snapshotOfRoots{
		roots: roots, byName: map[string]*Skill{}, byBare: map[string][]*Skill{}, byFolder: map[place]*Skill{},
	}}
	for _, root := range roots {
		from := len(l.found)
		l.root(ctx, root)
		ownNamesFirst(l.found[from:])
		if err := ctx.Err(); err != nil {
			l.discard()
			return nil, err
		}
	}
	if err := l.publish(); err != nil {
		return nil, fmt.Errorf("skill snapshots: %w", err)
	}
	l.assignNames()
	return l.next, nil
}

// loading is one reading of roots.
type loading struct {
	registry *Registry
	tenant   string // empty: the roots are shared
	roots    []Root
	old      *snapshotOfRoots
	next     *snapshotOfRoots
	found    []candidate
}

// candidate is a folder with its skill: a newly loaded one, or the one it had before.
type candidate struct {
	place
	skill  *Skill
	staged *snapshot.Staged // must be published before the skill may be used; nil: already published
}

// root loads the folders of one root.
func (l *loading) root(ctx context.Context, root Root) {
	dir, err := root.open()
	if err != nil {
		l.lost(place{root.Namespace, root.Dir}, err)
		return
	}
	defer dir.Close()
	s, err := foldersOf(dir, root)
	if err != nil {
		l.lost(place{root.Namespace, root.Dir}, err)
		return
	}
	l.next.problems = append(l.next.problems, s.problems...)
	for _, p := range s.lost {
		l.lost(place{root.Namespace, p.Folder}, p.Err)
	}
	for _, f := range s.found {
		at := place{root.Namespace, f.path}
		sk, st, err := importFolder(ctx, l.registry.store, f, l.registry.bounds)
		if err != nil {
			l.keep(at, err)
			continue
		}
		if had := l.old.byFolder[at]; had != nil && had.Digest == sk.Digest && had.Dir == sk.Dir && st == nil {
			sk = had
		}
		l.found = append(l.found, candidate{at, sk, st})
	}
}

// ownNamesFirst sorts the folders of one root: folders that have the name of their skill
// come first. So a skill that calls itself like another skill's folder cannot displace that
// skill.
func ownNamesFirst(found []candidate) {
	other := func(c candidate) int {
		if filepath.Base(c.folder) == c.skill.BareName() {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(found, func(a, b candidate) int { return other(a) - other(b) })
}

// keep records why a folder did not load and keeps its former skill, if it had one.
func (l *loading) keep(at place, err error) {
	p := Problem{Folder: at.folder, Err: err}
	if had := l.old.byFolder[at]; had != nil {
		p.Kept = had.Name
		l.found = append(l.found, candidate{place: at, skill: had})
	}
	l.next.problems = append(l.next.problems, p)
}

// lost keeps the skills of a root, or of a directory beneath one, that cannot be read. If it does not
// exist, its skills are gone.
func (l *loading) lost(root place, err error) {
	l.next.problems = append(l.next.problems, Problem{Folder: root.folder, Err: err})
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	had := slices.SortedFunc(maps.Keys(l.old.byFolder), func(a, b place) int { return strings.Compare(a.folder, b.folder) })
	for _, at := range had {
		beneath := at.folder == root.folder || strings.HasPrefix(at.folder, strings.TrimSuffix(root.folder, "/")+"/")
		if at.namespace == root.namespace && beneath {
			l.found = append(l.found, candidate{place: at, skill: l.old.byFolder[at]})
		}
	}
}

// publish makes the new snapshots durable and gives them their final names. If one of
// them fails, the reload fails.
func (l *loading) publish() error {
	var staged []*snapshot.Staged
	for _, c := range l.found {
		if c.staged != nil {
			staged = append(staged, c.staged)
		}
	}
	if len(staged) == 0 {
		return nil
	}
	err := l.registry.publish(l.tenant, staged)
	if err != nil {
		l.discard()
	}
	return err
}

// discard removes the snapshots that were staged and not published. The caller returns an error;
// the old result stays in place.
func (l *loading) discard() {
	for _, c := range l.found {
		if c.staged != nil {
			c.staged.Discard()
		}
	}
}

// assignNames decides which folder has which name, and sorts the skills.
// The first folder with a name wins: found is in the order of the roots, and within a root in the
// order of ownNamesFirst and of the names.
func (l *loading) assignNames() {
	n := l.next
	folderOf := map[string]string{}
	for _, c := range l.found {
		name := c.skill.Name
		if kept, taken := folderOf[name]; taken {
			if kept != c.folder {
				err := &DuplicateError{Name: name, Kept: kept, Folder: c.folder}
				n.problems = append(n.problems, Problem{Folder: c.folder, Err: err})
			}
			continue
		}
		if err := l.refuse(name); err != nil {
			n.problems = append(n.problems, Problem{Folder: c.folder, Err: err})
			continue
		}
		folderOf[name] = c.folder
		n.byName[name] = c.skill
		n.byFolder[c.place] = c.skill
	}
	n.list = slices.SortedFunc(maps.Values(n.byName), func(a, b *Skill) int { return strings.Compare(a.Name, b.Name) })
	for _, s := range n.list {
		if bare := s.BareName(); bare != s.Name {
			n.byBare[bare] = append(n.byBare[bare], s)
		}
	}
}

// refuse returns why no skill of the roots can have a name, or nil.
func (l *loading) refuse(name string) error {
	switch {
	case l.registry.HasNamespace(name) || hasNamespace(l.roots, name):
		return &NamespaceError{Name: name}
	case l.tenant != "" && slices.Contains(l.registry.config.Reserved, name):
		return &ReservedNameError{name}
	}
	return nil
}

func sortedNames(m map[string]*Skill) []string { return slices.Sorted(maps.Keys(m)) }

// compare returns the difference between two reloads. A skill is updated if its digest has
// changed; its folder does not matter.
func compare(old, next *snapshotOfRoots) Changes {
	var c Changes
	for _, name := range sortedNames(next.byName) {
		switch had := old.byName[name]; {
		case had == nil:
			c.Added = append(c.Added, name)
		case had.Digest != next.byName[name].Digest:
			c.Updated = append(c.Updated, name)
		}
	}
	for _, name := range sortedNames(old.byName) {
		if next.byName[name] == nil {
			c.Removed = append(c.Removed, name)
		}
	}
	return c
}

// unlisted returns the names of the skills that MCP's Skills extension should list, and cannot.
func (n *snapshotOfRoots) unlisted() (names []string) {
	for _, s := range n.list {
		if s.Unlisted() != "" && !s.Manifest.DisableModelInvocation {
			names = append(names, s.Name)
		}
	}
	return names
}

// log logs the changes, and those problems that the reload before did not have.
// A problem that persists is logged once, not with each reload, which can come every few minutes.
func (r *Registry) log(tenant string, old, next *snapshotOfRoots, c Changes) {
	log := r.config.Log
	if tenant != "" {
		log = log.With("tenant", tenant)
	}
	if len(c.Added)+len(c.Updated)+len(c.Removed) > 0 {
		log.Info("skills loaded", "added", c.Added, "updated", c.Updated, "removed", c.Removed, "total", len(next.list))
	}
	if names := next.unlisted(); len(names) > 0 && !slices.Equal(names, old.unlisted()) {
		log.Warn("skills not listed over MCP; skillrun validate says why", "count", len(names), "skills", names)
	}
	known := map[string]bool{}
	for _, p := range old.problems {
		known[p.Folder+"\x00"+p.Err.Error()] = true
	}
	for _, p := range next.problems {
		if !known[p.Folder+"\x00"+p.Err.Error()] {
			log.Warn("skill not loaded", "folder", p.Folder, "kept", p.Kept, "err", p.Err)
		}
	}
}
