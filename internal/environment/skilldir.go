package environment

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/sandbox"
)

// Compiled files of skills. A snapshot has no compiled files, and executions can't write them for
// later ones. So Python would compile the modules of a skill in each execution: 1.6 ms of processor
// time for a module of 4.5 kB.
const (
	compiledPrefix = ".compiled-" // of a directory of the store
	skillTarget    = "/opt/skill" // in the compiler's sandbox
	// minModules is the number of .py files from which on a skill is compiled. Skills with fewer
	// have scripts rather than modules, and Python compiles a script anyway.
	minModules = 10
	// Bounds of one compilation. The compiled files lie in the memory.
	maxCompiledBytes = 256 << 20
	compileMemory    = 2 * maxCompiledBytes
	compileWall      = 5 * time.Minute
	// maxQueued bounds the compilations of one tenant's pushed skills, and of all other skills, that run or wait. Each
	// keeps its skill in memory. Executions of further skills use the snapshot, and a later one tries again.
	maxQueued = 16
)

// A derived is a directory that was made of a skill's snapshot.
type derived struct {
	of     string // the snapshot's directory
	dir    string // empty: not usable
	leases int
	stop   context.CancelFunc // ends what makes dir; nil: Forget does not end it
	gone   bool               // Forget has taken it off the list: it is removed after its last lease
}

func (d *derived) common() *derived { return d }

// A compiledSkill is a copy of SkillDir, from the start of its compilation on. It is not usable
// before its compilation has ended, after an error, and after evict has removed it. Then it stays so until
// the next start: if all copies don't fit into environments.bytes, they would be compiled again
// and again. A copy that no execution has used is an exception. Store.mu guards the fields, except for of.
type compiledSkill struct {
	derived
	tenant string    // that pushed the skill, see skill.PushedBy
	size   int64     // bytes of the compiled files and the directories; the other files are the snapshot's
	used   time.Time // zero: by no execution yet
}

// SkillDir returns the directory of this machine that an execution sees as the skill's folder: its
// snapshot, or a copy of it that also has Python's compiled files. The copy is made in the
// background, by CompileVenv, or after the first call for a skill with many modules. It has hard links to
// the snapshot's files. Its compiled files and directories count towards environments.bytes, and it goes as the least
// recently used environment does, with Forget, but not before the lease is released, and at the latest
// at the next start.
// The copy depends only on the snapshot and the interpreter, so all tenants share the copy of a skill that they all
// see. Equal files that two tenants have pushed are two snapshots.
func (s *Store) SkillDir(u Use, l *Lease) string {
	if (u.Python == runtime.Runtime{}) || !hasModules(u.Skill) {
		return u.Skill.Dir
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.compiled[s.compiledKey(u)]
	if c == nil {
		s.beginCompile(u, time.Now())
		return u.Skill.Dir
	}
	c.used = time.Now()
	if c.dir != "" {
		c.leases++
		l.also(func() { s.releaseCompiled(c) })
		return c.dir
	}
	return u.Skill.Dir
}

// CompileVenv makes the copy of SkillDir before the first execution, for a skill with a venv, which is made for one
// Python. Other skills are compiled when an execution has chosen the Python. It returns when the copy is made, when
// it can't be made, or when ctx ends.
// room is false if the copy does not fit into environments.bytes together with the files that executions use. The
// copy is then made after the first execution, as for other skills.
func (s *Store) CompileVenv(ctx context.Context, u Use) (room bool) {
	if !u.Venv || !hasModules(u.Skill) {
		return true
	}
	key := s.compiledKey(u)
	s.mu.Lock()
	var ended <-chan struct{}
	if s.compiled[key] == nil {
		ended = s.beginCompile(u, time.Time{})
	}
	c := s.compiled[key]
	s.mu.Unlock()
	if ended == nil {
		return true
	}
	select {
	case <-ended:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.compiled[key] != nil || c.gone
}

// compiledKey names a snapshot and an interpreter. It has no digest: a tenant that pushes another tenant's files would
// find them compiled, with the inodes of the other tenant's snapshot, and so learn that the other tenant has them.
func (s *Store) compiledKey(u Use) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %s", u.Skill.Dir, u.Python.Version, s.identity(invocationOf(u))))
	return hex.EncodeToString(sum[:])
}

// beginCompile starts compileSkill. The channel is closed at its end. It is nil if the store begins nothing any longer,
// or if as many compilations as maxQueued have not ended. The caller holds Store.mu.
func (s *Store) beginCompile(u Use, used time.Time) <-chan struct{} {
	tenant := u.Skill.PushedBy()
	if s.life.Err() != nil || s.phase == handedOver || s.queued[tenant] >= maxQueued {
		return nil
	}
	ctx, cancel := context.WithCancel(s.life)
	c, ended := &compiledSkill{derived: derived{of: u.Skill.Dir, stop: cancel}, tenant: tenant, used: used}, make(chan struct{})
	s.compiled[s.compiledKey(u)] = c
	s.queued[tenant]++
	s.builds.Go(func() {
		defer close(ended)
		defer s.dequeue(tenant)
		defer cancel()
		if s.compiling.enter(ctx, tenant) != nil {
			return
		}
		defer s.compiling.leave(tenant)
		s.compileSkill(ctx, u, c)
	})
	return ended
}

// dequeue notes the end of a compilation.
func (s *Store) dequeue(tenant string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queued[tenant]--; s.queued[tenant] == 0 {
		delete(s.queued, tenant)
	}
}

func (s *Store) releaseCompiled(c *compiledSkill) {
	s.mu.Lock()
	defer s.unlock()
	c.leases--
	switch {
	case c.leases > 0:
	case c.gone:
		s.trash = append(s.trash, c.dir)
	case s.over:
		s.evict()
	}
}

// Forget removes the copies of SkillDir and the directories of venvs that came from a removed snapshot. A
// copy has hard links to the snapshot's files, and a venv has copies of its programs. Without Forget they would take room
// on the disk that no quota counts. An execution that uses one keeps it until it ends.
func (s *Store) Forget(snapshot string) {
	s.mu.Lock()
	defer s.unlock()
	forget(s, s.compiled, snapshot)
	forget(s, s.venvs, snapshot)
}

// forget takes the entries that came from a snapshot off a list. The caller holds Store.mu.
func forget[M interface{ common() *derived }](s *Store, list map[string]M, snapshot string) {
	for key, one := range list {
		m := one.common()
		if m.of != snapshot {
			continue
		}
		delete(list, key)
		m.gone = true
		if m.stop != nil {
			m.stop()
		}
		if m.leases == 0 && m.dir != "" { // the holder of a lease may be writing dir
			s.trash = append(s.trash, m.dir)
		}
	}
}

// hasModules reports whether a skill, with its venv, has enough modules.
func hasModules(sk *skill.Skill) bool {
	type key struct{}
	enough, _ := skill.Derived(sk, key{}, func() (bool, error) {
		modules := 0
		for e := range sk.Entries() {
			if e.SHA256 != "" && strings.HasSuffix(e.Path, ".py") {
				modules++
			}
		}
		return modules >= minModules, nil
	})
	return enough
}

// compileSkill makes a copy of SkillDir. After an error executions go on with the snapshot,
// until the next start.
func (s *Store) compileSkill(ctx context.Context, u Use, c *compiledSkill) {
	began := time.Now()
	var directories, files int64
	dir, err := os.MkdirTemp(s.config.Dir, s.prefix(compiledPrefix))
	if err == nil {
		directories, err = linkTree(u.Skill.Dir, dir)
	}
	if err == nil {
		files, err = s.compileTree(ctx, u, dir)
	}
	s.mu.Lock()
	gone := c.gone
	if err == nil && !gone {
		c.dir, c.size = dir, directories+files
		s.evict()
	}
	s.unlock()
	switch {
	case gone:
	case err == nil:
		s.config.Log.Info("skill compiled", "skill", u.Skill.Name, "python", pythonName(u.Python), "took_ms", time.Since(began).Milliseconds())
		return
	case s.life.Err() == nil:
		s.config.Log.Warn("skill not compiled, so each execution compiles its modules", "skill", u.Skill.Name, "err", err)
	}
	if dir != "" {
		s.discard(dir)
	}
}

// linkTree makes the directory to a copy of a snapshot, with hard links to its files and links. It returns the bytes
// of the directories on disk.
func linkTree(from, to string) (size int64, err error) {
	err = filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		at := filepath.Join(to, strings.TrimPrefix(p, from))
		if d.IsDir() {
			size += skill.DiskBytes(0)
		}
		switch {
		case p == from:
			return os.Chmod(at, 0o755)
		case d.IsDir():
			return errors.Join(os.Mkdir(at, 0o755), os.Chmod(at, 0o755)) // whatever the umask
		}
		return os.Link(p, at)
	})
	return size, err
}

// compileTree adds the compiled files to a copy of a skill's snapshot, and returns their bytes. The sandbox runs only
// Python's compiler, and sees nothing but the skill and the interpreter. It is in the default group, because all
// tenants share the result of a shared skill: with the small memory of one tenant, the skill would stay uncompiled
// for all.
//
// checked-hash (PEP 552) makes Python compare a source with its compiled file, because a script
// may change a module in its workspace. -d gives the compiled files the path from which
// executions import a module; another one costs time at each import.
func (s *Store) compileTree(ctx context.Context, u Use, dir string) (int64, error) {
	p := &plan{skill: u.Skill.Name, python: invocationOf(u)}
	const mode, venv = "checked-hash", skillTarget + "/venv"
	spec := s.baseSpec(p, compilerArgs(p, mode, "-d", skill.WorkspaceDir, "-x", "^"+venv+"/", skillTarget), compileWall)
	if u.Venv {
		spec.Program = append(spec.Program, sandbox.Step{Pipeline: []sandbox.Command{{
			Args: compilerArgs(p, mode, "-d", VenvTarget+"/lib", venv+"/lib"),
		}}})
	}
	spec.Mounts = append(spec.Mounts, sandbox.Mount{Source: dir, Target: skillTarget})
	spec.Workspace.SizeBytes, spec.Limits.MemoryBytes = maxCompiledBytes, compileMemory
	c := &compiledCopier{maxBytes: maxCompiledBytes, frozen: &frozen{}}
	exit, err := s.runCompiler(ctx, spec, c, dir, skillTarget)
	switch {
	case err != nil:
		return 0, err
	case exit.End != sandbox.Exited:
		return 0, fmt.Errorf("the compiler ended by %v", exit.End)
	case c.err != nil:
		return 0, c.err
	}
	return c.frozen.size, likeSnapshot(u.Skill.Dir, dir)
}

// likeSnapshot gives the directories and compiled files of a copy the owner and the time of a
// snapshot's entries. The other files are the snapshot's own.
func likeSnapshot(from, dir string) error {
	fi, err := os.Lstat(from)
	if err != nil {
		return err
	}
	owner := fi.Sys().(*syscall.Stat_t)
	return filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !d.IsDir() && filepath.Base(filepath.Dir(p)) != cacheName {
			return nil
		}
		return errors.Join(os.Lchown(p, int(owner.Uid), int(owner.Gid)), os.Chtimes(p, fi.ModTime(), fi.ModTime()))
	})
}
