package cgroup

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Try makes a cgroup in h. It returns the location of h, or an error that names the part
// that is missing. It removes the cgroup again.
func (h *Hierarchy) Try() (string, error) {
	probe := h.Group("skillrun.probe." + rand.Text())
	defer probe.Remove()
	if h.Unified {
		dir := h.Base[""]
		controllers, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
		if err != nil {
			return "", err
		}
		for _, want := range []string{"memory", "pids", "cpu"} {
			if !strings.Contains(" "+strings.TrimSpace(string(controllers))+" ", " "+want+" ") {
				return "", fmt.Errorf("%s has no controller %s", dir, want)
			}
		}
		info, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			return "", err
		}
		if err := ofThisNamespace(string(info)); err != nil {
			return "", err
		}
		if err := h.divisible(); err != nil {
			return "", err
		}
		return "cgroup v2 at " + dir, os.Mkdir(probe.Dirs[""], 0o755)
	}
	for _, controller := range []string{"memory", "pids", "cpuacct", "devices", "freezer"} {
		dir, ok := probe.Dirs[controller]
		if !ok {
			return "", fmt.Errorf("cgroup v1 has no controller %s", controller)
		}
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) { // cpu,cpuacct are one directory
			return "", err
		}
	}
	return "cgroup v1 at " + h.Base["memory"], nil
}

// ofThisNamespace returns an error if processes can't be moved into the cgroups that are
// visible at the mount point of cgroup v2. In a container, a mount that was made for the
// machine shows all cgroups of the machine. With the mount option nsdelegate the kernel
// moves no process across the root of a cgroup namespace (cgroups(7)). The kernel's own
// error for that, ENOENT, would mislead.
func ofThisNamespace(mountinfo string) error {
	var root, options string
	for line := range strings.Lines(mountinfo) {
		mount, super, _ := strings.Cut(line, " - ")
		m, s := strings.Fields(mount), strings.Fields(super)
		if len(m) > 4 && len(s) > 2 && m[4] == UnifiedRoot {
			root, options = m[3], s[2]
		}
	}
	if strings.HasPrefix(root, "/..") && slices.Contains(strings.Split(options, ","), "nsdelegate") {
		return fmt.Errorf("%[1]s shows cgroups outside of the container, and no process in the container can be moved to them; mount it again in the container (umount %[1]s; mount -t cgroup2 cgroup2 %[1]s)", UnifiedRoot)
	}
	return nil
}

// TrySwap says which mechanism limits the use of swap.
func (h *Hierarchy) TrySwap() (string, error) {
	switch {
	case h.swap:
		return "limited with memory", nil
	case h.Unified:
		if _, err := os.Stat(filepath.Join(h.Base[""], "memory.swap.max")); err == nil || h.Base[""] == UnifiedRoot {
			return "limited by memory.swap.max", nil
		}
	}
	return "", errors.New("swap is on, and this kernel can't limit it")
}
