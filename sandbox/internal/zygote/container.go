package zygote

import (
	devices "github.com/opencontainers/cgroups/devices/config"
	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/cgroup"
)

// capabilities are the zygote's first capabilities: SETUID and SETGID to map the ids of
// sandboxes, SYS_ADMIN to unmount /dev/shm and for Python zygotes. pid1/zygote.c drops the
// capabilities that it does not need later. Each sandbox has its own user namespace, in
// which its init begins with every capability.
var capabilities = []string{"CAP_SETGID", "CAP_SETUID", "CAP_SYS_ADMIN"}

// Flags of mounts.
const (
	withExec = unix.MS_NOSUID | unix.MS_NODEV
	noExec   = withExec | unix.MS_NOEXEC
)

// Configure adds the zygote's capabilities, devices and mounts to libcontainer's configuration of
// a container.
func Configure(c *configs.Config) {
	tmpfs := func(target, options string, flags int) *configs.Mount {
		return &configs.Mount{Source: "tmpfs", Destination: target, Device: "tmpfs", Flags: flags, Data: options}
	}
	c.Capabilities = &configs.Capabilities{Bounding: capabilities, Effective: capabilities, Permitted: capabilities}
	c.Devices = deviceNodes()
	c.Mounts = []*configs.Mount{
		// Without masks: over a masked proc the kernel lets no sandbox mount its own.
		{Source: "proc", Destination: "/proc", Device: "proc", Flags: noExec},
		// For the zygote and for Python zygotes. It is read-only.
		tmpfs("/dev", "mode=755,size=64k,nr_inodes=64", unix.MS_NOSUID|unix.MS_NOEXEC|unix.MS_STRICTATIME|unix.MS_RDONLY),
		tmpfs("/dev/shm", "mode=755,size=4k,nr_inodes=2", noExec|unix.MS_RDONLY),
		// Holds the programs of Python zygotes (pid1/python_program.c).
		tmpfs("/workspace", "mode=755,size=256m,nr_inodes=256", withExec),
	}
}

func deviceNodes() []*devices.Device {
	var nodes []*devices.Device
	for _, d := range cgroup.Devices {
		nodes = append(nodes, &devices.Device{Path: "/dev/" + d.Name, FileMode: 0o666, Rule: d.Rule()})
	}
	return nodes
}
