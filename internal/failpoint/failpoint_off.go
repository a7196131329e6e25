//go:build !skillrun_faults

package failpoint

// Reach does nothing in a release, so the compiler removes its calls.
func Reach(Point) {}
