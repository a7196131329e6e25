package sandbox

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/sandbox/internal/cgroup"
	"github.com/skillrun/skillrun/sandbox/internal/pseudofs"
)

// profiles are the kinds of sandboxes that have a golden file.
var profiles = []struct {
	name string
	spec func(t *testing.T) Spec
}{
	{"default", func(*testing.T) Spec { return Spec{} }},
	{"skill", func(t *testing.T) Spec {
		skill := newSnapshot(t, map[string]string{"a": "a"})
		return Spec{Workspace: Workspace{Lower: []string{skill}}, Mounts: []Mount{{Source: skill, Target: "/skills/s", Owned: true}}}
	}},
	{"environment", func(t *testing.T) Spec {
		return Spec{Mounts: []Mount{{Source: newSnapshot(t, nil), Target: "/opt/environment"}}}
	}},
	{"root", func(*testing.T) Spec { return Spec{Root: "tree"} }},
	{"limits", func(*testing.T) Spec {
		return Spec{
			Limits:    Limits{CPU: 7e9, MemoryBytes: 100 << 20, Processes: 9, OpenFiles: 99},
			Workspace: Workspace{SizeBytes: 20 << 20, Files: 77},
		}
	}},
}

// TestGoldenPosture compares the kernel's view of a program and its sandbox with
// testdata/posture: ids, capabilities, filters, namespaces, mounts, limits. Each profile has
// a file, and another one for a sandbox that the zygote made. Every change shows in a
// review: go test -run TestGoldenPosture -update.
func TestGoldenPosture(t *testing.T) {
	c := testConfig(t)
	c.Prewarmed = 1
	c.Roots = []Root{{Name: "tree", Dir: newTree(t)}}
	h := openWith(t, c)
	for _, p := range profiles {
		for name, start := range map[string]func(context.Context, Spec, IO) (*Process, error){p.name: h.startDirect, p.name + "-cloned": h.Start} {
			s := p.spec(t)
			t.Run(name, func(t *testing.T) {
				golden := filepath.Join("testdata", "posture", name+".golden")
				got := readPosture(t, start, s)
				if *update {
					if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(golden)
				if err != nil {
					t.Fatal(err)
				}
				now, before := strings.Split(got, "\n"), strings.Split(string(want), "\n")
				for _, line := range now {
					if !slices.Contains(before, line) {
						t.Errorf("now:  %s", line)
					}
				}
				for _, line := range before {
					if !slices.Contains(now, line) {
						t.Errorf("gone: %s", line)
					}
				}
			})
		}
	}
}

// readPosture runs a program of s that prints its view of the kernel. It also reads the
// program's state from outside while the program waits.
func readPosture(t *testing.T, start func(context.Context, Spec, IO) (*Process, error), s Spec) string {
	t.Helper()
	const print = `cd /proc/self; cat status; echo; cat mountinfo; echo; cat limits; echo
readlink ns/*; echo; cat cgroup oom_score_adj; for m in uid_map gid_map; do while read in out n; do echo $m: $in, $n of them; done <$m; done; echo .; read x`
	s.Program = bash(print)
	k := startTalkBy(t, start, s, nil)
	var text strings.Builder
	for b := make([]byte, 1<<16); !strings.HasSuffix(text.String(), "\n.\n"); {
		n, err := k.out.Read(b)
		if err != nil {
			t.Fatalf("got %q: %v", text.String(), err)
		}
		text.Write(b[:n])
	}
	parts := strings.SplitN(text.String(), "\n\n", 5)
	if len(parts) != 5 {
		t.Fatalf("%d parts in %q", len(parts), text.String())
	}
	c := k.p.sandbox
	var out strings.Builder
	statusLines(t, &out, parts[0])
	namespaceLines(t, &out, parts[3])
	for line := range strings.Lines(strings.TrimSuffix(parts[4], ".\n")) {
		text := strings.Join(strings.Fields(line), " ")
		if strings.Count(text, ":") == 2 { // on v1 a line for each hierarchy
			text = "cgroup: " + text[strings.LastIndex(text, ":")+1:]
		}
		if !strings.Contains(out.String(), "\n"+text+"\n") {
			fmt.Fprintln(&out, text)
		}
	}
	hostIDLines(t, &out, c)
	groupLines(t, &out, c.group)
	limitLines(&out, parts[2])
	mountLines(&out, parts[1])
	fmt.Fprintln(k.in)
	k.wait()
	return out.String()
}

// statusLines prints the lines of /proc/pid/status about identity and rights.
func statusLines(t *testing.T, out *strings.Builder, text string) {
	t.Helper()
	own, err := pseudofs.OwnFilters()
	if err != nil {
		t.Fatal(err)
	}
	keys := []string{
		"Uid", "Gid", "Groups", "NSpid", "PPid", "TracerPid", "Umask", "NoNewPrivs", "Seccomp", "Seccomp_filters",
		"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb",
	}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		if !slices.Contains(keys, key) {
			continue
		}
		value = strings.Join(strings.Fields(value), " ")
		switch key {
		case "Seccomp_filters":
			var n int
			fmt.Sscan(value, &n)
			value = fmt.Sprint("ours ", n-own)
		case "NSpid":
			value = fmt.Sprint("levels ", len(strings.Fields(value))) // that it can see
		}
		fmt.Fprintln(out, strings.TrimSpace(key+": "+value))
	}
}

func namespaceLines(t *testing.T, out *strings.Builder, text string) {
	t.Helper()
	for link := range strings.FieldsSeq(text) {
		kind, _, _ := strings.Cut(link, ":")
		whose := "its own"
		if host, err := os.Readlink("/proc/self/ns/" + kind); err == nil && host == link {
			whose = "the host's"
		}
		line := fmt.Sprintf("namespace %s: %s\n", kind, whose)
		if !strings.Contains(out.String(), line) { // pid and pid_for_children are one
			out.WriteString(line)
		}
	}
}

// hostIDLines prints the host ids of the sandbox's processes.
func hostIDLines(t *testing.T, out *strings.Builder, c *sandbox) {
	t.Helper()
	pids, err := c.group.Pids()
	if err != nil {
		t.Fatal(err)
	}
	whose := strings.NewReplacer(fmt.Sprint(c.ids.root), "init's", fmt.Sprint(c.ids.script()), "the script's")
	lines := map[string]bool{}
	for _, pid := range pids {
		status, err := pseudofs.ReadStatus(fmt.Sprint(pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"Uid", "Gid"} {
			lines[fmt.Sprintf("outside, %s: %s", key, whose.Replace(strings.Join(strings.Fields(status.Of(key)), " ")))] = true
		}
	}
	for _, line := range slices.Sorted(maps.Keys(lines)) {
		fmt.Fprintln(out, line)
	}
}

func groupLines(t *testing.T, out *strings.Builder, g cgroup.Group) {
	t.Helper()
	memory := "memory.limit_in_bytes"
	if g.Unified {
		memory = "memory.max"
	}
	for _, at := range [][2]string{{"memory", memory}, {"pids", "pids.max"}} {
		n, err := g.Number(at[0], at[1])
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(out, "limit of the cgroup: %s %d\n", at[0], n)
	}
}

// limitLines prints the limits that a sandbox sets. The others are the machine's.
func limitLines(out *strings.Builder, text string) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		for _, name := range []string{"cpu time", "file size", "stack size", "core file size", "open files", "locked memory", "file locks", "pending signals",
			"msgqueue size", "nice priority", "realtime priority"} {
			if n := len(strings.Fields("Max " + name)); strings.HasPrefix(line, "Max "+name+" ") {
				fmt.Fprintf(out, "limit of a process: %s %s %s\n", name, fields[n], fields[n+1])
			}
		}
	}
}

// mountLines prints mounts by their paths, without parts that the machine or the kernel
// chooses: devices, access times, owners.
func mountLines(out *strings.Builder, text string) {
	lines := map[string]bool{}
	for line := range strings.Lines(text) {
		before, after, _ := strings.Cut(line, " - ")
		fields, of := strings.Fields(before), strings.Fields(after)
		path, kind := fields[4], of[0]
		keep := func(options string, these func(string) bool) string {
			all := strings.Split(options, ",")
			slices.Sort(all)
			return strings.Join(slices.DeleteFunc(all, func(o string) bool { return !these(o) }), ",")
		}
		flags := keep(fields[5], func(o string) bool { return !strings.HasSuffix(o, "atime") })
		super := keep(of[2], func(o string) bool {
			name, _, _ := strings.Cut(o, "=")
			return slices.Contains([]string{"size", "nr_inodes", "mode", "hidepid"}, name)
		})
		switch {
		case strings.HasPrefix(path, "/proc/") && slices.Contains(maskedPaths, path):
			path, super = "/proc/(masked)", ""
		case strings.HasPrefix(path, "/usr/"):
			continue // a mount of the machine
		case strings.HasPrefix(path, "/etc/") && path != "/etc/resolv.conf", strings.HasPrefix(path, "/var/"):
			path, super = "(files of the host)", ""
		case strings.HasPrefix(path, "/dev/") && path != "/dev/shm":
			flags, super = "", "" // the device of libcontainer, or a bind of the host's
		}
		if kind != "tmpfs" && kind != "proc" && kind != "overlay" || strings.HasPrefix(path, "/proc/(m") || path == "/" {
			kind, super = "", keep(super, func(o string) bool { return path == "/proc" })
		}
		lines[strings.TrimSpace(strings.Join(strings.Fields(fmt.Sprintf("mount %s %s %s %s", path, kind, flags, super)), " "))] = true
	}
	for _, line := range slices.Sorted(maps.Keys(lines)) {
		fmt.Fprintln(out, line)
	}
}
