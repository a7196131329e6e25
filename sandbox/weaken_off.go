//go:build !skillrun_weaken

package sandbox

// weaken does nothing: only a build for tests can take a layer off (weaken.go).
func (h *Host) weaken() error { return nil }
