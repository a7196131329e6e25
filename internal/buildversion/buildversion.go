// Package buildversion finds the version of a program.
package buildversion

import "runtime/debug"

// Of returns the version that the linker set, else the version of the module.
func Of(linked string) string {
	if linked != "" {
		return linked
	}
	// A build by go install has only the module's version.
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
