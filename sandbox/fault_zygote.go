//go:build skillrun_faults

package sandbox

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/skillrun/skillrun/sandbox/internal/seccomp"
	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/mount"
	"github.com/skillrun/skillrun/sandbox/internal/pyzygote"
)

// A layer whose name begins with one of these prefixes is off in the zygote's sandboxes, or
// only in processes that Python zygotes fork. Sandboxes that libcontainer makes keep it.
const (
	faultZygote = "zygote: "
	faultForked = "forked: "
)

// A zygoteFault takes a layer off the sandboxes that the zygote makes.
type zygoteFault struct {
	off     string // lines for pid1/fault.c, or fault.py if a Python zygote's child is meant
	zygotes string // lines for pid1/fault.c in either case
	zygote  func(*configs.Config)
	host    func(*Host) error // runs before the zygote starts
	trees   func(*sandbox, *mount.List) error
	limits  func(*sandbox) error
	filters func(seccomp.Filters) seccomp.Filters
	unread  bool // faults.unread

	unmetered bool // faults.unmetered
}

// zygoteFaults are the layers of the zygote's sandboxes, by the names that follow faultZygote in
// faultsVar. The hostile suite's mutations_zygote.json has them under "zygote".
var zygoteFaults = map[string]zygoteFault{
	"user namespace":   {off: "user", zygote: moreCapabilities},
	"mnt namespace":    {off: "mnt"},
	"pid namespace":    {off: "pid"},
	"network":          {off: "net"},
	"ipc namespace":    {off: "ipc"},
	"uts namespace":    {off: "uts"},
	"cgroup namespace": {off: "cgroup"},
	"time namespace":   {off: "time"},
	// The zygote's cgroup usually has no limits. These keep the machine alive.
	"cgroups": {off: "groups", zygote: func(c *configs.Config) {
		processes := int64(manyProcesses)
		c.Cgroups.Resources.Memory, c.Cgroups.Resources.PidsLimit = muchMemory, &processes
	}},
	"zygote's filter":    {zygotes: "zygote filter"},
	"zygote's powers":    {zygotes: "zygote capabilities"},
	"posture":            {unread: true},
	"seccomp":            {filters: noFilters},
	"filters":            {off: "filter\ninit filter\nzygote filter"},
	"init's filter":      {off: "init filter"},
	"ids":                {off: "ids"},
	"capabilities":       {off: "ids\nbounding set\ncapabilities\ninit capabilities"},
	"bounding set":       {off: "bounding set"},
	"init's powers":      {off: "init capabilities"},
	"init's files":       {off: "dumpable"},
	"no new privileges":  {off: "no new privileges", zygote: newPrivileges},
	"nor a filter":       {off: "no new privileges\nfilter\nzygote filter", zygote: newPrivileges},
	"keyring":            {off: "keyring"},
	"keyring and filter": {off: "keyring", filters: noFilters},
	"core dumps":         {off: "core", zygote: coreDumps},
	"resource limits":    {off: "limits"},
	"umask":              {off: "umask"},
	"masks":              {off: "masks"},
	"process view":       {off: "hidepid"},
	"read-only proc":     {off: "read-only proc"},
	"sysctls":            {off: "sysctls"},
	"sizes":              {off: "sizes"},
	"mount flags":        {off: "mount flags"},
	"snapshot":           {off: "snapshot\ninit filter"}, // which would refuse to change the mount
	"read-only root": {trees: func(_ *sandbox, l *mount.List) error {
		return unix.MountSetattr(l.Trees[0], "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
	}},
	// The layer is off in libcontainer's sandboxes, too: both makers read one table.
	"files of the host": {host: func(h *Host) error {
		root, dir := h.roots[""], h.rootfs()+"/var"
		root.Layers = append(root.Layers, mount.Layer{Place: "/var", Dirs: []string{dir}})
		return mount.BindReadOnly("/var", dir)
	}},
	"devices":        {trees: addTerminal},
	"inodes":         {trees: sharedInodes},
	"oom score":      {zygote: func(c *configs.Config) { c.OomScoreAdj = new(0) }},
	"memory limit":   {limits: faultsByName["memory limit"].limits},
	"process limit":  {limits: faultsByName["process limit"].limits},
	"socket buffers": {unmetered: true, limits: faultsByName["socket buffers"].limits},
	"socket memory":  {unmetered: true},
	"processors": {limits: func(c *sandbox) error {
		if c.group.Unified {
			return c.group.Write("cpu", "cpu.max", "max")
		}
		return c.group.Write("cpu", "cpu.cfs_quota_us", "-1")
	}},
}

// forkedFaults are the layers that the child of a Python zygote installs itself. Where the zygotes'
// filters refuse the same calls, they are off as well: otherwise nothing would show.
var forkedFaults = map[string]zygoteFault{
	"user namespace":     {off: "user"},
	"mnt namespace":      {off: "mnt"},
	"pid namespace":      {off: "pid"},
	"network":            {off: "net"},
	"ipc namespace":      {off: "ipc"},
	"uts namespace":      {off: "uts"},
	"cgroup namespace":   {off: "cgroup"},
	"time namespace":     {off: "time"},
	"cgroups":            {off: "groups"},
	"seccomp":            {off: "filter", zygotes: "zygote filter\npython filter"},
	"zygote's filter":    {zygotes: "python filter"},
	"zygote's powers":    {zygotes: "python capabilities"},
	"ids":                {off: "ids"},
	"bounding set":       {off: "bounding set"},
	"capabilities":       {off: "capabilities"},
	"no new privileges":  {off: "no new privileges"}, // the Python zygote has the flag, too
	"keyring and filter": {off: "keyring\nfilter", zygotes: "zygote filter\npython filter"},
	"core dumps":         {off: "core", zygote: coreDumps},
	"resource limits":    {off: "limits"},
	"umask":              {off: "umask"},
	"descriptors":        {off: "descriptors"},
	"orphans":            {off: "orphans"}, // no layer: the Python zygote ends before its child waits
}

func noFilters(seccomp.Filters) seccomp.Filters {
	return seccomp.Filters{Init: allowing, Script: allowing, Zygote: allowing, Python: allowing}
}

func newPrivileges(c *configs.Config) { c.NoNewPrivileges = false }

// coreDumps gives the zygote a limit that permits core dumps. Its descendants inherit the
// limit unless they set their own.
func coreDumps(c *configs.Config) {
	c.Rlimits = []configs.Rlimit{{Type: unix.RLIMIT_CORE, Soft: muchMemory, Hard: muchMemory}}
}

// moreCapabilities gives the zygote the capabilities that a sandbox needs for its setup in
// the zygote's user namespace.
func moreCapabilities(c *configs.Config) {
	all := slices.Concat(c.Capabilities.Bounding, []string{"CAP_KILL", "CAP_NET_ADMIN", "CAP_SETPCAP", "CAP_SYS_PTRACE", "CAP_SYS_RESOURCE"})
	c.Capabilities = &configs.Capabilities{Bounding: all, Effective: all, Permitted: all}
}

//go:embed fault.py
var faultForkedText string

// injectZygoteFaults returns the faults for a layer of the zygote's sandboxes. If kept is true, the daemon
// still enforces their posture.
func (h *Host) injectZygoteFaults(all map[string]zygoteFault, layer string, kept, ready bool) (f faults, err error) {
	weak, err := named(all, layer)
	if err != nil {
		return f, err
	}
	h.log().Warn("THIS BUILD IS FOR TESTS: its sandboxes lack a layer", "layer", layer, "of_forked_processes_only", ready)
	var off, zygotes []string
	f = faults{maker: faultyCloner, config: func(c *configs.Config) {
		for _, w := range weak {
			if w.zygote != nil {
				w.zygote(c)
			}
		}
	}}
	f.trees = func(c *sandbox, l *mount.List) (err error) {
		for _, w := range weak {
			if w.trees != nil {
				err = errors.Join(err, w.trees(c, l))
			}
		}
		return err
	}
	if !kept {
		f.limits = func(c *sandbox) (err error) {
			for _, w := range weak {
				if w.limits != nil {
					err = errors.Join(err, w.limits(c))
				}
			}
			return err
		}
	}
	for _, w := range weak {
		f.unread = f.unread || w.unread
		f.unmetered = f.unmetered || w.unmetered
		if w.off != "" {
			off = append(off, w.off)
		}
		if w.zygotes != "" {
			zygotes = append(zygotes, w.zygotes)
		}
		if w.filters != nil {
			h.filters = w.filters(h.filters)
		}
		if w.host != nil {
			if err := w.host(h); err != nil {
				return f, err
			}
		}
	}
	files := pyzygote.Files()
	if !ready {
		zygotes = append(zygotes, off...)
	} else if len(off) > 0 {
		const name, end = "sitecustomize.py", "\n\nmain()\n"
		if strings.Count(files[name], end) != 1 {
			return f, fmt.Errorf("%s has not one line %q", name, strings.TrimSpace(end))
		}
		names := fmt.Sprintf("\n\nOFF = %q.split('\\n')\n\n", strings.Join(off, "\n"))
		files[name] = strings.Replace(files[name], end, names+faultForkedText+end, 1)
	}
	if len(zygotes) > 0 {
		files["off"] = strings.Join(zygotes, "\n") + "\n"
	}
	return f, putOver(h.rootfs()+pyzygote.Dir, files)
}

// putOver mounts a directory with these files over dir, which is read-only.
func putOver(dir string, files map[string]string) error {
	if err := mount.Tmpfs(dir, "mode=755,size=4m"); err != nil {
		return err
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			return err
		}
	}
	return mount.ReadOnly(dir)
}
