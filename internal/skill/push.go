package skill

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/skillrun/skillrun/internal/skill/manifest"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

// InvalidSkillError says that pushed files are not a valid skill.
type InvalidSkillError struct {
	Name     string // empty: not known
	Findings []manifest.Finding
}

// maxPlaces bounds the places in the message. The status of a refused push has as many findings (internal/server).
const maxPlaces = 8

// Error has the first finding, and the places of the others: skillrun push puts a place in front of a message that does not
// have it.
func (e *InvalidSkillError) Error() string {
	var places []string
	for _, f := range e.Findings[1:min(len(e.Findings), maxPlaces)] {
		place := strings.TrimSuffix(f.String(), ": "+f.Message)
		if place+": "+e.Findings[0].Message != e.Findings[0].String() && !slices.Contains(places, place) {
			places = append(places, place)
		}
	}
	more := ""
	if n := len(e.Findings) - 1; n > 0 {
		more = fmt.Sprintf(" (and %d more", n)
		if len(places) > 0 {
			more += ": " + strings.Join(places, ", ")
		}
		more += ")"
	}
	return fmt.Sprintf("not a valid skill: %s%s", e.Findings[0], more)
}

// ReservedNameError says that no tenant can push a skill with the name.
type ReservedNameError struct{ Name string }

func (e *ReservedNameError) Error() string {
	return fmt.Sprintf("the name %q is taken by the daemon's configuration; rename the skill", e.Name)
}

// NotPushedError says that a skill cannot be deleted because it is a shared skill.
type NotPushedError struct{ Name string }

func (e *NotPushedError) Error() string {
	return fmt.Sprintf("skill %q is shared by all tenants; only the operator of the daemon can remove it", e.Name)
}

// SourceError says that a tenant may not have skills from a host.
type SourceError struct{ Host string }

func (e *SourceError) Error() string {
	return fmt.Sprintf("the tenant's policy does not allow skills from %q; ask the operator of the daemon to add the host", e.Host)
}

// QuotaError says that a tenant's kept versions leave no room for another one, even after all
// versions that can be removed.
type QuotaError struct {
	Quota string // quotaBytes, quotaVersions or quotaAllVersions
	Limit int64  // bytes or versions, as Quota says; so are the others
	// Used is by versions that cannot be removed: the newest version of each skill, and running ones. It is 0 in an error
	// of CheckPush, which only compares Asked with Limit.
	Used  int64
	Asked int64 // by the version that was pushed
}

func (e *QuotaError) Error() string {
	if e.Quota == quotaBytes && e.Asked > e.Limit {
		return fmt.Sprintf("quota of %s: the skill alone needs %d, and the whole quota is %d; make the skill smaller, or ask the operator for more",
			e.Quota, e.Asked, e.Limit)
	}
	return fmt.Sprintf("quota of %s: the skill needs %d, and %d of %d are in use by the newest versions and by running ones; delete skills that are not needed (skillrun skills rm)",
		e.Quota, e.Asked, e.Used, e.Limit)
}

// A Push is a request to import a folder as a tenant's skill.
type Push struct {
	// Parent is the directory of the folder, Folder its name there. The folder may be removed after
	// the push.
	Parent, Folder string
	Name           string // that SKILL.md must have; empty: any
	Source         string // a URL; empty: the caller
}

// A Pushed is the result of a Push.
type Pushed struct {
	Skill   *Skill
	Version Version
	Existed bool      // the version was kept already
	Removed []Version // to stay within the quota
}

// CheckSource returns the host of a source, or why it cannot be one.
func CheckSource(source string) (host string, err error) {
	u, err := url.Parse(source)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || len(source) > maxSourceBytes {
		return "", fmt.Errorf("must be an https URL without credentials, of at most %d bytes", maxSourceBytes)
	}
	return u.Hostname(), nil
}

// CheckPush returns an error if the tenant may not push a skill from this source, or with this size, or if
// the registry is handed over. Callers use it before they receive files. Push repeats the checks.
func (v View) CheckPush(source string, bytes int64) error {
	if v.registry.phase.Load() == handedOver {
		return ErrHandedOver
	}
	rules := v.registry.rules(v.tenant)
	if v.registry.owner(v.tenant) == nil || rules.NoPush {
		return &QuotaError{Quota: quotaAllVersions, Asked: 1}
	}
	if source != "" {
		host, err := CheckSource(source)
		if err != nil {
			return err
		}
		if rules.Source != nil && !rules.Source(host) {
			return &SourceError{host}
		}
	}
	if rules.MaxBytes > 0 && bytes > rules.MaxBytes {
		return &QuotaError{Quota: quotaBytes, Limit: rules.MaxBytes, Asked: bytes}
	}
	return nil
}

// Push imports a folder as the newest version of a skill of the tenant. The version is durable when
// Push returns. Older versions go if a quota needs room: the oldest first, but never one that runs
// and never the newest one of another skill. The error is an *InvalidSkillError, a
// *ReservedNameError, a *QuotaError, a *SourceError, ErrHandedOver, or one of the operating system.
// The order is: copy and check the folder, plan which versions stay, publish the snapshot, replace
// the index. Until the index is replaced nothing is visible, and everything before can be
// discarded.
func (v View) Push(ctx context.Context, p Push) (Pushed, error) {
	if err := v.CheckPush(p.Source, 0); err != nil {
		return Pushed{}, err
	}
	o := v.registry.owner(v.tenant)
	root, err := os.Open(p.Parent)
	if err != nil {
		return Pushed{}, err
	}
	defer root.Close()
	// Held during the import, too: a deletion must not remove the snapshot that Stage finds.
	select {
	case o.changing <- struct{}{}:
		defer func() { <-o.changing }()
	case <-ctx.Done():
		return Pushed{}, ctx.Err()
	}
	// Purge and HandOver may have come in between: they take the same lock.
	if err := v.CheckPush(p.Source, 0); err != nil {
		return Pushed{}, err
	}
	if err := o.open(ctx, true); err != nil {
		return Pushed{}, err
	}
	sk, staged, err := importFolder(ctx, o.store, folder{root: root, relative: p.Folder, name: p.Name, path: p.Folder}, v.registry.bounds)
	if f, ok := findingOf(err); ok {
		return Pushed{}, &InvalidSkillError{p.Name, []manifest.Finding{f}}
	}
	if err != nil {
		return Pushed{}, err
	}
	discard := func() {
		if staged != nil {
			staged.Discard()
		}
	}
	sk.pushedBy = v.tenant
	if err := v.mayHave(sk); err != nil {
		discard()
		return Pushed{}, err
	}
	done := Pushed{Skill: sk, Version: Version{Name: sk.Name, Digest: sk.Digest, Pushed: time.Now().UTC(), Source: p.Source, Bytes: diskBytes(sk)}}
	list, err := o.plan(&done, v.registry.rules(v.tenant))
	if err != nil {
		discard()
		return Pushed{}, err
	}
	if len(o.current()) == 0 { // before the first snapshot, see blank
		if err := o.writeIndex(nil); err != nil {
			discard()
			return Pushed{}, err
		}
	}
	if staged != nil {
		if err := o.store.Publish([]*snapshot.Staged{staged}); err != nil {
			discard()
			return Pushed{}, err
		}
	}
	return done, o.replace(list)
}

// mayHave checks the skill itself. Importing tolerates findings of severity error, and a push does
// not: its author is there to mend them.
func (v View) mayHave(sk *Skill) error {
	var bad []manifest.Finding
	for _, f := range sk.Validate() {
		if f.Severity == manifest.SeverityError {
			bad = append(bad, f)
		}
	}
	if len(bad) > 0 {
		return &InvalidSkillError{sk.Name, bad}
	}
	if slices.Contains(v.registry.config.Reserved, sk.Name) || v.registry.HasNamespace(sk.Name) || v.ownsNamespace(sk.Name) {
		return &ReservedNameError{sk.Name}
	}
	return nil
}

const (
	quotaBytes       = "skill bytes"
	quotaVersions    = "versions of a skill"
	quotaAllVersions = "skill versions"
)

// plan returns the list of versions after a push. The caller has o.changing, so only holds can change.
// It removes one version at a time and asks again, because one removal can satisfy several quotas.
// A quota of versions concerns the pushed name only; the others take from any skill.
func (o *owned) plan(p *Pushed, rules Rules) ([]*kept, error) {
	var list []*kept
	for _, k := range o.current() {
		if k.Name == p.Version.Name && k.Digest == p.Version.Digest {
			p.Existed = true
			continue // it becomes the newest
		}
		list = append(list, k)
	}
	list = append(list, &kept{Version: p.Version, skill: p.Skill})
	for {
		short := o.short(list, p.Version, rules)
		if short == nil {
			return list, nil
		}
		gone := o.oldest(list, func(k *kept) bool { return short.Quota != quotaVersions || k.Name == p.Version.Name })
		if gone == nil {
			return nil, short
		}
		p.Removed = append(p.Removed, gone.Version)
		list = slices.DeleteFunc(list, func(k *kept) bool { return k == gone })
	}
}

// PushedVenvs returns, by tenant, the newest version of each pushed skill that has a virtual environment (venv/). It
// loads no skill. all also reads the lists of tenants that have made no call yet. Tenants that may not push are left
// out: they are not configured any longer.
func (r *Registry) PushedVenvs(all bool) map[string][]Version {
	if all {
		entries, _ := os.ReadDir(r.config.TenantsDir) // without the directory nothing was pushed
		for _, e := range entries {
			r.owner(e.Name())
		}
	}
	venvs := map[string][]Version{}
	r.owners.Range(func(tenant, o any) bool {
		if !r.rules(tenant.(string)).NoPush {
			if list := o.(*owned).venvs(all); len(list) > 0 {
				venvs[tenant.(string)] = list
			}
		}
		return true
	})
	return venvs
}

// venvs is PushedVenvs of one tenant. unread also reads the list if no call has done so. It leaves the tenant
// unopened, because an opened one has a file descriptor.
func (o *owned) venvs(unread bool) (venvs []Version) {
	list := o.current()
	if unread && !o.opened.Load() {
		list, _ = o.readIndex() // open reports an error
	}
	seen := map[string]bool{}
	for _, k := range slices.Backward(list) {
		if seen[k.Name] {
			continue
		}
		seen[k.Name] = true
		if _, err := os.Lstat(filepath.Join(o.dir, strings.TrimPrefix(k.Digest, "sha256:"), venvConfig)); err == nil {
			venvs = append(venvs, k.Version)
		}
	}
	return venvs
}

// PushedUse returns the use of the two quotas of pushed skills. bytes are the bytes of all versions, also of deleted
// versions that an execution still holds. versions is the number of kept versions of the skill with the most. Both are
// zero if the versions can't be read.
func (v View) PushedUse() (bytes int64, versions int) {
	o := v.registry.owner(v.tenant)
	if o == nil {
		return 0, 0
	}
	list, err := o.versions()
	if err != nil {
		return 0, 0
	}
	named := map[string]int{}
	for _, k := range list {
		named[k.Name]++
		versions = max(versions, named[k.Name])
	}
	return o.bytes(list), versions
}

// bytes returns the bytes of versions, and of deleted ones that are still in use.
func (o *owned) bytes(list []*kept) (sum int64) {
	seen := map[string]bool{}
	for _, k := range list {
		seen[k.Digest] = true
		sum += k.Bytes
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for digest, size := range o.unkept {
		if !seen[digest] {
			sum += size
		}
	}
	return sum
}

// short returns the quota that a list with the pushed version exceeds, or nil.
// A deleted version that an execution still holds counts, too. Otherwise a tenant could fill the
// disk by pushing, running and deleting.
func (o *owned) short(list []*kept, pushed Version, rules Rules) *QuotaError {
	bytes, named := o.bytes(list), 0
	for _, k := range list {
		if k.Name == pushed.Name {
			named++
		}
	}
	switch {
	case len(list) > maxOwnVersions:
		return &QuotaError{Quota: quotaAllVersions, Limit: maxOwnVersions, Used: int64(len(list)) - 1, Asked: 1}
	case rules.MaxVersions > 0 && named > rules.MaxVersions:
		return &QuotaError{Quota: quotaVersions, Limit: int64(rules.MaxVersions), Used: int64(named) - 1, Asked: 1}
	case rules.MaxBytes > 0 && bytes > rules.MaxBytes:
		return &QuotaError{Quota: quotaBytes, Limit: rules.MaxBytes, Used: bytes - pushed.Bytes, Asked: pushed.Bytes}
	}
	return nil
}

// oldest returns the oldest version that may go, or nil: it does not run, and is not the newest one of
// a skill.
func (o *owned) oldest(list []*kept, ok func(*kept) bool) *kept {
	newest := map[string]*kept{}
	for _, k := range list {
		newest[k.Name] = k
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, k := range list {
		if newest[k.Name] != k && o.holds[k.Digest] == 0 && ok(k) {
			return k
		}
	}
	return nil
}

// Delete removes the versions that ref names: all of a skill, or a pinned one. Executions that run
// keep their snapshots until they end. The error is a *NotFoundError, a *DigestMismatch, a
// *NotPushedError, ErrHandedOver, or one of the operating system.
func (v View) Delete(ctx context.Context, ref string) ([]Version, error) {
	name, digest, err := ParseRef(ref)
	if err != nil {
		return nil, err
	}
	o := v.registry.owner(v.tenant)
	if o == nil {
		return nil, v.notPushed(name)
	}
	select {
	case o.changing <- struct{}{}:
		defer func() { <-o.changing }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if v.registry.phase.Load() == handedOver {
		return nil, ErrHandedOver
	}
	old, err := o.versions()
	if err != nil {
		return nil, err
	}
	var gone []Version
	var list []*kept
	newest := ""
	for _, k := range old {
		if k.Name == name {
			newest = k.Digest
		}
		if k.Name == name && (digest == "" || k.Digest == digest) {
			gone = append(gone, k.Version)
		} else {
			list = append(list, k)
		}
	}
	switch {
	case len(gone) > 0:
		return gone, o.replace(list)
	case newest != "":
		return nil, &DigestMismatch{Name: name, Want: digest, Have: newest}
	}
	return nil, v.notPushed(name)
}

// notPushed is the error of a skill that is not the tenant's own.
func (v View) notPushed(name string) error {
	sk, err := v.Resolve(name)
	if err != nil {
		return err
	}
	return &NotPushedError{sk.Name}
}

// DiskBytes returns the size of a file on a disk with blocks of 4 KiB; size is its length. A link, a directory and an
// empty file have one block. Counted so, a bound on bytes bounds the number of files, too.
func DiskBytes(size int64) int64 {
	return max(1, (size+diskBlock-1)/diskBlock) * diskBlock
}

// diskBytes returns the size of a skill's snapshot on disk, see DiskBytes, together with the directory that its
// executions see as its venv.
func diskBytes(sk *Skill) int64 {
	total, venv := DiskBytes(0), sk.HasVenv() // the directory itself
	for e := range sk.Entries() {
		total += DiskBytes(e.Size)
		if venv {
			total += venvBytes(e)
		}
	}
	for _, r := range sk.Refused {
		if r.Why == snapshot.VenvInterpreter { // only these are in the snapshot, as links
			total += DiskBytes(0)
		}
	}
	return total
}

// MaxVenvProgram is the size up to which a program of a venv is copied for executions, with another first line.
const MaxVenvProgram = 1 << 20

// venvBytes returns the size of what package environment makes of an entry for executions (its linkVenv): a directory
// with a link to each entry of the venv, and with copies of the programs.
func venvBytes(e snapshot.Entry) int64 {
	name, inVenv := strings.CutPrefix(e.Path, "venv/")
	dir, program, deeper := strings.Cut(name, "/")
	switch {
	case e.Path == "venv", inVenv && !deeper:
		return DiskBytes(0)
	case inVenv && dir == "bin" && e.Kind == snapshot.KindFile && !strings.Contains(program, "/") && e.Size <= MaxVenvProgram:
		return DiskBytes(e.Size)
	}
	return 0
}
