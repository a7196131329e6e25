package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/network"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/sandbox"
)

// inspect compares a configuration with this machine and reports what would keep the daemon
// from starting. The daemon calls it before it starts, and --check calls it alone. It changes
// nothing. It does not check whether another daemon runs, and it does not probe the boundaries
// of sandboxes, as --doctor does. program is the path of the daemon's binary.
// The answers can be out of date a moment later. So the start makes each check again, when it uses
// the thing.
func (c *config) inspect(ctx context.Context, program string, bad badFunc) {
	for i, root := range c.Skills {
		// The default folder may be missing, because a package may not have installed it.
		// That holds for a file that names it, too: the shipped file does.
		if defaults := defaultConfig().Skills; i < len(defaults) && root == defaults[i] {
			continue
		}
		if err := readableDir(root.Path); err != nil {
			bad(index("skills", i), "%v; write the folder that holds the skills", err)
		}
	}
	for _, s := range c.loaded {
		s.inspect()
	}
	inspectCredentials("network.credentials", c.Network.Credentials, bad)
	c.inspectProxy(bad)
	c.inspectSandbox(bad)
	for _, socket := range []struct{ key, path string }{{"listen.unix", c.Listen.Unix}, {"listen.mcp_unix", c.Listen.MCPUnix}} {
		if err := freeSocket(socket.path); socket.path != "" && err != nil {
			bad(socket.key, "%v", err)
		}
	}
	if c.usesTLS() && c.Listen.TLS.Certificate != "" && c.Listen.TLS.Key != "" {
		if _, err := c.certificate(slog.New(slog.DiscardHandler)); err != nil {
			bad("listen.tls", "%v; write a certificate and its private key, both in PEM", err)
		}
		// A group may read it: Debian's group ssl-cert, for example.
		key := c.Listen.TLS.Key
		if info, err := os.Stat(key); err == nil && info.Mode()&0o007 != 0 {
			bad("listen.tls.key", "%s has the mode %04o, so every user may read it; run chmod o= %s", key, info.Mode().Perm(), key)
		}
	}
	// The default group may be missing, because a package may not have made it.
	if _, err := c.socketGroup(); err != nil && c.Listen.UnixGroup != defaultGroup {
		bad("listen.unix_group", "%v; run groupadd --system, or write a group that exists", err)
	}
	c.inspectIdentity(bad)
	c.inspectTracing(bad)
	if dir := c.SecretsDir; dir != "" {
		if err := readableDir(dir); err != nil {
			bad("secrets_dir", "%v; write the directory that has a directory of secrets for each tenant", err)
		}
	}
	if dir := c.Environments.Wheels; dir != "" {
		if err := readableDir(dir); err != nil {
			bad("environments.wheels", "%v; write the directory with the wheels", err)
		}
	}
	if dir := c.Environments.Tarballs; dir != "" {
		if err := readableDir(dir); err != nil {
			bad("environments.tarballs", "%v; write the directory with the .tgz files of Node packages", err)
		}
	}
	if c.Python == string(runtime.Embedded) {
		if _, err := os.Stat(beside(program, pythonProgram)); err != nil {
			bad("python", "embedded needs the program skillrun-python in the directory of skillrund: %v", err)
		}
	}
	if !c.Network.network().None() {
		if err := checkHelper(ctx, beside(program, network.Program)); err != nil {
			bad("network", "a network needs the program skillrun-network in the directory of skillrund: %v", err)
		}
	}
	c.inspectImages(ctx, bad)
}

// inspectSandbox checks the daemon's own directories and its cgroup.
func (c *config) inspectSandbox(bad badFunc) {
	for _, own := range []struct {
		key, dir string
		check    func(dir string) error
	}{{"state_dir", c.StateDir, sandbox.CheckStateDir}, {"run_dir", c.RunDir, sandbox.CheckRunDir}} {
		if own.dir == "" {
			continue // validate reports an empty path
		}
		if err := writableDir(own.dir); err != nil {
			bad(own.key, "%v; write a directory that the daemon can create or write to", err)
		} else if err := own.check(own.dir); err != nil {
			bad(own.key, "%v", err)
		}
	}
	if c.CgroupParent == "" {
		return
	}
	if err := sandbox.CheckCgroupParent(c.CgroupParent); err != nil {
		bad("cgroup_parent", "%v; write the name of a cgroup that exists and has no processes", err)
	}
}

// inspectImages checks the directories that sandboxes use as root, and the digest of every
// reference.
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

// readableDir returns nil if dir is a directory that the daemon can list, else the reason.
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

// writableDir returns nil if the daemon can write to dir or create it, else the reason.
// It makes nothing: --check must not change the machine.
func writableDir(dir string) error {
	info, err := os.Stat(dir)
	// The nearest directory that exists decides whether the rest can be made.
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

// access asks the kernel, by the effective ids, as an open would (AT_EACCESS, faccessat(2)).
func access(path string, mode uint32) error {
	if err := unix.Faccessat(unix.AT_FDCWD, path, mode, unix.AT_EACCESS); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// freeSocket returns nil if the daemon can create a socket at path, else the reason. An
// existing socket is accepted: it may be of a daemon that died, and the start finds out.
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
