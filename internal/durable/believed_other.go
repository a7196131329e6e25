//go:build !linux

package durable

import "os"

// Believed has no check on this system, and returns nil.
func Believed(*os.File) error { return nil }
