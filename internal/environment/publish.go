package environment

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/skillrun/skillrun/internal/durable"
	"github.com/skillrun/skillrun/internal/lazyregexp"
)

// Names in a store. An environment lies at TENANT/DIGEST, or at TENANT/DIGEST.NUMBER if it
// replaced an environment of the same digest. It has root, its manifest, and a file whose time
// says when it was last used. TENANT/prepared/KEY holds the digest that is prepared for a set
// of requirements. A name that begins with a dot is unfinished or to be removed.
const (
	newPrefix    = ".new-"
	oldPrefix    = ".old-"
	rootName     = "root"
	manifestName = "manifest.json"
	usedName     = "used"
	preparedName = "prepared"
)

// maxManifestBytes bounds a manifest. It is more than freeze's bounds allow: JSON needs at most 6 bytes for one.
const maxManifestBytes = 8 * maxPackageBytes

var (
	hexDigest  = lazyregexp.New(`^[0-9a-f]{64}$`)
	keptFolder = lazyregexp.New(`^([0-9a-f]{64})(?:\.[0-9]+)?$`)
)

// A kept is one environment on disk.
// Store.mu guards used, leases, gone and, after publication, dir. The other fields don't
// change, apart from verified.
type kept struct {
	environment Environment
	dir         string
	inodes      string // see inodesOf
	used        time.Time
	built       time.Time
	leases      int        // executions and builds that use it
	check       sync.Mutex // guards verified; not taken with Store.mu held
	verified    bool       // its inodes, since this process began
	gone        bool       // it has lost its name; the last lease removes it
}

func (k *kept) root() string { return filepath.Join(k.dir, rootName) }

// A manifestFile is stored with an environment and describes it.
type manifestFile struct {
	Digest   string   `json:"digest"`
	Packages []string `json:"packages"`
	Size     int64    `json:"disk_bytes"` // never 0
	Python   string   `json:"python"`
	Inodes   string   `json:"inodes"`
}

// building is an environment in the making.
// It is not in any list: until publish only its build knows it. The build discards it after an
// error, and load removes it after a crash.
type building struct {
	dir, root string
	fs        *durable.FS // open since before the first write
}

// newDir makes a directory for a build. It lies in the store, so that publish can rename it:
// rename(2) doesn't cross file systems.
func (s *Store) newDir() (building, error) {
	dir, err := os.MkdirTemp(s.config.Dir, s.prefix(newPrefix))
	if err != nil {
		return building{}, err
	}
	b := building{dir: dir, root: filepath.Join(dir, rootName)}
	if b.fs, err = durable.OpenFS(dir); err != nil {
		s.discard(dir)
		return building{}, err
	}
	if err := errors.Join(os.Mkdir(b.root, 0o755), os.Chmod(b.root, 0o755)); err != nil {
		b.fs.Close()
		s.discard(dir)
		return building{}, err
	}
	return b, nil
}

// prefix returns the beginning of the names of this process's unfinished and temporary directories of a kind.
func (s *Store) prefix(kind string) string { return kind + s.run + "-" }

// temporary reports whether a name in the store's directory is the name of an unfinished or temporary directory,
// and whether the directory belongs to this process.
func (s *Store) temporary(name string) (is, own bool) {
	for _, kind := range []string{newPrefix, oldPrefix, venvPrefix, compiledPrefix} {
		if strings.HasPrefix(name, kind) {
			return true, strings.HasPrefix(name, s.prefix(kind))
		}
	}
	return false, false
}

// load learns the complete environments. It sets aside the others, and those beyond the bound, and removes them in the
// background: the removal of one environment can take a minute, in which the daemon would refuse all tenants.
func (s *Store) load() error {
	if err := os.MkdirAll(s.config.Dir, 0o700); err != nil {
		return err
	}
	if err := os.Chmod(s.config.Dir, 0o700); err != nil {
		return err
	}
	remove := s.setAside
	if s.config.Takeover {
		remove = leave
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.learn(remove); err != nil {
		return err
	}
	s.evict()
	trash := s.takeTrash()
	s.removal.Go(func() { s.remove(trash) })
	return nil
}

// away returns a new name that the next start removes.
func (s *Store) away() string { return filepath.Join(s.config.Dir, s.prefix(oldPrefix)+rand.Text()) }

// setAside puts an entry into trash. A crash before its removal leaves a name that the next start removes. An entry that
// cannot be renamed, for example on a full disk, is removed at once. The caller holds Store.mu.
func (s *Store) setAside(path string) error {
	is, _ := s.temporary(filepath.Base(path))
	if !is || filepath.Dir(path) != s.config.Dir {
		away := s.away()
		if err := os.Rename(path, away); err != nil {
			return s.config.removeAll(path)
		}
		path = away
	}
	s.trash = append(s.trash, path)
	return nil
}

// leave is an argument of learn that removes nothing: the earlier process may use the entry.
func leave(string) error { return nil }

// learn adds the environments on disk that are not in the lists. It leaves out a tenant whose directory can't be read
// at present: the daemon can serve the others. It calls remove for each entry that this process does not need; an
// earlier process, if it lives, may need it. The caller holds Store.mu.
func (s *Store) learn(remove func(dir string) error) error {
	entries, err := os.ReadDir(s.config.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(s.config.Dir, e.Name())
		is, own := s.temporary(e.Name())
		switch {
		case own:
		case is:
			err = remove(path)
		case e.IsDir():
			err = s.learnTenant(e.Name(), remove)
			if durable.MayPass(err) {
				s.config.Log.Warn("environments of a tenant not read", "dir", path, "err", err)
				s.unread, err = err, nil
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// learnTenant is learn for one tenant. It removes a damaged entry with a warning, because the next prepare builds the
// environment again, and keys whose environment is missing. It leaves out what cannot be read at present; see learnKey. An environment in the list stays there even if the disk has
// another build of the same digest, because the two are equal.
func (s *Store) learnTenant(name string, remove func(dir string) error) error {
	t := s.tenants[name]
	if t == nil {
		t = &tenant{dir: filepath.Join(s.config.Dir, name), kept: map[string]*kept{}, prepared: map[string]string{}}
	}
	entries, err := os.ReadDir(t.dir)
	if s.phase == unadopted && errors.Is(err, fs.ErrNotExist) {
		return nil // the earlier process has just removed the tenant
	}
	s.tenants[name] = t // also after an error: Purge must not take the directory for missing
	if err != nil {
		return err
	}
	unread, err := s.learnKept(t, entries, remove)
	if err != nil {
		return err
	}
	keys, err := os.ReadDir(filepath.Join(t.dir, preparedName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range keys {
		path := filepath.Join(t.dir, preparedName, e.Name())
		digest, err := readFile(path, 128)
		if durable.MayPass(err) {
			s.unread = err
			continue
		}
		if unread && err == nil && t.kept[string(digest)] == nil {
			continue // it may be the key of an environment that was not read
		}
		if err != nil || !hexDigest.MatchString(e.Name()) || t.kept[string(digest)] == nil {
			if err := remove(path); err != nil {
				return err
			}
			continue
		}
		t.prepared[e.Name()] = string(digest)
	}
	return nil
}

// learnKept adds the environments among the entries of a tenant's directory. unread says that it could not read one of
// them, for a reason that may pass.
func (s *Store) learnKept(t *tenant, entries []fs.DirEntry, remove func(dir string) error) (unread bool, err error) {
	listed := map[string]bool{}
	for _, k := range t.kept {
		listed[k.dir] = true
	}
	found := map[string]*kept{}
	for _, e := range entries {
		path := filepath.Join(t.dir, e.Name())
		if strings.HasPrefix(e.Name(), newPrefix) {
			if err := remove(path); err != nil {
				return unread, err
			}
			continue
		}
		m := keptFolder.FindStringSubmatch(e.Name())
		if m == nil || listed[path] || s.leaving[path] != nil {
			continue
		}
		k, err := readKept(path, remove)
		if durable.MayPass(err) {
			s.config.Log.Warn("environment not read", "dir", path, "err", err)
			s.unread, unread = err, true
			continue
		}
		if err == nil && k.environment.Digest != "sha256:"+m[1] {
			err = errors.New("its manifest belongs to another environment")
		}
		if err == nil && found[k.environment.Digest] != nil {
			// A crash came between the new one's name and the old one's end.
			if old := found[k.environment.Digest]; old.built.Before(k.built) {
				path, found[k.environment.Digest] = old.dir, k
			}
			err = errors.New("a newer build replaced it")
		}
		if err == nil && t.kept[k.environment.Digest] != nil {
			err = errors.New("another build has the same digest")
		}
		if err != nil {
			if s.phase != unadopted {
				s.config.Log.Warn("damaged environment removed", "dir", path, "err", err)
			}
			if err := remove(path); err != nil {
				return unread, err
			}
			continue
		}
		found[k.environment.Digest] = k
	}
	maps.Copy(t.kept, found)
	return unread, nil
}

// readKept reads what publish wrote. It doesn't compare inodes; intact does that at the
// first use.
func readKept(dir string, remove func(dir string) error) (*kept, error) {
	text, err := readFile(filepath.Join(dir, manifestName), maxManifestBytes)
	if err != nil {
		return nil, err
	}
	var m manifestFile
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, err
	}
	if m.Size <= 0 {
		return nil, errors.New("its manifest has no disk_bytes")
	}
	fi, err := os.Lstat(filepath.Join(dir, usedName))
	if err != nil {
		return nil, err
	}
	written, err := os.Lstat(filepath.Join(dir, manifestName))
	if err != nil {
		return nil, err
	}
	unfinished, err := fs.Glob(os.DirFS(dir), newPrefix+"*")
	for _, name := range unfinished {
		err = errors.Join(err, remove(filepath.Join(dir, name)))
	}
	if err != nil {
		return nil, err
	}
	return &kept{
		environment: Environment{Digest: m.Digest, Packages: m.Packages, SizeBytes: m.Size, Python: m.Python},
		dir:         dir, inodes: m.Inodes, used: fi.ModTime(), built: written.ModTime(),
	}, nil
}

// publish gives a finished environment its name, and the key of its requirements
// its digest. If it was there already, the new one is dropped: they are the same. If
// replace says so, or the one that is there is damaged, the new one takes its place,
// and leases of the old one stay valid. If ctx is done, no caller waits for the environment any longer, and
// publish returns the error of ctx.
func (s *Store) publish(ctx context.Context, key flightKey, b building, env Environment, replace func() bool) error {
	inodes, err := inodesOf(b.root)
	if err != nil {
		return err
	}
	text, err := json.Marshal(manifestFile{env.Digest, env.Packages, env.SizeBytes, env.Python, inodes})
	if err != nil {
		return err
	}
	if len(text) > maxManifestBytes { // the next start could not read it
		return fmt.Errorf("manifest of an environment: %d bytes; at most %d are read", len(text), maxManifestBytes)
	}
	err = errors.Join(
		os.WriteFile(filepath.Join(b.dir, manifestName), text, 0o600),
		os.WriteFile(filepath.Join(b.dir, usedName), nil, 0o600),
		// Everything must be on disk before the name says that it is.
		b.fs.Sync(),
	)
	if err != nil {
		return err
	}
	// Before the lock is taken: a look at a large tree takes seconds.
	damaged := s.damaged(key.tenant, env.Digest)
	s.mu.Lock()
	defer s.unlock()
	// leave ends ctx under this lock. So no build adds an environment of a tenant after Purge has seen no build.
	if err := ctx.Err(); err != nil {
		return err
	}
	t, err := s.tenant(key.tenant)
	if err != nil {
		return err
	}
	k := t.kept[env.Digest]
	if k != nil && k != damaged && !replace() {
		s.trash = append(s.trash, b.dir)
	} else {
		old := k
		k = &kept{environment: env, inodes: inodes, used: time.Now(), built: time.Now(), verified: true}
		if k.dir, err = t.place(b.dir, env.Digest); err != nil {
			return err
		}
		t.kept[env.Digest] = k
		if old != nil {
			s.retire(old)
		}
	}
	s.touch(k)
	if err := t.remember(key.key, env.Digest); err != nil {
		if !t.hasKey(env.Digest) { // no key leads to it
			delete(t.kept, env.Digest)
			s.retire(k)
		}
		return err
	}
	// evict would take the new environment if everything else is leased.
	k.leases++ // not this one
	s.evict()
	k.leases--
	return nil
}

// damaged returns the environment of a digest if it has changed since it was published, else
// nil.
// It leases the environment while it looks, so that no eviction removes it.
func (s *Store) damaged(tenantName, digest string) *kept {
	s.mu.Lock()
	t := s.tenants[tenantName]
	if t == nil || t.kept[digest] == nil {
		s.mu.Unlock()
		return nil
	}
	k := t.kept[digest]
	k.leases++
	s.unlock()
	err := s.intact(k)
	s.release(k)
	if err == nil {
		return nil
	}
	return k // an environment that could not be read, too: the caller has a new one
}

// place moves a new environment of a digest from dir to the tenant, and returns its new directory.
// The plain name may still be taken by a retired environment that is leased.
func (t *tenant) place(dir, digest string) (string, error) {
	first := filepath.Join(t.dir, strings.TrimPrefix(digest, "sha256:"))
	to := first
	for i := 1; ; i++ {
		_, err := os.Lstat(to)
		if errors.Is(err, fs.ErrNotExist) {
			err = os.Rename(dir, to)
			if !errors.Is(err, fs.ErrExist) { // else another process took the name in this moment
				return to, err
			}
		} else if err != nil {
			return "", err
		}
		to = fmt.Sprintf("%s.%d", first, i)
	}
}

// retire ends an environment that has lost its entry in the list. Its files stay while it is
// leased; without a manifest the next start removes them.
// The caller holds Store.mu and has removed or replaced the entry in t.kept.
func (s *Store) retire(k *kept) {
	k.gone = true
	s.leaving[k.dir] = k
	if s.phase == sole {
		s.endName(k)
	}
	if k.leases == 0 {
		s.endRetired(k)
	}
}

// endName removes the manifest of a retired environment. The next start then removes the rest as incomplete. The caller
// holds Store.mu.
func (s *Store) endName(k *kept) {
	if err := os.Remove(filepath.Join(k.dir, manifestName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.config.Log.Error("replaced environment not removed", "dir", k.dir, "err", err)
	}
}

// endRetired removes a retired environment without leases. Before Adopt, and after HandOver, the environment
// stays on disk. The caller holds Store.mu.
func (s *Store) endRetired(k *kept) {
	if s.phase == sole {
		delete(s.leaving, k.dir)
		s.trash = append(s.trash, k.dir)
	}
}

// tenant returns a tenant, and makes its directory if it is new.
// The caller holds Store.mu.
func (s *Store) tenant(name string) (*tenant, error) {
	if t := s.tenants[name]; t != nil {
		return t, nil
	}
	t := &tenant{dir: filepath.Join(s.config.Dir, name), kept: map[string]*kept{}, prepared: map[string]string{}}
	if err := os.MkdirAll(filepath.Join(t.dir, preparedName), 0o700); err != nil {
		return nil, err
	}
	s.tenants[name] = t
	return t, nil
}

// remember writes down the digest that is prepared for a key. After an error the key
// keeps its former digest; if the file has the new one already, the next start keeps the file only if
// that environment is there. The caller holds Store.mu.
func (t *tenant) remember(key, digest string) error {
	dir := filepath.Join(t.dir, preparedName)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := durable.WriteFile(filepath.Join(dir, key), []byte(digest)); err != nil {
		return err
	}
	if err := durable.SyncDir(t.dir); err != nil { // dir may be new, and the environment got its name there
		return err
	}
	t.prepared[key] = digest
	return nil
}

// hasKey reports whether a digest is prepared for some key. The caller holds Store.mu.
func (t *tenant) hasKey(digest string) bool {
	for _, d := range t.prepared {
		if d == digest {
			return true
		}
	}
	return false
}

// drop removes an environment from the list. Its files are removed when the last lease ends, but not before Adopt. After
// HandOver the files stay, because they belong to the next process.
// The caller holds Store.mu and calls unlock, which removes the files. Files without a lease
// are renamed first: a crash during the removal leaves a name that load removes.
func (s *Store) drop(t *tenant, k *kept) error {
	delete(t.kept, k.environment.Digest)
	for key, digest := range t.prepared {
		if digest == k.environment.Digest {
			delete(t.prepared, key)
			if s.phase == handedOver {
				continue
			}
			if err := os.Remove(filepath.Join(t.dir, preparedName, key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	if k.leases > 0 || s.phase != sole { // it is in use under its present name
		s.retire(k)
		return nil
	}
	away := s.away()
	if err := os.Rename(k.dir, away); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.trash = append(s.trash, away)
	k.dir, k.gone = away, true
	return nil
}

// discard removes a directory that is in no list: the inputs of a build, or its remains after an error.
func (s *Store) discard(dir string) {
	s.mu.Lock()
	defer s.unlock()
	s.trash = append(s.trash, dir)
}

// discardAgain removes the directories whose removal has failed. That was for want of
// descriptors, for example, and may succeed now.
func (s *Store) discardAgain() {
	s.mu.Lock()
	defer s.unlock()
	s.trash = append(s.trash, s.stuck...)
	s.stuck = nil
}

// unlock releases the lock, then removes retired environments: removing a large tree takes
// time. What can't be removed is kept in mind for the next build.
// Every function but load that can put something into trash ends with it instead of mu.Unlock.
func (s *Store) unlock() {
	trash := s.takeTrash()
	s.mu.Unlock()
	s.remove(trash)
}

// takeTrash empties trash. The caller holds Store.mu, and removes what it gets.
func (s *Store) takeTrash() []string {
	trash := s.trash
	s.trash = nil
	return trash
}

// remove removes directories. The caller does not hold Store.mu.
func (s *Store) remove(trash []string) {
	for _, dir := range trash {
		if err := s.config.removeAll(dir); err != nil {
			s.config.Log.Error("environment not removed; the next build tries again", "dir", dir, "err", err)
			s.mu.Lock()
			s.stuck = append(s.stuck, dir)
			s.mu.Unlock()
		}
	}
}

// evict removes environments and compiled files, the least recently used first, until the rest fits. It removes
// them only of tenants beyond their fair share, and first of the tenant with the most bytes. An environment
// in use is removed when its last lease ends. Before Adopt, and after HandOver, evict removes nothing.
// The caller holds Store.mu. The bound counts all tenants together. over tells release that
// something has to go later.
func (s *Store) evict() {
	if s.over = s.phase != sole; s.over {
		return
	}
	for {
		key, compiled, size := s.oldestCompiled()
		oldest, of, total := s.oldestOfTheMost(size)
		total += size
		if total <= s.config.Bytes || oldest == nil && compiled == nil {
			s.over = total > s.config.Bytes
			return
		}
		if compiled != nil && (oldest == nil || compiled.used.Before(oldest.used)) {
			s.config.Log.Info("compiled files of a skill removed: least recently used", "dir", compiled.dir, "bytes", compiled.size)
			s.trash = append(s.trash, compiled.dir)
			if compiled.used.IsZero() { // the first execution may compile the skill again
				delete(s.compiled, key)
			}
			*compiled = compiledSkill{derived: derived{of: compiled.of}, tenant: compiled.tenant}
			continue
		}
		if err := s.drop(of, oldest); err != nil {
			s.config.Log.Error("environment not removed", "dir", oldest.dir, "err", err)
			// drop deletes the entry before its first error, so the loop ends.
			continue // it has lost its place in the list
		}
		s.config.Log.Info("environment removed: least recently used", "tenant", filepath.Base(of.dir), "digest", oldest.environment.Digest, "bytes", oldest.environment.SizeBytes)
	}
}

// oldestOfTheMost returns the least recently used environment without a lease of the tenant with the most bytes, and
// the bytes of all environments. Only tenants with more than their fair share of Config.Bytes count; compiled files
// count as one more tenant. oldest is nil if these tenants use all their environments. The caller holds Store.mu.
func (s *Store) oldestOfTheMost(compiled int64) (oldest *kept, of *tenant, total int64) {
	bytes := map[*tenant]int64{}
	for _, t := range s.tenants {
		for _, k := range t.kept {
			bytes[t] += k.environment.SizeBytes
			total += k.environment.SizeBytes
		}
	}
	holders := int64(len(bytes))
	if compiled > 0 {
		holders++
	}
	for t, n := range bytes {
		if n <= s.config.Bytes/holders || of != nil && n < bytes[of] {
			continue
		}
		for _, k := range t.kept {
			if k.leases == 0 && (oldest == nil || n > bytes[of] || k.used.Before(oldest.used)) {
				oldest, of = k, t
			}
		}
	}
	return oldest, of, total
}

// oldestCompiled returns the key and a copy of SkillDir without a lease, or nil, and the bytes of all copies. The copy is
// the least recently used one of the tenant whose pushed skills have the most compiled bytes; all other skills count as
// one more tenant. Only tenants with more than their fair share of the share of compiled files count, see
// oldestOfTheMost. The caller holds Store.mu.
func (s *Store) oldestCompiled() (key string, oldest *compiledSkill, total int64) {
	bytes, holders := map[string]int64{}, int64(1)
	for _, c := range s.compiled {
		if c.size > 0 {
			bytes[c.tenant] += c.size
			total += c.size
		}
	}
	for _, t := range s.tenants {
		if len(t.kept) > 0 {
			holders++
		}
	}
	for k, c := range s.compiled {
		n := bytes[c.tenant]
		if c.dir == "" || c.leases > 0 || n <= s.config.Bytes/holders/int64(len(bytes)) {
			continue
		}
		if oldest == nil || n > bytes[oldest.tenant] || n == bytes[oldest.tenant] && c.used.Before(oldest.used) {
			key, oldest = k, c
		}
	}
	return key, oldest, total
}

// intact returns nil if an environment is as it was published. With durable.MayPass(err) that is not known: the
// environment could not be read. Each is looked at once in a process's life, without the lock: a large one takes its
// time. The caller holds a lease.
func (s *Store) intact(k *kept) error {
	k.check.Lock()
	defer k.check.Unlock()
	if k.verified {
		return nil
	}
	now, err := inodesOf(k.root())
	switch {
	case durable.MayPass(err):
		return fmt.Errorf("environment %s: %w", k.environment.Digest, err)
	case err == nil && now != k.inodes:
		err = errors.New("its files differ from the build")
	}
	if err != nil {
		s.config.Log.Warn("damaged environment", "dir", k.dir, "err", err)
		return err
	}
	k.verified = true
	return nil
}

// usedInterval limits how often the time of the last use is written to disk. After a restart
// the order of eviction is exact to this interval.
const usedInterval = time.Minute

// touch notes a use of k. The caller holds Store.mu.
func (s *Store) touch(k *kept) {
	now := time.Now()
	if now.Sub(k.used) >= usedInterval {
		// A time that is not written costs the right order after a restart.
		_ = os.Chtimes(filepath.Join(k.dir, usedName), now, now)
	}
	k.used = now
}

// inodesOf is a hash over every inode beneath root. It reads no file: a change of a file, its
// mode or its owner changes its ctime, which no system call can set back.
// The ctime also changes when a state directory is copied or restored (inode(7)). Such
// environments count as damaged and have to be prepared again.
func inodesOf(root string) (string, error) {
	h := sha256.New()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		size := st.Size
		if d.IsDir() {
			size = 0 // the file system's own business
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%q %o %d:%d %d %d.%d\n", rel, st.Mode, st.Uid, st.Gid, size, st.Ctim.Sec, st.Ctim.Nsec)
		return nil
	})
	return hex.EncodeToString(h.Sum(nil)), err
}
