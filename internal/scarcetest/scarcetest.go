// Package scarcetest takes resources from the process of a test.
package scarcetest

import (
	"testing"

	"golang.org/x/sys/unix"
)

// WithoutDescriptors calls f while this process can open no file: each attempt fails with EMFILE. The test must not run
// in parallel with others.
func WithoutDescriptors(t testing.TB, f func()) {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Fatal(err)
		}
	}()
	f()
}
