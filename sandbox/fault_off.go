//go:build !skillrun_faults

package sandbox

// injectFaults does nothing: only a build for tests can take a layer off (fault.go).
func (h *Host) injectFaults() error { return nil }
