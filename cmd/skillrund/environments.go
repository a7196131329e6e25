package main

import (
	"log/slog"
	"path/filepath"
	"time"

	"github.com/skillrun/skillrun/internal/environment"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/sandbox"
)

// environments returns the configuration of the store of prepared environments. Without
// the embedded Python the daemon has no pip and can build no environment. Pip stays empty then.
// The index may have credentials in its URL, which stay in the daemon.
func (c *config) environments(host *sandbox.Host, python *runtime.Installation, log *slog.Logger) environment.Config {
	e := environment.Config{
		Dir: filepath.Join(c.StateDir, "environments"), Host: host, Rootfs: "/",
		StrictVersions: c.Packages == "strict",
		Index:          c.Environments.Index, Wheels: c.Environments.Wheels, Sdists: c.Environments.Sdists,
		Registry: c.Environments.Registry, Tarballs: c.Environments.Tarballs, InstallScripts: c.Environments.InstallScripts,
		Bytes: int64(c.Environments.Bytes), Wall: time.Duration(c.Environments.WallTime), MemoryBytes: int64(c.Environments.Memory), Log: log,
	}
	if p := c.NetworkProxy.proxy(); p != nil {
		e.Dial = p.Dial
	}
	if python != nil {
		e.Pip = filepath.Join(python.Dir, "pip")
	}
	return e
}
