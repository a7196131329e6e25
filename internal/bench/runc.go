package bench

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// runcFilter is the sandboxes' seccomp filter in runc's format. A test generates it from
// sandbox/internal/seccomp/seccomp.yaml.
//
//go:embed runc_seccomp.json
var runcFilter json.RawMessage

// openRunc creates a bundle for runc. It returns a function that runs true in a container, and
// one that removes the remaining files and cgroups. The container is started with run, which
// creates, starts, waits and deletes in one process: a user of runc would do the same for one
// program.
func (r *run) openRunc(path string) (run func() error, end func(), err error) {
	r.daemons++
	dir := filepath.Join(r.dir, fmt.Sprintf("%d-runc", r.daemons))
	rootfs := filepath.Join(dir, "rootfs")
	for _, d := range []string{"usr", "proc", "dev", "tmp", "home/skill", "workspace", "skills/" + benchSkill, "etc", "sys"} {
		if err := os.MkdirAll(filepath.Join(rootfs, d), 0o755); err != nil {
			return nil, nil, err
		}
	}
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		if _, err := os.Stat("/usr/" + name); err != nil {
			continue
		}
		if err := os.Symlink("usr/"+name, filepath.Join(rootfs, name)); err != nil {
			return nil, nil, err
		}
	}
	skill := filepath.Join(dir, "skill")
	if err := writeSkill(dir, "skill", benchFiles); err != nil {
		return nil, nil, err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, nil, err
	}
	group := fmt.Sprintf("skillrun-bench-%d", os.Getpid())
	data, err := json.Marshal(runcSpec(rootfs, skill, group))
	if err != nil {
		return nil, nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), data, 0o644); err != nil {
		return nil, nil, err
	}
	// runc refuses an id that is in use, so each container has its own.
	n := 0
	run = func() error {
		n++
		argv := []string{path, "--root", filepath.Join(dir, "state"), "run", "--bundle", dir, fmt.Sprintf("%s-%d", group, n)}
		_, err := output(argv, os.Environ(), true)
		return err
	}
	return run, func() { removeGroups(group) }, nil
}

// removeGroups removes the cgroups that runc leaves: runc removes a container's cgroup, but
// not its parent.
func removeGroups(name string) {
	found, _ := filepath.Glob("/sys/fs/cgroup/*/" + name)
	for _, path := range append(found, "/sys/fs/cgroup/"+name) {
		if err := syscall.Rmdir(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			continue // left in place: an empty cgroup does no harm
		}
	}
}

// runcSpec returns an OCI configuration with the boundaries of a sandbox: eight namespaces,
// separate ids, no capabilities, the same filter, cgroup limits, new /proc, /dev and /tmp,
// and a read-only root. It has no counterpart to skillrun's init, the workspace overlay and
// the record, so their cost only appears on skillrun's side.
func runcSpec(rootfs, skill, group string) map[string]any {
	type m = map[string]any
	type l = []any
	// A range of ids that no account has; runc maps it, as skillrund maps its own.
	const hostID, ids = 1 << 28, 2000
	tmpfs := func(at string, options ...string) m {
		return m{"destination": at, "type": "tmpfs", "source": "tmpfs", "options": append([]string{"nosuid", "nodev"}, options...)}
	}
	bind := func(from, to string, options ...string) m {
		return m{"destination": to, "type": "bind", "source": from, "options": append([]string{"bind", "nosuid", "nodev"}, options...)}
	}
	namespaces := l{}
	for _, name := range []string{"pid", "network", "ipc", "uts", "mount", "user", "cgroup", "time"} {
		if _, err := os.Stat("/proc/self/ns/" + strings.NewReplacer("network", "net", "mount", "mnt").Replace(name)); err == nil {
			namespaces = append(namespaces, m{"type": name})
		}
	}
	mapping := l{m{"containerID": 0, "hostID": hostID, "size": ids}}
	return m{
		"ociVersion": "1.2.0",
		"process": m{
			"user": m{"uid": 1000, "gid": 1000}, "args": trueProgram.bare, "env": bareEnv, "cwd": "/workspace",
			"noNewPrivileges": true, "capabilities": m{}, "oomScoreAdj": 1000,
			"rlimits": l{m{"type": "RLIMIT_NOFILE", "hard": 1024, "soft": 1024}, m{"type": "RLIMIT_CORE", "hard": 1, "soft": 1}},
		},
		"root": m{"path": rootfs, "readonly": true}, "hostname": "sandbox",
		"mounts": l{
			m{"destination": "/proc", "type": "proc", "source": "proc", "options": l{"nosuid", "nodev", "noexec", "hidepid=2"}},
			m{"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": l{"nosuid", "noexec", "mode=755", "size=64k"}},
			tmpfs("/dev/shm", "noexec", "mode=1777", "size=64m"),
			tmpfs("/tmp", "mode=1777", "size=256m"),
			tmpfs("/home/skill", "mode=0700", "size=256m"),
			tmpfs("/workspace", "mode=1777", "size=256m"),
			bind("/usr", "/usr", "ro"),
			bind(skill, "/skills/"+benchSkill, "ro"),
		},
		"linux": m{
			"namespaces": namespaces, "uidMappings": mapping, "gidMappings": mapping,
			"cgroupsPath": "/" + group + "/one",
			"resources": m{
				"memory": m{"limit": 512 << 20}, "pids": m{"limit": 64},
				"devices": l{m{"allow": false, "access": "rwm"}},
			},
			"seccomp":       runcFilter,
			"maskedPaths":   l{"/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/proc/interrupts", "/proc/kallsyms", "/proc/modules", "/proc/sysvipc"},
			"readonlyPaths": l{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
		},
	}
}
