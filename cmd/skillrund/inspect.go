package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/sandbox"
)

// inspect reports what this machine lacks for a configuration: the daemon runs it before
// it starts, and --check runs it alone. It changes nothing. It leaves two things to the
// start: whether another daemon runs already, and the boundaries of sandboxes, which
// --doctor tries. bundle is the program that carries the embedded Python.
func (c *config) inspect(ctx context.Context, bundle string, bad badFunc) {
	for i, dir := range c.Skills {
		// The default folder may be missing: it is the one of a package.
		if defaults := defaultConfig().Skills; i < len(defaults) && dir == defaults[i] {
			continue
		}
		if err := readableDir(dir); err != nil {
			bad(index("skills", i), "%v; write the folder that holds the skills", err)
		}
	}
	for _, own := range []struct{ key, dir string }{{"state_dir", c.StateDir}, {"run_dir", c.RunDir}} {
		if own.dir == "" {
			continue // validate reports it
		}
		if err := writableDir(own.dir); err != nil {
			bad(own.key, "%v; write a directory that the daemon can create or write to", err)
		}
	}
	for _, socket := range []struct{ key, path string }{{"listen.unix", c.Listen.Unix}, {"listen.mcp_unix", c.Listen.MCPUnix}} {
		if err := freeSocket(socket.path); socket.path != "" && err != nil {
			bad(socket.key, "%v", err)
		}
	}
	if dir := c.Environments.Wheels; dir != "" {
		if err := readableDir(dir); err != nil {
			bad("environments.wheels", "%v; write the directory with the wheels", err)
		}
	}
	if c.Python == string(runtime.Embedded) {
		if _, err := os.Stat(bundle); err != nil {
			bad("python", "embedded needs the program skillrun-python beside skillrund: %v", err)
		}
	}
	c.inspectImages(ctx, bad)
}

// inspectImages checks the directories that sandboxes use as root, and that every
// reference has a digest.
func (c *config) inspectImages(ctx context.Context, bad badFunc) {
	for _, name := range slices.Sorted(maps.Keys(c.Images)) {
		if i := c.Images[name]; i.Image != "" && i.source().Check() == nil {
			if err := i.source().Pinned(ctx); err != nil {
				bad("images."+name+".image", "%v", err)
			}
		}
	}
	for _, name := range c.usedImages() {
		if dir := c.Images[name].Rootfs; dir != "" {
			if err := sandbox.CheckRootDir(dir); err != nil {
				bad("images."+name+".rootfs", "%v", err)
			}
		}
	}
}

// readableDir reports why dir is no directory that can be listed.
func readableDir(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", dir)
	}
	return access(dir, unix.R_OK|unix.X_OK)
}

// writableDir reports why dir can neither be used nor be made.
func writableDir(dir string) error {
	info, err := os.Stat(dir)
	for errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
		info, err = os.Stat(dir)
	}
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", dir)
	}
	return access(dir, unix.W_OK|unix.X_OK)
}

func access(path string, mode uint32) error {
	if err := unix.Faccessat(unix.AT_FDCWD, path, mode, unix.AT_EACCESS); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// freeSocket reports what keeps a socket from being made at path. A socket that is there
// is one of a daemon that runs or that died.
func freeSocket(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return writableDir(filepath.Dir(path))
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s exists and is not a socket; remove it or write another path", path)
	}
	return nil
}
