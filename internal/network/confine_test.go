package network

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// attemptArg makes the test binary confine itself and try one thing.
const attemptArg = "skillrun-network-attempt"

// attempts are what code in a helper could try. The result is "" if the attempt had success.
var attempts = map[string]func() error{
	"dial": func() error {
		_, err := net.Dial("tcp", "127.0.0.1:1")
		if errors.Is(err, syscall.ECONNREFUSED) {
			return nil
		}
		return err
	},
	"thread": func() error {
		done := make(chan error)
		for range 20 { // each blocks a thread
			go func() { done <- unix.Nanosleep(&unix.Timespec{Nsec: 1e6}, nil) }()
		}
		for range 20 {
			if err := <-done; err != nil {
				return err
			}
		}
		return nil
	},
	"open":    func() error { _, err := os.Open("/"); return err },
	"listen":  func() error { _, err := net.Listen("tcp", "127.0.0.1:0"); return err },
	"unix":    func() error { _, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0); return err },
	"netlink": func() error { _, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, 0); return err },
	"packet":  func() error { _, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0); return err },
	"raw":     func() error { _, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_TCP); return err },
	"kill":    func() error { return unix.Kill(1, 0) },
	"root":    func() error { return syscall.Setuid(0) },
	"core":    func() error { return unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1, Max: 1}) },
	"exec":    func() error { return syscall.Exec("/x", nil, nil) },
	"ptrace":  func() error { return syscall.PtraceAttach(1) },
	"fork": func() error {
		_, _, err := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		return err
	},
	"namespace": func() error { return unix.Unshare(unix.CLONE_NEWUSER) },
	"code": func() error {
		_, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
		return err
	},
}

func attempt(name string) int {
	id := helperID
	if name == "as-root" {
		id = 0
	}
	if err := confine(id); err != nil {
		fmt.Println("confine:", err)
		return 1
	}
	if err := attempts[name](); err != nil {
		fmt.Println(err)
	}
	return 0
}

// A confined helper can make connections and threads. Everything else fails, or kills it.
func TestConfined(t *testing.T) {
	want := map[string]string{"dial": "", "thread": "", "exec": "killed", "ptrace": "killed", "fork": "killed", "namespace": "killed", "code": "killed"}
	for name := range attempts {
		c := exec.Command("/proc/self/exe", attemptArg, name)
		c.Dir = t.TempDir()
		c.Env = environment
		out, err := c.Output() // a binary with coverage complains on stderr
		expected, listed := want[name]
		var exit *exec.ExitError
		switch {
		case expected == "killed":
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGSYS {
				t.Errorf("%s: %v: %s", name, err, out)
			}
		case err != nil, listed != (len(out) == 0), !listed && !strings.Contains(string(out), "not permitted"):
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
	if out, err := exec.Command("/proc/self/exe", attemptArg, "as-root").CombinedOutput(); err == nil {
		t.Errorf("as root: %s", out)
	}
}

// A helper that serves has no privileges: the kernel says so.
func TestPosture(t *testing.T) {
	m := newManager(t)
	newBox(t, m, "a")
	pid := strconv.Itoa(m.process(t, "a").command.Process.Pid)
	text, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		t.Fatal(err)
	}
	status := map[string]string{}
	for line := range strings.SplitSeq(string(text), "\n") {
		key, value, _ := strings.Cut(line, ":")
		status[key] = strings.TrimSpace(value)
	}
	id := strings.TrimSuffix(strings.Repeat(strconv.Itoa(helperID)+"\t", 4), "\t")
	for key, want := range map[string]string{"Uid": id, "Gid": id, "Groups": "", "CapEff": strings.Repeat("0", 16),
		"CapPrm": strings.Repeat("0", 16), "CapInh": strings.Repeat("0", 16), "NoNewPrivs": "1", "Seccomp": "2"} {
		if status[key] != want {
			t.Errorf("%s: %q, not %q", key, status[key], want)
		}
	}
	if root, err := os.Readlink("/proc/" + pid + "/root"); err != nil || root != m.config.Dir {
		t.Errorf("root: %s, %v", root, err)
	}
	if list, err := os.ReadDir("/proc/" + pid + "/root"); err != nil || len(list) != 0 {
		t.Errorf("files: %v, %v", list, err)
	}
	// The daemon may be one of the last processes that the kernel kills; its helpers are not.
	if score, err := os.ReadFile("/proc/" + pid + "/oom_score_adj"); err != nil || strings.TrimSpace(string(score)) != oomScore {
		t.Errorf("oom_score_adj: %s, %v", score, err)
	}
	for _, ns := range []string{"pid", "ipc", "uts"} {
		own, _ := os.Readlink("/proc/self/ns/" + ns)
		if theirs, err := os.Readlink("/proc/" + pid + "/ns/" + ns); err != nil || theirs == own {
			t.Errorf("namespace %s: %s, %v", ns, theirs, err)
		}
	}
	links, _ := filepath.Glob("/proc/" + pid + "/fd/*")
	for _, l := range links {
		file, _ := os.Readlink(l)
		kind, _, _ := strings.Cut(file, ":")
		if kind != "socket" && kind != "anon_inode" && kind != "pipe" && file != "/dev/null" && file != "/dev/net/tun" {
			t.Errorf("it has %s open", file)
		}
	}
}
