//go:build !skillrun_faults

package sandbox

import (
	"github.com/opencontainers/runc/libcontainer/configs"

	"github.com/skillrun/skillrun/sandbox/internal/mount"
)

// No sandbox of a release lacks a layer: faults has no state, and the functions below do nothing,
// so the compiler removes their calls. A build with the tag skillrun_faults compiles
// fault_inject.go instead, which documents them.

type faults = struct{}

func injectFaults(*Host) (faults, error)       { return faults{}, nil }
func faultsOf(*Host, bool, string) faults      { return faults{} }
func faultyMounts(*sandbox, *mount.List) error { return nil }
func faultyConfig(faults, *configs.Config)     {}
func faultyLimits(*sandbox) error              { return nil }
func unmetered(*sandbox) bool                  { return false }
func onlyDirect(*Host) bool                    { return false }

// enforce calls read, which compares a posture with its Spec, and returns the difference.
func (h *Host) enforce(read func() error) error { return read() }
