//go:build skillrun_faults

package sandbox

import (
	"strings"

	"github.com/opencontainers/runc/libcontainer/configs"

	"github.com/skillrun/skillrun/sandbox/internal/mount"
)

// A faults takes layers of protection off the sandboxes of a Host. Tests use it to show that
// Probe and the hostile suite notice. The zero faults takes nothing off.
type faults struct {
	// maker makes the sandboxes that lack layers. If it is faultyDirect, no zygote runs.
	maker  faultyMaker
	spared string                // sandboxes of programs whose IDs begin so have all layers; "": none has
	config func(*configs.Config) // changes libcontainer's configuration of a sandbox, or of the zygote; may be nil
	// limits runs after all limits are set. If it is not nil, a posture that differs is
	// only logged, because it would be noticed before any attack. If it is nil, the
	// sandbox is refused.
	limits func(*sandbox) error
	unread bool // no posture is read back; a benchmark measures the cost of reading it
	// trees changes the mounts of a root before they are attached; may be nil.
	trees     func(*sandbox, *mount.List) error
	unmetered bool // the daemon does not measure the sockets of a sandbox
}

type faultyMaker int

const (
	faultyNone faultyMaker = iota
	faultyDirect
	faultyCloner
)

// faultsOf returns the faults of one sandbox. cloned: the zygote makes it.
func faultsOf(h *Host, cloned bool, id string) faults {
	f := h.faults
	spared := f.spared != "" && strings.HasPrefix(id, f.spared)
	if spared || cloned != (f.maker == faultyCloner) {
		return faults{}
	}
	return f
}

// faultyMounts changes the mounts of c's root.
func faultyMounts(c *sandbox, l *mount.List) error {
	if c.faults.trees == nil {
		return nil
	}
	return c.faults.trees(c, l)
}

// faultyConfig changes libcontainer's configuration of a sandbox, or of the zygote.
func faultyConfig(f faults, c *configs.Config) {
	if f.config != nil {
		f.config(c)
	}
}

// faultyLimits changes the limits that c's cgroup has got.
func faultyLimits(c *sandbox) error {
	if c.faults.limits == nil {
		return nil
	}
	return c.faults.limits(c)
}

// unmetered reports whether the daemon leaves the sockets of c unmeasured.
func unmetered(c *sandbox) bool { return c.faults.unmetered }

// onlyDirect reports whether the faults are for libcontainer's sandboxes. The zygote then makes none.
func onlyDirect(h *Host) bool { return h.faults.maker == faultyDirect }

// enforce calls read, which compares a posture with its Spec, and returns the difference. With
// faults it may skip the call, or log the difference and return nil.
func (h *Host) enforce(read func() error) error {
	if h.faults.unread {
		return nil
	}
	err := read()
	if err == nil || h.faults.limits == nil {
		return err
	}
	h.log().Warn("a posture differs, and fault injection ignores it", "err", err)
	return nil
}
