package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/sirupsen/logrus"
	"github.com/skillrun/skillrun/sandbox/internal/seccomp"
	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/filelock"
	"github.com/skillrun/skillrun/sandbox/internal/cgroup"
	"github.com/skillrun/skillrun/sandbox/internal/mount"
	"github.com/skillrun/skillrun/sandbox/internal/preflight"
	"github.com/skillrun/skillrun/sandbox/internal/pyzygote"
)

// Config configures a Host. Zero values mean the stated defaults.
type Config struct {
	// StateDir holds the locks of instances and libcontainer's state. Open makes
	// it if it is missing, root-owned 0700. Neither StateDir nor an id-mapped
	// directory of a Spec may be on overlayfs.
	StateDir string
	RunDir   string // mount points and the root filesystem, 0711; default /run/skillrun
	// CgroupParent is the absolute path of the cgroup that holds the cgroups of
	// sandboxes; "" is this process's cgroup. It must exist. On cgroup v2 no
	// process may be in it.
	CgroupParent string
	// FirstID and IDs are the first and the number of host uids and gids for
	// sandboxes. No account may have one. A sandbox takes two. Default 1<<28 and 65536.
	FirstID, IDs uint32
	// GroupIDs is how many of the ids each group of sandboxes (Spec.Group) gets while it has a
	// sandbox or a zygote. Default 256. Groups says how many groups that allows. The default
	// group has up to 4096.
	GroupIDs uint32
	// FirstHelperID is the first of HelperIDs uids and gids for helpers (NewHelperGroup). Default: the one
	// after the ids for sandboxes.
	FirstHelperID uint32
	// Links are further symbolic links in the root filesystem: path to target.
	Links map[string]string
	// Roots are root file systems that a Spec can name.
	Roots []Root
	// Tolerate names boundaries that may be missing; Lowerable lists the possible names.
	// Open then succeeds without them. Checks inside a sandbox (Host.Probe) ignore
	// Tolerate: the caller reads Probe's list and decides.
	Tolerate []string
	// Zygote starts a process that makes sandboxes, in a fifth of libcontainer's
	// time. libcontainer makes the sandboxes that the zygote can't make, and all of
	// them without a zygote.
	Zygote bool
	// Prewarmed bounds how many prewarmed sandboxes of all groups wait for their programs. Zero:
	// each sandbox is made at its Start. A positive value implies Zygote.
	Prewarmed int
	// GroupZygotes bounds how many groups of sandboxes besides the default one have a zygote.
	// libcontainer makes the sandboxes of groups without one. They need Zygote.
	GroupZygotes int
	// PythonZygotes bounds how many Python zygotes run, of all groups together. They need Zygote.
	PythonZygotes int
	// PythonFastExit lets scripts that a Python zygote forked skip the destruction of their
	// modules at their end, if the program can't tell the difference. If false, each ends
	// like a started Python, which takes longer.
	PythonFastExit bool
	// Networks says that a Spec may have a Network. Open then requires that the machine can make
	// its interface.
	Networks bool
	Log      *slog.Logger // nil: nothing is logged
}

const (
	defaultRunDir   = "/run/skillrun"
	defaultFirstID  = 1 << 28
	defaultIDs      = 1 << 16
	defaultGroupIDs = 256
	minFirstID      = 1 << 16 // below are accounts
)

func (c Config) withDefaults() Config {
	c.RunDir = cmp.Or(c.RunDir, defaultRunDir)
	c.FirstID = cmp.Or(c.FirstID, defaultFirstID)
	c.IDs = cmp.Or(c.IDs, defaultIDs)
	c.GroupIDs = cmp.Or(c.GroupIDs, min(defaultGroupIDs, c.IDs, blockIDs)&^1)
	c.FirstHelperID = cmp.Or(c.FirstHelperID, c.FirstID+c.IDs)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return c
}

// check returns the first mistake. Ids end below 2^32-1, which means "no change" to chown(2) and setresuid(2), and
// user_namespaces(7) maps no such id.
func (c Config) check() error {
	switch {
	case !filepath.IsAbs(c.StateDir):
		return fmt.Errorf("state directory %q: not absolute", c.StateDir)
	case !filepath.IsAbs(c.RunDir):
		return fmt.Errorf("run directory %q: not absolute", c.RunDir)
	case c.CgroupParent != "" && !filepath.IsAbs(c.CgroupParent):
		return fmt.Errorf("cgroup parent %q: not absolute", c.CgroupParent)
	case c.FirstID < minFirstID || c.IDs < 2 || uint64(c.FirstID)+uint64(c.IDs) > 1<<32-2:
		return fmt.Errorf("ids %d, %d of them: outside %d to 2^32-2", c.FirstID, c.IDs, minFirstID)
	case c.GroupIDs < 2 || c.GroupIDs%2 != 0 || c.GroupIDs > min(c.IDs, blockIDs):
		return fmt.Errorf("ids of a group: %d: want an even number from 2 to %d", c.GroupIDs, min(c.IDs, blockIDs))
	}
	return checkRoots(c.Roots)
}

// A Host makes sandboxes on this machine. Its methods may be called from many
// goroutines.
type Host struct {
	config  Config
	cgroups *cgroup.Hierarchy
	filters seccomp.Filters
	found   []Boundary // the machine's boundaries, as Open found them
	bound   bool       // this Host mounted RunDir on itself
	faults  faults     // empty, except in a build for tests (fault_inject.go)
	pool    *pool      // nil: no zygote, libcontainer makes every sandbox
	starts  starts
	groups  *groups
	roots   map[string]*mount.Root // by name; "" is the host's
	// pythonLog takes the lines of all Python zygotes.
	pythonLog pyzygote.Log
	*instance

	// mu guards closed and running. It also makes reserve's check of closed and its
	// pending.Add one step, so that Close's Wait misses no start.
	mu      sync.Mutex
	closed  bool
	running map[string]*Process // by Spec.ID; nil: its start has not ended
	pending sync.WaitGroup      // running starts and processes
}

// compileFilters compiles the filters once: they depend on nothing but this program. It is a variable for the test of a
// policy that can't be compiled.
var compileFilters = sync.OnceValues(seccomp.Compile)

// Open makes this process an instance. It checks every boundary that this machine
// must give, removes the remains of dead instances with the same StateDir, and
// prepares the parts that all sandboxes share. If boundaries are missing, the
// error names each of them and the remedy.
func Open(ctx context.Context, c Config) (_ *Host, err error) {
	c = c.withDefaults()
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	// libcontainer also returns the errors that it logs.
	logrus.SetOutput(io.Discard)
	h := &Host{config: c, pythonLog: pyzygote.Log{Logger: c.Log}, running: map[string]*Process{}}
	if err := h.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("sandbox: %w", err), h.free())
	}
	return h, nil
}

// open does the work of Open. The order matters: nothing is made before the machine's boundaries are known; the remains
// of dead instances are removed before this one has a name and ids; the pool starts last, because it makes sandboxes at
// once. After an error the caller calls free, which accepts a Host that is open in part.
func (h *Host) open(ctx context.Context) (err error) {
	h.found = Boundaries(h.config)
	if err := errors.Join(preflight.Missing(h.found, h.config.Tolerate)...); err != nil {
		return err
	}
	if h.bound, err = makeDirs(h.config); err != nil {
		return err
	}
	if h.filters, err = compileFilters(); err != nil {
		return err
	}
	if h.cgroups, err = cgroup.Open(h.config.CgroupParent); err != nil {
		return err
	}
	if err := h.begin(ctx); err != nil {
		return err
	}
	h.groups = newGroups(h)
	if err := h.makeSandboxes(); err != nil {
		return err
	}
	if err := h.makeRoots(); err != nil {
		return err
	}
	if h.faults, err = injectFaults(h); err != nil {
		return err
	}
	if !h.config.Zygote && h.config.Prewarmed == 0 || onlyDirect(h) {
		return nil
	}
	// The first pair of ids is the zygote's: its user namespace begins with it.
	if _, err := h.ids.take(); err != nil {
		return err
	}
	h.pool = startPool(h, h.config.Prewarmed)
	return nil
}

// begin sweeps dead instances and makes this one. It holds the lock of StateDir, so
// that no other daemon does the same at the same time.
func (h *Host) begin(ctx context.Context) error {
	lock, err := filelock.AwaitOpen(ctx, filepath.Join(h.config.StateDir, "lock"), filelock.Exclusive)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := sweep(h.config, h.cgroups); err != nil {
		return err
	}
	if err := dropInherited(h.config); err != nil {
		return err
	}
	if err := h.cgroups.Prepare(); err != nil {
		return err
	}
	h.instance, err = newInstance(h.config, h.cgroups)
	return err
}

// HandOver prepares this Host for a takeover by another daemon. Programs still start, but the pool makes no sandbox
// before its program is known. Zygotes of groups and Python zygotes that no program uses end soon. So the other daemon
// gets their memory and the ids of their groups.
func (h *Host) HandOver() { h.pool.setFrugal(true) }

// Resume undoes HandOver, after a takeover that has failed.
func (h *Host) Resume() { h.pool.setFrugal(false) }

// Sweep removes the remains of other Hosts with the same StateDir, as Open does. These Hosts must have ended. Sweep waits
// a moment for the end of their processes, and returns an error if one still lives. It does not touch sandboxes of this
// Host.
func (h *Host) Sweep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sweepPatience)
	defer cancel()
	lock, err := filelock.AwaitOpen(ctx, filepath.Join(h.config.StateDir, "lock"), filelock.Exclusive)
	if err == nil {
		err = errors.Join(h.awaitOthers(ctx), sweep(h.config, h.cgroups))
		lock.Close()
	}
	if err != nil {
		return fmt.Errorf("sandbox: sweep: %w", err)
	}
	return nil
}

// awaitOthers waits until no other instance is locked. A process that dies closes its files one after the other. So its
// lock may be held for a moment after its connections have ended. The caller holds the lock of StateDir.
func (h *Host) awaitOthers(ctx context.Context) error {
	names, err := deadCandidates(h.config)
	for _, name := range names {
		if name == h.instance.name {
			continue
		}
		path := filepath.Join(h.config.StateDir, "instances", name, "lock")
		lock, lerr := filelock.AwaitOpen(ctx, path, filelock.Exclusive)
		if lerr == nil {
			lock.Close()
		} else if !errors.Is(lerr, fs.ErrNotExist) { // a missing file: another process has just removed the instance
			err = errors.Join(err, lerr)
		}
	}
	return err
}

// makeDirs makes the directories, with fixed modes whatever the umask is: other users, the ids of sandboxes among them,
// may pass through RunDir but not list it, and have no access to StateDir. bound reports whether RunDir was mounted on
// itself, which Close undoes.
func makeDirs(c Config) (bound bool, err error) {
	for _, d := range []struct {
		path string
		mode os.FileMode
	}{{c.StateDir, 0o700}, {filepath.Join(c.StateDir, "instances"), 0o700}, {c.RunDir, 0o711}} {
		if err := os.MkdirAll(d.path, d.mode); err != nil {
			return false, err
		}
		if err := os.Chmod(d.path, d.mode); err != nil {
			return false, err
		}
	}
	if err := CheckRunDir(c.RunDir); err != nil {
		return false, fmt.Errorf("run directory: %w", err)
	}
	return mount.Private(c.RunDir)
}

// sandboxes is the directory of the sandboxes' mount points. It is a tmpfs: to make and
// remove a directory on a disk takes longer than all the mounts of a sandbox.
func (h *Host) sandboxes() string { return filepath.Join(h.instance.run, "sandboxes") }

func (h *Host) makeSandboxes() error {
	if err := os.Mkdir(h.sandboxes(), 0o711); err != nil {
		return err
	}
	return mount.Tmpfs(h.sandboxes(), sandboxesOptions)
}

// sandboxesOptions leave room for a directory for each sandbox that an instance can have.
var sandboxesOptions = "mode=711,size=64k,nr_inodes=65536"

func (h *Host) containers() string { return filepath.Join(h.instance.state, "containers") }
func (h *Host) groupName() string  { return groupPrefix + h.instance.name }
func (h *Host) log() *slog.Logger  { return h.config.Log }

// Boundaries probes this machine again, as Open did.
func (h *Host) Boundaries() []Boundary { return Boundaries(h.config) }

// Close kills all programs, waits until they have ended and removes everything that
// this Host made. Process.Wait still returns for each program.
func (h *Host) Close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil
	}
	h.closed = true
	for _, p := range h.running {
		if p != nil { // else admit refuses it
			p.Stop(0)
		}
	}
	h.mu.Unlock()
	h.pending.Wait()
	h.pool.close()
	return h.free()
}

// free removes the cgroups, mounts and directories of the instance.
func (h *Host) free() error {
	if h.instance == nil {
		return nil
	}
	err := errors.Join(
		h.cgroups.Group(h.groupName()).Clear(sweepPatience),
		h.freeRoots(),
		mount.Detach(h.sandboxes()),
	)
	if err != nil {
		// The lock stays until this process ends; the next daemon's sweep tries again.
		return fmt.Errorf("sandbox: close: %w", err)
	}
	h.groups.close()
	err = h.instance.close()
	if h.bound {
		// Busy while another instance uses the directory. The mount then stays, and
		// stays private.
		_ = unix.Unmount(h.config.RunDir, unix.UMOUNT_NOFOLLOW)
	}
	return err
}

// reserve claims an ID for a start. The caller calls forget in the end.
func (h *Host) reserve(id string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return errClosed
	}
	if _, taken := h.running[id]; taken {
		return fmt.Errorf("id %s: already runs", id)
	}
	h.running[id] = nil
	h.pending.Add(1)
	return nil
}

// admit registers a started process, so that Close ends it. If Close was called during the
// start, admit refuses it, and the caller destroys the sandbox.
func (h *Host) admit(id string, p *Process) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return errClosed
	}
	h.running[id] = p
	return nil
}

// forget frees the ID that reserve claimed.
func (h *Host) forget(id string) {
	h.mu.Lock()
	delete(h.running, id)
	h.mu.Unlock()
	h.pending.Done()
}
