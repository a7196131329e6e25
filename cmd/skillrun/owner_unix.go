//go:build unix

package main

import (
	"fmt"
	"os"
	"syscall"
)

// onlyOurs refuses a file that another user could have written: the file names programs to run.
func onlyOurs(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s: other users may write to it; after a look at its commands: chmod go-w %[1]s", f.Name())
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok && s.Uid != 0 && int(s.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to another user (uid %d); its commands would run as yours", f.Name(), s.Uid)
	}
	return nil
}

// exposed reports whether other users may read a file with a secret. A file that can't be asked, or a pipe,
// is not.
func exposed(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0
}
