package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
)

// Config says where a Host lives. Zero values mean the defaults given.
type Config struct {
	// StateDir holds the locks of instances and libcontainer's state. It is
	// made if missing, root-owned 0700. It may not lie on overlayfs, nor may
	// the directories of a Spec that are id-mapped.
	StateDir string
	RunDir   string // mount points and the root filesystem, 0711; default /run/skillrun
	// CgroupParent is the absolute cgroup path beneath which sandboxes get
	// theirs; "" is beneath the process's own. It must exist, and on v2 be
	// without processes.
	CgroupParent string
	// FirstID and IDs are the host uids and gids that belong to sandboxes,
	// and to no account; two for each. Default 1<<28 and 65536.
	FirstID, IDs uint32
	// Links are further symbolic links in the root filesystem: path to target.
	Links map[string]string
	// Roots are root file systems that a Spec can name.
	Roots []Root
	// Tolerate names boundaries, of those that Lowerable lists, without which
	// Open goes on. Its caller looks at Probe's list and decides.
	Tolerate []string
	// Zygote: a process stands ready that makes sandboxes, in a fifth of libcontainer's
	// time. What it can't make, and all without it, libcontainer makes.
	Zygote bool
	// Prepared is how many sandboxes may wait ahead of their programs, at most. None:
	// each is made when it is asked for. They need Zygote, and imply it.
	Prepared int
	// Interpreters is how many may be kept ready with modules imported. They need
	// Zygote.
	PythonZygotes int
	Log           *slog.Logger // nil: none
}

const (
	defaultRunDir  = "/run/skillrun"
	defaultFirstID = 1 << 28
	defaultIDs     = 1 << 16
	minFirstID     = 1 << 16 // below are accounts
)

func (c Config) withDefaults() Config {
	c.RunDir = cmp.Or(c.RunDir, defaultRunDir)
	c.FirstID = cmp.Or(c.FirstID, defaultFirstID)
	c.IDs = cmp.Or(c.IDs, defaultIDs)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return c
}

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
	}
	return checkRoots(c.Roots)
}

// A Host makes sandboxes on this machine. Its methods may be called from many
// goroutines.
type Host struct {
	config  Config
	cgroups *hierarchy
	filters filters
	found   []Boundary // of the machine, by Open
	bound   bool       // RunDir is mounted on itself by us
	faults  *faults    // nil but in tests
	pool    *pool      // nil: nothing is made ahead
	beneath []string   // places of the directories that are mounted in the host's root
	*instance

	mu      sync.Mutex
	closed  bool
	running map[string]*Process // by Spec.ID
	pending sync.WaitGroup      // starts, and processes until they are gone
}

// Open makes this process an instance: it sweeps what dead instances with the
// same StateDir left, checks every boundary that this machine must give, and
// prepares what all sandboxes share. An error names all that is missing and
// how to get it.
func Open(ctx context.Context, c Config) (_ *Host, err error) {
	c = c.withDefaults()
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	// libcontainer logs what it also returns.
	logrus.SetOutput(io.Discard)
	h := &Host{config: c, running: map[string]*Process{}}
	if err := h.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("sandbox: %w", err), h.free())
	}
	return h, nil
}

func (h *Host) open(ctx context.Context) (err error) {
	h.found = Boundaries(h.config)
	if err := errors.Join(missing(h.found, h.config.Tolerate)...); err != nil {
		return err
	}
	if h.bound, err = makeDirs(h.config); err != nil {
		return err
	}
	if h.filters, err = compileFilters(); err != nil {
		return err
	}
	if h.cgroups, err = openHierarchy(h.config.CgroupParent); err != nil {
		return err
	}
	if err := h.begin(ctx); err != nil {
		return err
	}
	if err := h.makeSandboxes(); err != nil {
		return err
	}
	if err := os.Mkdir(h.rootfs(), 0o755); err != nil {
		return err
	}
	if err := makeRootfs(h.rootfs(), h.config.Links); err != nil {
		return err
	}
	if h.beneath, err = directoriesMounted(h.rootfs()); err != nil {
		return err
	}
	if err := h.makeRoots(); err != nil {
		return err
	}
	if err := h.injectFaults(); err != nil {
		return err
	}
	if !h.config.Zygote && h.config.Prepared == 0 || h.faults.onlyMade() {
		return nil
	}
	// The first pair of ids is the zygote's: its user namespace begins with it.
	if _, err := h.ids.take(); err != nil {
		return err
	}
	h.pool = startPool(h, h.config.Prepared)
	return nil
}

// begin makes the instance after the dead ones are swept, while no other
// daemon does the same.
func (h *Host) begin(ctx context.Context) error {
	lock, err := waitForLock(ctx, filepath.Join(h.config.StateDir, "lock"))
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := sweep(h.config, h.cgroups); err != nil {
		return err
	}
	if err := h.cgroups.prepare(); err != nil {
		return err
	}
	h.instance, err = newInstance(h.config, h.cgroups)
	return err
}

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
	if err := searchable(c.RunDir); err != nil {
		return false, fmt.Errorf("run directory: %w", err)
	}
	return privateMount(c.RunDir)
}

// searchable says which directory above path others can't pass. A sandbox is
// entered as one of them.
func searchable(path string) error {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o001 == 0 {
			return fmt.Errorf("%s has mode %#o, so that no sandbox can reach %s beneath it: chmod o+x it, or choose another", dir, info.Mode().Perm(), path)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

// faults weaken the sandboxes of a Host, so that tests can show that Probe and
// the hostile suite notice. A nil *faults is none.
type faults struct {
	// ahead: the sandboxes are weak that the zygote makes, and no other; else those
	// that libcontainer makes, and it makes none.
	prepared bool
	config   func(*configs.Config) // what libcontainer is asked for: of a sandbox, or of the zygote; may be nil
	// limits comes after all limits are set. With it a posture that differs, which
	// would be noticed first, is only logged; nil: it is refused.
	limits func(group) error
	unread bool // no posture is read back: the benchmark says what that costs
	// trees changes the mounts of which a root consists, before they are put anywhere;
	// may be nil.
	trees func(*Host, *staging, *mountList) error
}

// change changes the mounts of a root.
func (f *faults) change(h *Host, st *staging, l *mountList, prepared bool) error {
	if f == nil || f.trees == nil || f.prepared != prepared {
		return nil
	}
	return f.trees(h, st, l)
}

// ask changes what libcontainer is asked for, the zygote or a sandbox.
func (f *faults) ask(c *configs.Config, zygote bool) {
	if f != nil && f.config != nil && f.prepared == zygote {
		f.config(c)
	}
}

// loosen changes limits that are set, of a sandbox that was made ahead or was not.
func (f *faults) injectLimits(g group, prepared bool) error {
	if f == nil || f.limits == nil || f.prepared != prepared {
		return nil
	}
	return f.limits(g)
}

// onlyMade says that no sandbox is made ahead.
func (f *faults) onlyMade() bool { return f != nil && !f.prepared }

// heed reads a posture back. A test may go on in spite of its error.
func (h *Host) enforce(read func() error) error {
	if h.faults != nil && h.faults.unread {
		return nil
	}
	err := read()
	if err == nil || h.faults == nil || h.faults.limits == nil {
		return err
	}
	h.log().Warn("a posture differs, and is not heeded", "error", err)
	return nil
}

// sandboxes is where the sandboxes have their mount points: in memory, since a directory
// on a disk takes longer to make and to remove than all that is mounted on it.
func (h *Host) sandboxes() string { return filepath.Join(h.instance.run, "sandboxes") }

func (h *Host) makeSandboxes() error {
	if err := os.Mkdir(h.sandboxes(), 0o711); err != nil {
		return err
	}
	return mountTmpfs(h.sandboxes(), sandboxesOptions)
}

// sandboxesOptions have room for a directory for each sandbox that an instance can have.
var sandboxesOptions = fmt.Sprintf("mode=711,size=64k,nr_inodes=%d", blockIDs)

func (h *Host) rootfs() string { return filepath.Join(h.instance.run, "rootfs") }

func (h *Host) containers() string { return filepath.Join(h.instance.state, "containers") }
func (h *Host) groupName() string  { return groupPrefix + h.instance.name }
func (h *Host) log() *slog.Logger  { return h.config.Log }

// Boundaries probes this machine again.
func (h *Host) Boundaries() []Boundary { return Boundaries(h.config) }

// Close kills what runs, waits until it is gone and frees everything. Waits
// for the processes still answer.
func (h *Host) Close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil
	}
	h.closed = true
	for _, p := range h.running {
		if p != nil {
			p.Stop(0)
		}
	}
	h.mu.Unlock()
	h.pending.Wait()
	h.pool.close()
	return h.free()
}

// free removes what the instance made.
func (h *Host) free() error {
	if h.instance == nil {
		return nil
	}
	err := errors.Join(
		h.cgroups.group(h.groupName()).clear(sweepPatience),
		h.freeRoots(),
		detach(h.rootfs()),
		detach(h.sandboxes()),
	)
	if err != nil {
		// The lock goes with the process; the next sweep tries again.
		return fmt.Errorf("sandbox: close: %w", err)
	}
	err = h.instance.close()
	if h.bound {
		// Busy if another instance lives there; then it stays, as private as
		// it was.
		_ = unix.Unmount(h.config.RunDir, unix.UMOUNT_NOFOLLOW)
	}
	return err
}

// reserve claims an id for a start.
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

// admit makes a started process known, so that Close ends it.
func (h *Host) admit(id string, p *Process) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return errClosed
	}
	h.running[id] = p
	return nil
}

// forget ends what reserve began.
func (h *Host) forget(id string) {
	h.mu.Lock()
	delete(h.running, id)
	h.mu.Unlock()
	h.pending.Done()
}
