// Package environment builds and keeps prepared environments: the Python packages that a skill
// needs, installed once, shared read-only by the executions of one tenant.
//
// Install code is a stranger's program, so a build runs in a new sandbox without a network
// (build.go, build.py). pip's requests to its index go through a pipe to package download, which
// fetches project pages of the configured index and the files that they name, and
// nothing else. The result is copied out beneath descriptors (freeze.go)
// and published under its digest, whole or not at all (publish.go). An execution gets it by a
// lease (lease.go). If nothing is prepared, the execution is refused before it starts, with
// the names of the missing packages (check.go).
//
// Node packages take the same way with npm in place of pip (node.go, build.js). Package download speaks the
// protocol of npm's registry to it, and can answer from a directory of files. Tools of uvx, pipx and npx get
// environments without the skill's packages (npx.go).
//
// Two names lead to an environment. Its digest is computed from its files, so equal builds share one
// directory. The key of a set of requirements is computed from the skill, the interpreter and the
// sources before anything is built; it leads to the digest of the last build. Executions compute
// the key and never build.
//
// Store.mu guards all lists and is held for moments only: files are hashed, copied and removed without
// it. A lease keeps an environment on disk, whatever replaces or evicts it.
package environment

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path"
	goruntime "runtime"
	"strings"
	"sync"
	"time"

	"github.com/skillrun/skillrun/internal/environment/download"
	"github.com/skillrun/skillrun/internal/lazyregexp"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/manifest"
	"github.com/skillrun/skillrun/sandbox"
)

// Config says where packages come from and environments go. Dir and Host must be
// set; without Index and Wheels nothing can be built.
type Config struct {
	// Dir holds the environments and nothing else. It is made if need be, 0700.
	Dir  string
	Host *sandbox.Host
	// Rootfs is the directory whose usr a sandbox sees. Empty: "/".
	Rootfs string
	// Pip is a directory with pip in it, as PYTHONPATH wants it. Empty: none.
	Pip string
	// Index is the URL of a simple index (PEP 503), with credentials if it wants
	// them: they stay in this process.
	Index string
	// Wheels is a directory with wheels.
	Wheels string
	// StrictVersions refuses an execution if a requirement is not valid, or if an installed
	// package has another version than the skill declares. If it is false, the lease has a
	// warning.
	StrictVersions bool
	// Sdists allows source distributions, whose build runs their own code.
	Sdists bool
	// Registry is the URL of a registry of Node packages. A user without a password is a token.
	// Empty: none.
	Registry string
	// Tarballs is a directory with files of Node packages, NAME.tgz. Empty: none.
	Tarballs string
	// InstallScripts allows the scripts of Node packages that npm runs when it installs them.
	InstallScripts bool
	// Dial connects builds to the index, the registry and the hosts of files, for example through a proxy. Nil: directly.
	Dial download.Dial
	// Bytes bounds the room of all environments together on disk, and of each. 0: DefaultBytes.
	Bytes int64
	// Wall and MemoryBytes bound one build. The memory also holds the downloaded and the
	// installed files. 0: DefaultWall, DefaultMemory.
	Wall        time.Duration
	MemoryBytes int64
	// Group names the group of sandboxes (sandbox.Spec.Group) in which the builds of a tenant run, so that the tenant's
	// bounds hold for them, too. It is called for each build. Nil: the default group.
	Group func(tenant string) string
	// Takeover says that an earlier process has Dir open, and will hand it over. See takeover.go.
	Takeover bool
	// Log gets messages for the operator. Nil: no log.
	Log *slog.Logger
	// removeAll removes a directory. Nil: os.RemoveAll. Tests set it.
	removeAll func(dir string) error
}

// Defaults of Config.
const (
	DefaultBytes  = 10 << 30
	DefaultWall   = 10 * time.Minute
	DefaultMemory = 2 << 30
)

// Bounds of builds that are not configured.
const (
	maxBuilds  = 2  // at a time
	maxWaiting = 32 // and more that wait
	maxLog     = 1 << 20
)

// An Environment describes a prepared environment.
type Environment struct {
	// Digest is "sha256:" and 64 hex digits; empty: the skill needs no package.
	Digest    string
	Packages  []string // "six==1.16.0", by name
	SizeBytes int64    // on disk, see skill.DiskBytes
	Python    string   // "system 3.11.2"; of Node packages "node 20.20.2"
	Reused    bool     // it was there already
	BuildTime time.Duration
}

// A Store keeps environments. It is safe for concurrent use. One process may use
// its directory at a time, and a second one that takes over from it (takeover.go).
// Lock order: kept.check is never taken under mu, and flight.mu and mu are never held
// together. Trees are removed (unlock) and compared (intact) without mu, because both take
// time in proportion to their files.
type Store struct {
	config Config
	run    string // part of the names of this process's unfinished directories, see prefix
	unread error  // why learn has left out environments or keys on disk, see learnKey; nil: it has not. Guarded by mu
	index  *url.URL
	// registry has the Node packages. Nil: none.
	registry *url.URL
	tarballs *download.Tarballs // nil: none
	machine  string
	system   map[runtime.Image]*runtime.SystemPackages // guarded by mu
	stall    time.Duration                             // of downloads
	runner   []byte                                    // what runs pip in a build
	roots    *x509.CertPool                            // nil: the machine's

	// A build has a place in building while its sandbox runs. So all builds
	// together have at most maxBuilds times Config.MemoryBytes.
	building *turns
	// A compileSkill has the place in compiling. It is not in building: a caller waits for a build.
	compiling *turns

	life   context.Context // of builds
	end    context.CancelFunc
	builds sync.WaitGroup
	// removal removes what load has set aside. Close does not wait for it: the next start removes the rest.
	removal sync.WaitGroup

	mu       sync.Mutex
	tenants  map[string]*tenant
	flights  map[flightKey]*flight     // builds that run or wait
	took     time.Duration             // moving average of builds; 0: none has ended
	passed   map[string]passedCheck    // what checked remembers
	library  map[string]bool           // what inLibrary remembers
	compiled map[string]*compiledSkill // by compiledKey
	queued   map[string]int            // compilations that run or wait, by skill.PushedBy; no zeros
	venvs    map[string]*skillVenv
	over     bool             // more than fits is in use, or nothing may be removed
	phase    int              // see takeover.go
	leaving  map[string]*kept // retired environments, by directory, whose files are still there
	trash    []string         // directories without a name, to be removed without the lock
	stuck    []string         // directories that could not be removed; the next build tries again
}

// A tenant's environments by digest, and the digest that is prepared for each key.
type tenant struct {
	dir      string
	kept     map[string]*kept
	prepared map[string]string // key -> digest
}

type flightKey struct{ tenant, key string }

// Open opens a store. It learns the environments. It removes the remains of a crash, and environments beyond the bound,
// in the background. In a takeover it removes nothing, and leaves that to Adopt.
func Open(c Config) (*Store, error) {
	if c.Bytes == 0 {
		c.Bytes = DefaultBytes
	}
	if c.Wall == 0 {
		c.Wall = DefaultWall
	}
	if c.MemoryBytes == 0 {
		c.MemoryBytes = DefaultMemory
	}
	if c.Rootfs == "" {
		c.Rootfs = "/"
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.removeAll == nil {
		c.removeAll = os.RemoveAll
	}
	s := &Store{
		config: c, run: strings.ToLower(rand.Text()[:8]), leaving: map[string]*kept{}, stall: download.StallTimeout, runner: buildProgram, machine: machine(), system: map[runtime.Image]*runtime.SystemPackages{},
		building: newTurns(maxBuilds), compiling: newTurns(1), queued: map[string]int{}, compiled: map[string]*compiledSkill{}, venvs: map[string]*skillVenv{}, tenants: map[string]*tenant{}, flights: map[flightKey]*flight{}, passed: map[string]passedCheck{}, library: map[string]bool{},
	}
	s.life, s.end = context.WithCancel(context.Background())
	if c.Index != "" {
		var err error
		if s.index, err = ParseIndex(c.Index); err != nil {
			return nil, err
		}
	}
	if c.Registry != "" {
		var err error
		if s.registry, err = ParseIndex(c.Registry); err != nil {
			return nil, err
		}
	}
	if c.Tarballs != "" {
		s.tarballs = download.NewTarballs(c.Tarballs, c.Log)
	}
	if c.Takeover {
		s.phase = unadopted
	}
	if err := s.load(); err != nil {
		return nil, fmt.Errorf("environments: %w", err)
	}
	return s, nil
}

// Close ends the builds and waits until they are gone.
// It must come before Config.Host is closed, which runs the builds. Leases stay valid.
func (s *Store) Close() {
	s.mu.Lock()
	s.end() // beginCompile begins nothing from here on
	s.mu.Unlock()
	s.builds.Wait()
}

// ParseIndex checks the URL of an index. The error doesn't show it: it may hold
// credentials.
// cmd/skillrund also calls it when it only checks a configuration.
func ParseIndex(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("not a URL")
	case u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("want https://host/path/, without a query")
	}
	return u, nil
}

// machine is this machine as platform_machine names it.
func machine() string {
	switch goruntime.GOARCH {
	case "amd64":
		return "x86_64"
	case "arm64":
		return "aarch64"
	}
	return goruntime.GOARCH
}

// identity is what environments of one interpreter have in common. Another image may
// have another C library. An environment has links into the interpreter's directory.
// Only the minor version of Python counts: packages of 3.11.2 work with 3.11.9 (PEP 425).
func (s *Store) identity(inv runtime.Invocation) string {
	r := inv.Python
	kind := runtime.System
	if isEmbedded(r) {
		kind = runtime.Embedded
	}
	text := fmt.Sprintf("cpython-%s %s linux-%s in %s", minorOf(r.Version), kind, s.machine, path.Dir(r.Path))
	if inv.Image != (runtime.Image{}) {
		text += " image " + inv.Image.Digest
	}
	return text
}

// keyOf is the key of a set of requirements for an interpreter.
// The index is not part of the key: another index doesn't make an environment stale. Sdists
// is, because with them pip may choose other files.
func (s *Store) keyOf(inv runtime.Invocation, requirements string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "skillrun requirements 3\x00%s\x00%t\x00%s", s.identity(inv), s.config.Sdists, requirements))
	return hex.EncodeToString(sum[:])
}

var plainTenant = lazyregexp.New(`^[a-z0-9][a-z0-9_-]{0,63}$`)

// tenantDir is the name of a tenant's directory.
// A hash begins with +, which no plain name has. So no tenant can choose a name that another
// tenant's hash has.
func tenantDir(name string) string {
	if plainTenant.MatchString(name) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return "+" + hex.EncodeToString(sum[:])
}

// Prepare returns the environment of a skill for a tenant. It builds the environment if there
// is no such environment yet, or if rebuild is set. python is the skill's Python. log gets the
// build's output as it comes; an error of log ends the wait. Callers that want the same
// environment at the same time share one build, which goes on while at least one of them
// waits.
//
// The error is a *RequirementError, ErrNoSource, ErrNoPip, an *IndexError, a *NoPackageError,
// a *BuildError, a *TooLargeError, a *BusyError, ErrHandedOver, one that wraps ENOSPC if the disk of the
// store is full, the error of ctx, or internal. A build that fails leaves no files.
// A build doesn't run in the context of a caller. Otherwise the first caller's hang-up would
// end the build for the others.
func (s *Store) Prepare(ctx context.Context, tenantName string, sk *skill.Skill, python runtime.Invocation, rebuild bool, log func([]byte) error) (Environment, error) {
	p, err := s.newPlan(sk, python)
	if err != nil {
		return Environment{}, err
	}
	return s.prepare(ctx, tenantName, p, rebuild, log)
}

// PrepareTool is Prepare for a tool that the skill's command lines run. It has an environment of
// its own, as with uvx.
func (s *Store) PrepareTool(ctx context.Context, tenantName string, sk *skill.Skill, tool manifest.Requirement, python runtime.Invocation, rebuild bool, log func([]byte) error) (Environment, error) {
	p, err := s.planOf(sk, []manifest.Requirement{tool}, python)
	if err != nil {
		return Environment{}, err
	}
	return s.prepare(ctx, tenantName, p, rebuild, log)
}

// prepare returns the environment of a plan.
func (s *Store) prepare(ctx context.Context, tenantName string, p *plan, rebuild bool, log func([]byte) error) (Environment, error) {
	if p.node == nil && len(p.requirements) == 0 {
		return Environment{Python: p.interpreter()}, nil
	}
	dir := tenantDir(tenantName)
	if !rebuild {
		k, err := s.take(dir, p.key)
		if err != nil {
			return Environment{}, err
		}
		if k != nil {
			defer s.release(k)
			env := k.environment
			env.Reused, env.BuildTime = true, 0
			return env, nil
		}
	}
	if err := s.canBuild(p); err != nil {
		return Environment{}, err
	}
	if s.config.Group != nil {
		p.group = s.config.Group(tenantName)
	}
	f, err := s.join(flightKey{dir, p.key}, p, rebuild)
	if err != nil {
		return Environment{}, err
	}
	defer s.leave(flightKey{dir, p.key}, f)
	return f.follow(ctx, log)
}

// canBuild returns an error if builds lack something.
// It looks at the disk each time, because an operator may mend the wheels' directory while
// the daemon runs.
func (s *Store) canBuild(p *plan) error {
	if p.node != nil {
		if s.registry == nil && s.tarballs == nil {
			return ErrNoRegistry
		}
		return nil
	}
	if s.index == nil && s.config.Wheels == "" {
		return ErrNoSource
	}
	if s.config.Pip == "" {
		return ErrNoPip
	}
	if s.config.Wheels != "" {
		if fi, err := os.Stat(s.config.Wheels); err != nil || !fi.IsDir() { // or a link to one
			return &IndexError{Index: s.config.Wheels, Reason: "it does not exist; it should have the wheels", Key: "environments.wheels"}
		}
	}
	return nil
}

// A flight is one build and its waiting callers.
// A caller joins with Store.join, reads with follow, and ends with Store.leave.
type flight struct {
	cancel  context.CancelFunc
	waiters int  // guarded by Store.mu
	replace bool // one of them asked for a rebuild; guarded by Store.mu

	mu      sync.Mutex
	log     []byte
	changed chan struct{} // closed when there is more to know
	done    bool
	result  Environment
	err     error
}

// join returns the running build for a key, or starts one.
// Every join needs a leave. A flight counts against maxBuilds+maxWaiting until its build has
// ended or no caller waits for it.
func (s *Store) join(key flightKey, p *plan, rebuild bool) (*flight, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.flights[key]; f != nil {
		f.waiters++
		f.replace = f.replace || rebuild
		return f, nil
	}
	if s.phase == handedOver {
		return nil, ErrHandedOver
	}
	if err := s.mayBuild(key.tenant); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(s.life)
	f := &flight{cancel: cancel, waiters: 1, replace: rebuild, changed: make(chan struct{})}
	s.flights[key] = f
	s.builds.Go(func() {
		defer cancel()
		env, err := s.make(ctx, key, p, f)
		if err != nil && s.life.Err() != nil {
			err = ErrClosed
		}
		s.mu.Lock()
		if s.flights[key] == f {
			delete(s.flights, key)
		}
		s.mu.Unlock()
		f.end(env, err)
	})
	return f, nil
}

// mayBuild returns nil if a tenant may have another flight. A tenant may always have one flight. It may have n flights if
// at least n places then remain free for other tenants. The caller holds s.mu.
func (s *Store) mayBuild(tenant string) error {
	own := 0
	for key := range s.flights {
		if key.tenant == tenant {
			own++
		}
	}
	free := maxBuilds + maxWaiting - len(s.flights)
	if free <= 0 || own > 0 && own+1 > free-1 {
		return &BusyError{Waiting: len(s.flights), OfTenant: own, RetryAfter: s.retryAfter()}
	}
	return nil
}

// Bounds of BusyError.RetryAfter. firstRetry is the estimate until a build has ended.
const (
	firstRetry = 10 * time.Second
	maxRetry   = time.Minute
)

// retryAfter estimates the time until the next build ends: the average time of a build, divided by the maxBuilds that run
// at once. The caller holds s.mu.
func (s *Store) retryAfter() time.Duration {
	if s.took == 0 {
		return firstRetry
	}
	return min(max(s.took/maxBuilds, time.Second), maxRetry)
}

// ended notes how long a build had a place.
func (s *Store) ended(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.took == 0 {
		s.took = took
	}
	s.took += (took - s.took) / 4
}

// leave ends a wait. It ends a build for which no caller waits.
func (s *Store) leave(key flightKey, f *flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.waiters--; f.waiters > 0 {
		return
	}
	f.cancel()
	if s.flights[key] == f { // later callers get a new build
		delete(s.flights, key)
	}
}

// make builds and publishes.
// A caller that waits for building has no sandbox and no directory yet. After an error the
// directory is discarded.
func (s *Store) make(ctx context.Context, key flightKey, p *plan, f *flight) (Environment, error) {
	if err := s.building.enter(ctx, key.tenant); err != nil {
		return Environment{}, err
	}
	defer s.building.leave(key.tenant)
	s.discardAgain()
	began := time.Now()
	defer func() { s.ended(time.Since(began)) }()
	dir, err := s.newDir()
	if err != nil {
		return Environment{}, err
	}
	defer dir.fs.Close()
	result, err := s.build(ctx, p, dir.root, f)
	if err != nil {
		s.discard(dir.dir)
		return Environment{}, err
	}
	env := Environment{
		Digest: result.digest, Packages: result.packages, SizeBytes: result.size,
		Python: p.interpreter(), BuildTime: time.Since(began),
	}
	if err := s.publish(ctx, key, dir, env, func() bool { return f.replace }); err != nil {
		s.discard(dir.dir)
		return Environment{}, err
	}
	s.config.Log.Info("environment built", "tenant", key.tenant, "skill", p.skill, "digest", env.Digest, "bytes", env.SizeBytes,
		"packages", len(env.Packages), "took_ms", env.BuildTime.Milliseconds())
	return env, nil
}

// Write takes the build's output.
// It takes the standard error of pip or npm. Beyond maxLog bytes the text is dropped and the build goes
// on: Write returns len(p), because an error would stop the sandbox's output.
func (f *flight) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if room := maxLog - len(f.log); room > 0 {
		f.log = append(f.log, p[:min(len(p), room)]...)
		if len(f.log) == maxLog {
			f.log = append(f.log, "\n(more output is left out)\n"...)
		}
		f.wake()
	}
	return len(p), nil
}

func (f *flight) end(env Environment, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.result, f.err, f.done = env, err, true
	f.wake()
}

// The caller holds f.mu. Closing the channel wakes all followers; each takes the new one
// together with the state under the lock, so that no change is missed.
func (f *flight) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// follow passes the build's output on until the build ends.
// A caller that joins late gets the output from its beginning.
func (f *flight) follow(ctx context.Context, log func([]byte) error) (Environment, error) {
	sent := 0
	for {
		f.mu.Lock()
		more := bytes.Clone(f.log[sent:])
		done, changed := f.done, f.changed
		f.mu.Unlock()
		if len(more) > 0 {
			sent += len(more)
			if err := log(more); err != nil {
				return Environment{}, err
			}
		}
		if done {
			return f.result, f.err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Environment{}, ctx.Err()
		}
	}
}
