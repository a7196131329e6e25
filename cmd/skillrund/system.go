package main

import (
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/buildversion"
	"github.com/skillrun/skillrun/internal/server"
)

// version is set by the linker. The Makefile passes it by -ldflags -X.
var version string

func buildVersion() string { return buildversion.Of(version) }

// notify sends a state to systemd, sd_notify(3). Without systemd it does nothing. It
// ignores errors: if a message is lost, systemd reports a timeout.
func notify(state string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	if rest, ok := strings.CutPrefix(path, "@"); ok { // an abstract address, unix(7)
		path = "\x00" + rest
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return
	}
	defer c.Close()
	fmt.Fprint(c, state)
}

// capabilities returns the answer of GetCapabilities. It is called for each request and must not
// block: what it needs was found at the start, except the versions of some interpreters, for which only the first
// call waits.
func (d *daemon) capabilities() server.Capabilities {
	b := d.config.bounds()
	c := server.Capabilities{
		Version: buildVersion(), Started: d.started, Default: b.Default, Max: b.Max,
		MaxRunning: d.config.Concurrency.Running + d.config.Concurrency.Reserved, MaxQueued: d.config.Concurrency.Queued,
		Network: !d.config.Network.network().None(), Cgroup: cgroupVersion(), Kernel: kernelRelease(), Retention: time.Duration(d.config.Retention.Age),
	}
	for _, b := range d.probing.found {
		c.Boundaries = append(c.Boundaries, server.Boundary{
			Name: b.Name, Group: b.Group, Why: b.Why, Detail: b.Detail, Found: b.Found, Allowed: d.config.allows(b),
		})
	}
	for _, set := range d.runtimes.All() {
		for _, r := range set.List() {
			c.Runtimes = append(c.Runtimes, server.Runtime{Language: r.Language, Path: r.Path, Version: r.Version, Image: set.Image().Name})
		}
	}
	if err := d.audit.Stats().Broken; err != nil {
		c.AuditProblem = err.Error()
	}
	c.Images = d.images.capabilities(&d.config)
	c.TenantProblems, c.Warnings = d.tenants.degraded(), d.warned
	return c
}

// cgroupVersion returns v2, v1 or hybrid (v1 with a cgroup v2 mounted at
// /sys/fs/cgroup/unified). The type of the file system tells them apart (statfs(2),
// cgroups(7)).
func cgroupVersion() string {
	var fs unix.Statfs_t
	if unix.Statfs("/sys/fs/cgroup", &fs) == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC {
		return "v2"
	}
	if unix.Statfs("/sys/fs/cgroup/unified", &fs) == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC {
		return "hybrid"
	}
	return "v1"
}

// kernelRelease is uname -r, or "" if the kernel does not say (uname(2)).
func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}
