package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// holdConnections fills the buffers of many connections to a server that reads nothing.
const holdConnections = `
import socket
held = []
try:
    for i in range(200):
        s = socket.create_connection(("20.1.0.1", 80))
        s.sendall(b"GET /hold HTTP/1.1\r\nHost: web.example\r\nContent-Length: 100000000\r\n\r\n")
        s.setblocking(False)
        held.append(s)
    block = bytes(1 << 16)
    while True:
        for s in held:
            try: s.send(block)
            except BlockingIOError: pass
except OSError as e:
    print(type(e).__name__)
`

// helperGroup returns the cgroup directory with the limits of the daemon's only helper.
func helperGroup(t *testing.T, pid int, controller string) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		if names, path, _ := strings.Cut(rest, ":"); unified() {
			return filepath.Join("/sys/fs/cgroup", path)
		} else if slices.Contains(strings.Split(names, ","), controller) {
			return filepath.Join("/sys/fs/cgroup", controller, path)
		}
	}
	t.Fatalf("no controller %s in %s", controller, text)
	return ""
}

// leaveLittleMemory gives a helper's cgroup a limit of 2 MiB more than it uses.
func leaveLittleMemory(t *testing.T, group string) {
	t.Helper()
	if err := limitMemory(group, 2<<20); err != nil {
		t.Fatal(err)
	}
}

// limitMemory gives a cgroup a limit of so many bytes more than it uses.
func limitMemory(group string, spare int) (err error) {
	limit, used := "memory.limit_in_bytes", "memory.usage_in_bytes"
	if unified() {
		limit, used = "memory.max", "memory.current"
	}
	await(func() bool {
		var text []byte
		if text, err = os.ReadFile(filepath.Join(group, used)); err != nil {
			return true
		}
		var now int
		if now, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
			return true
		}
		err = os.WriteFile(filepath.Join(group, limit), []byte(strconv.Itoa(now+spare)), 0)
		return !errors.Is(err, syscall.EBUSY) // EBUSY: by now it uses more than that
	})
	return err
}

// When the memory of a helper runs out, the kernel kills the helper and nothing else. The daemon starts
// another one, and says why.
func TestNetworkHelperOutOfMemory(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeSkill(t, dir, "online", "network_access: true", map[string]string{"scripts/survive.py": surviveTheHelper, "scripts/hold.py": holdConnections})
	d, _, machine := startOnHostileInternet(t, dir, "network: {allow: [web.example, 20.1.0.1]}\n")
	d.run(code("online", "import urllib.request\nprint(urllib.request.urlopen('http://web.example/').read().decode().strip())")).wantStdout(t, "hello, web.example\n")
	before := helpers(t, machine)
	if len(before) != 1 {
		t.Fatalf("helpers: %v", before)
	}
	group := helperGroup(t, before[0], "memory")
	if name := filepath.Base(group); !strings.HasPrefix(name, "helper-default-") || filepath.Base(filepath.Dir(group)) != "skillrun-"+d.instance() {
		t.Fatalf("the helper is in %s", group)
	}
	leaveLittleMemory(t, group)
	r := d.run(wall(script("online", "scripts/hold.py"), patience))
	r.wantExit(t, 0)
	d.untilLogged("its memory ran out")
	if u := r.outcome.Usage.Network; !u.GetIncomplete() {
		t.Errorf("usage after the helper's death: %v", u)
	}
	d.run(code("online", "import urllib.request\nprint(urllib.request.urlopen('http://web.example/').read().decode().strip())")).wantStdout(t, "hello, web.example\n")
	if after := helpers(t, machine); len(after) != 1 || after[0] == before[0] {
		t.Errorf("helpers: %v, then %v", before, after)
	}
	if _, err := os.Stat(group); err == nil {
		t.Errorf("%s is left", group)
	}
	d.stop()
	if left := helpers(t, machine); len(left) > 0 {
		t.Errorf("helpers after the daemon's end: %v", left)
	}
}

// A helper that is stopped does not outlive a daemon that is killed, and the next daemon leaves nothing of it.
func TestStoppedNetworkHelperEndsWithTheDaemon(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "network: {'skills': {calculator: {allow: [public]}}}\n")
	d.run(shell("calculator", "true")).wantExit(t, 0)
	pids := d.networkHelpers()
	if len(pids) != 1 {
		t.Fatalf("helpers: %v", pids)
	}
	pid, err := strconv.Atoi(pids[0])
	if err != nil {
		t.Fatal(err)
	}
	group := helperGroup(t, pid, "pids")
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	d.kill()
	until(t, "the helper lives", func() bool { return len(processesIn([]string{group})) == 0 })
	next := startDaemonIn(t, d.dir, "network: {'skills': {calculator: {allow: [public]}}}\n")
	if _, err := os.Stat(filepath.Dir(group)); err == nil {
		t.Errorf("%s is left", filepath.Dir(group))
	}
	next.run(shell("calculator", "true")).wantExit(t, 0)
}

// A machine without the device of networks is named at the start and by --doctor, and the daemon does not
// start. Without networks it needs none.
func TestNetworkDeviceIsMissing(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	for text, want := range map[string]string{"network: {}\n": "MISSING", "network: none\n": ""} {
		config := filepath.Join(dir, "skillrund.yaml")
		if err := os.WriteFile(config, []byte("state_dir: state\nrun_dir: run\n"+manyIDs+text), 0o600); err != nil {
			t.Fatal(err)
		}
		hidden := func(args ...string) string {
			script := `mount --make-rprivate / && mount --bind /dev/null /dev/net/tun && exec "$@"`
			args = append([]string{"-m", "sh", "-c", script, "sh", binary(t, "skillrund"), "--config", config}, args...)
			out, _ := exec.CommandContext(t.Context(), "unshare", args...).CombinedOutput()
			return string(out)
		}
		out, line := hidden("--doctor"), ""
		for l := range strings.Lines(out) {
			if strings.Contains(l, " machine     network device ") {
				line = l
			}
		}
		if (line == "") != (want == "") || !strings.HasPrefix(line, want) {
			t.Errorf("with %sgot %s in\n%s", text, line, out)
		}
		if want == "" {
			continue
		}
		if out := hidden(); !strings.Contains(out, "network device") || !strings.Contains(out, "/dev/net/tun") || !strings.Contains(out, "network: none") {
			t.Errorf("the start says\n%s", out)
		}
	}
}
