package sandbox

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skillrun/skillrun/internal/filelock"
	"github.com/skillrun/skillrun/sandbox/internal/cgroup"
	"github.com/skillrun/skillrun/sandbox/internal/mount"
	"github.com/skillrun/skillrun/sandbox/internal/pseudofs"
)

// An instance is one run of a daemon. Everything that it makes on the machine
// carries its name. The daemon holds a lock on the instance's directory while it
// runs.
type instance struct {
	name  string
	state string // StateDir/instances/<name>
	run   string // RunDir/<name>
	lock  *os.File
	ids   *idBlock
}

// groupPrefix begins the name of an instance's cgroup.
const groupPrefix = "skillrun-"

// groupsFile, in an instance's state directory, holds the paths of its cgroups.
const groupsFile = "cgroups.json"

// namespaceFile is a file in an instance's state directory. It names the mount namespace that has the instance's mounts.
const namespaceFile = "mount-namespace"

// mountNamespace names the mount namespace of this process.
func mountNamespace() (string, error) { return os.Readlink("/proc/self/ns/mnt") }

// sweepPatience bounds how long a sweep waits for killed processes.
const sweepPatience = 10 * time.Second

// newInstance makes an instance. The caller holds the lock of StateDir, as for
// sweep: an instance without its own lock looks dead to a sweep.
func newInstance(c Config, h *cgroup.Hierarchy) (_ *instance, err error) {
	var b [6]byte
	rand.Read(b[:]) // never fails
	i := &instance{name: hex.EncodeToString(b[:])}
	i.state = filepath.Join(c.StateDir, "instances", i.name)
	i.run = filepath.Join(c.RunDir, i.name)
	if i.ids, err = claimBlock(c); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			i.close()
		}
	}()
	if err := os.Mkdir(i.state, 0o700); err != nil {
		return nil, err
	}
	if i.lock, err = filelock.Open(filepath.Join(i.state, "lock"), filelock.Exclusive); err != nil {
		return nil, err
	}
	if err := h.Save(filepath.Join(i.state, groupsFile)); err != nil {
		return nil, err
	}
	namespace, err := mountNamespace()
	if err == nil {
		err = os.WriteFile(filepath.Join(i.state, namespaceFile), []byte(namespace), 0o600)
	}
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(i.run, 0o711); err != nil {
		return nil, err
	}
	return i, os.Chmod(i.run, 0o711) // whatever the umask
}

// close removes the instance's directories and releases its locks. The caller has
// removed everything else.
func (i *instance) close() error {
	err := errors.Join(os.RemoveAll(i.run), os.RemoveAll(i.state))
	if i.lock != nil {
		i.lock.Close()
	}
	i.ids.close()
	return err
}

// sweep removes the processes, cgroups, mounts and directories of dead instances. It
// touches no instance whose lock is held. After an error it goes on with the other instances.
func sweep(c Config, h *cgroup.Hierarchy) error {
	names, err := deadCandidates(c)
	for _, name := range names {
		dir := filepath.Join(c.StateDir, "instances", name)
		lock, lerr := filelock.Open(filepath.Join(dir, "lock"), filelock.Exclusive)
		if errors.Is(lerr, filelock.ErrHeld) || errors.Is(lerr, fs.ErrNotExist) {
			continue
		}
		if lerr == nil {
			lerr = sweepOne(c, h, name)
			lock.Close()
		}
		if lerr != nil {
			err = errors.Join(err, fmt.Errorf("sweep of instance %s: %w", name, lerr))
		}
	}
	return err
}

// dropInherited unmounts inherited copies of mounts. In a takeover, the next daemon begins with a copy of all mounts of
// the earlier daemon's sandboxes. These copies would keep the files of the sandboxes after their end. If an instance has
// the same mount namespace as this process, its mounts are no copies, and stay. RunDir is private, so the unmounts do
// not reach the namespace of the earlier daemon (mount_namespaces(7)).
func dropInherited(c Config) error {
	names, err := deadCandidates(c)
	if err != nil {
		return err
	}
	own, err := mountNamespace()
	if err != nil {
		return err
	}
	for _, name := range names {
		theirs, err := os.ReadFile(filepath.Join(c.StateDir, "instances", name, namespaceFile))
		if errors.Is(err, fs.ErrNotExist) || string(theirs) == own {
			continue // the instance has just ended, or its version of skillrun wrote no such file
		}
		points, merr := mount.Points(filepath.Join(c.RunDir, name))
		err = errors.Join(err, merr)
		for _, p := range points {
			err = errors.Join(err, mount.Detach(p))
		}
		if err != nil {
			return fmt.Errorf("inherited mounts of instance %s: %w", name, err)
		}
	}
	return nil
}

// deadCandidates lists all instances; only a lock tells which of them are dead.
func deadCandidates(c Config) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(c.StateDir, "instances"))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// sweepOne removes a dead instance. The caller holds the instance's lock. The order is processes,
// mounts, directories: a process uses mounts, and the directories hold the lock and the list of
// cgroups that another attempt needs.
func sweepOne(c Config, h *cgroup.Hierarchy, name string) error {
	run := filepath.Join(c.RunDir, name)
	state := filepath.Join(c.StateDir, "instances", name)
	// The dead instance's file says where its cgroups are. They may differ from
	// ours: on v1 a daemon from another login session has other cgroups.
	g := h.Group(groupPrefix + name)
	if theirs, err := cgroup.Load(filepath.Join(state, groupsFile)); err == nil {
		g = theirs.Group(groupPrefix + name)
	} else if !errors.Is(err, fs.ErrNotExist) {
		// The file is damaged, for example by a power cut: search for the cgroups.
		c.Log.Warn("the list of a dead daemon's cgroups is damaged; searching for them", "err", err)
		g = h.Find(groupPrefix + name)
	}
	err := g.Clear(sweepPatience)
	points, merr := mount.Points(run)
	err = errors.Join(err, merr)
	for _, p := range points {
		err = errors.Join(err, mount.Detach(p))
	}
	if err != nil {
		return err // the directory stays, with the lock, for the next sweep
	}
	// Sandboxes wrote only to mounts that were just removed. Only the daemon wrote
	// to these directories. RemoveAll follows no link.
	return errors.Join(os.RemoveAll(run), os.RemoveAll(state))
}

// An idBlock is the range of host ids of one instance. The process holds the lock.
type idBlock struct {
	lock  *os.File // nil: a part of a piece, which has the lock (blocks.go)
	base  uint32   // Config.FirstID, which has index 0
	first uint32   // the lowest id of the block
	// deferred counts the pairs whose sandboxes have ended and wait for their teardown.
	deferred atomic.Int32
	mu       sync.Mutex
	used     []bool // by pair: pair i has the ids first+2i and first+2i+1
}

// blockIDs bounds how many ids an instance gets: a pair for each of 2,048 sandboxes.
const blockIDs = 4096

// Room returns how many sandboxes, prewarmed ones included, can exist at once with so many
// ids. It is half of the pairs of ids, because the other half may belong to ended sandboxes
// whose teardown is deferred.
func Room(ids uint32) int { return int(min(ids, blockIDs))/4 - 1 } // one pair is the zygote's

// IDs returns the least number of ids that have Room for so many sandboxes.
func IDs(sandboxes uint64) uint64 { return 4 * (sandboxes + 1) }

// claimBlock locks a block of ids that no other daemon and no process of the machine has.
func claimBlock(c Config) (*idBlock, error) {
	size := min(c.IDs, blockIDs) &^ 1
	for n := uint32(0); (n+1)*size <= c.IDs; n++ {
		locks, err := openIDLocks(idLocks)
		if err != nil {
			return nil, err
		}
		first := c.FirstID + n*size
		err = lockIDs(locks, first, size)
		busy := errors.Is(err, filelock.ErrHeld)
		if err == nil {
			// A process of a dead daemon with another StateDir may have one. The lock comes first: while a daemon
			// lives, it may start such a process at any time.
			busy, err = idsInUse(first, size)
		}
		if err == nil && !busy {
			return &idBlock{lock: locks, base: c.FirstID, first: first, used: make([]bool, size/2)}, nil
		}
		locks.Close()
		if !busy {
			return nil, err
		}
	}
	return nil, fmt.Errorf("ids %d to %d: all blocks of %d are in use", c.FirstID, c.FirstID+c.IDs-1, size)
}

// idsInUse reports whether a process of the machine has one of the ids.
func idsInUse(first, count uint32) (bool, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		// The directory's owner is no use: it is root for processes that aren't
		// dumpable (proc(5)).
		status, err := pseudofs.ReadStatus(e.Name())
		if err != nil || strings.HasPrefix(status.Of("State"), "Z") {
			continue // it has ended, or is a zombie
		}
		uid, err := strconv.ParseUint(strings.Fields(status.Of("Uid") + " x")[0], 10, 32)
		if id := uint32(uid); err == nil && id >= first && id-first < count {
			return true, nil
		}
	}
	return false, nil
}

// take returns a free pair of ids.
func (b *idBlock) take() (idPair, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, used := range b.used {
		if !used {
			b.used[i] = true
			root := b.first + uint32(2*i)
			return idPair{index: int(root-b.base) / 2, root: root}, nil
		}
	}
	return idPair{}, fmt.Errorf("all %d pairs of ids are in use", len(b.used))
}

// release frees a pair of ids. The caller has verified that the sandbox is destroyed.
func (b *idBlock) release(s idPair) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used[(s.root-b.first)/2] = false
}

// count returns how many pairs are in use, and how many there are.
func (b *idBlock) count() (used, all int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, u := range b.used {
		if u {
			used++
		}
	}
	return used, len(b.used)
}

// mayDefer reserves the deferral of one teardown. At most half of the pairs may belong to ended
// sandboxes.
func (b *idBlock) mayDefer() bool {
	if int(b.deferred.Add(1)) > len(b.used)/2 {
		b.deferred.Add(-1)
		return false
	}
	return true
}

func (b *idBlock) close() {
	if b.lock != nil {
		b.lock.Close()
	}
}
