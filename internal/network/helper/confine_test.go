package helper

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/network/networktest"
)

// helperID is the user of an attempt.
const helperID = 64011

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == attemptArg {
		os.Exit(attempt(os.Args[2]))
	}
	networktest.Main(m)
}

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
	"thread in a namespace": func() error {
		_, _, err := unix.RawSyscall6(unix.SYS_CLONE, threadFlags|unix.CLONE_NEWUSER, 0, 0, 0, 0, 0)
		return err
	},
	"vm without a thread": func() error { // like vfork
		_, _, err := unix.RawSyscall6(unix.SYS_CLONE, unix.CLONE_VM|unix.CLONE_VFORK|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		return err
	},
	"clone3": func() error { return call(unix.SYS_CLONE3, 0, 0) },
	// Sockets of other types and protocols.
	"ping":      func() error { return socketOf(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP) },
	"ping 6":    func() error { return socketOf(unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_ICMPV6) },
	"raw 6":     func() error { return socketOf(unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_UDP) },
	"SCTP":      func() error { return socketOf(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP) },
	"MPTCP":     func() error { return socketOf(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP) },
	"UDP-Lite":  func() error { return socketOf(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE) },
	"DCCP":      func() error { return socketOf(unix.AF_INET, unix.SOCK_DCCP, 0) },
	"SEQPACKET": func() error { return socketOf(unix.AF_INET, unix.SOCK_SEQPACKET, 0) },
	"vsock":     func() error { return socketOf(unix.AF_VSOCK, unix.SOCK_STREAM, 0) },
	"XDP":       func() error { return socketOf(unix.AF_XDP, unix.SOCK_RAW, 0) },
	"crypto":    func() error { return socketOf(unix.AF_ALG, unix.SOCK_SEQPACKET, 0) },
	"pair":      func() error { _, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0); return err },
	// Options and uses of sockets.
	"UDP":          func() error { return socketOf(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP) },
	"no delay":     func() error { return option(unix.IPPROTO_TCP, unix.TCP_NODELAY) },
	"keep alive":   func() error { return option(unix.SOL_SOCKET, unix.SO_KEEPALIVE) },
	"broadcast":    func() error { _, err := net.Dial("udp", "127.255.255.255:9"); return err },
	"local ports":  func() error { return ignoring(unix.ENOPROTOOPT, option(unix.IPPROTO_IP, unix.IP_LOCAL_PORT_RANGE)) }, // Linux 6.3
	"buffers":      func() error { return option(unix.SOL_SOCKET, unix.SO_RCVBUF) },
	"buffer lock":  func() error { return option(unix.SOL_SOCKET, unix.SO_BUF_LOCK) },
	"waiting":      func() error { return waiting() },
	"device":       func() error { return option(unix.SOL_SOCKET, unix.SO_BINDTODEVICE) },
	"mark":         func() error { return option(unix.SOL_SOCKET, unix.SO_MARK) },
	"filter":       func() error { return option(unix.SOL_SOCKET, unix.SO_ATTACH_FILTER) },
	"zero copy":    func() error { return option(unix.SOL_SOCKET, unix.SO_ZEROCOPY) },
	"buffer":       func() error { return option(unix.SOL_SOCKET, unix.SO_RCVBUFFORCE) },
	"IP options":   func() error { return option(unix.IPPROTO_IP, unix.IP_OPTIONS) },
	"transparent":  func() error { return option(unix.IPPROTO_IP, unix.IP_TRANSPARENT) },
	"multicast":    func() error { return option(unix.IPPROTO_IP, unix.IP_MULTICAST_IF) },
	"iptables":     func() error { return option(unix.IPPROTO_IP, 64) }, // IPT_SO_SET_REPLACE
	"repair":       func() error { return option(unix.IPPROTO_TCP, unix.TCP_REPAIR) },
	"kernel TLS":   func() error { return option(unix.IPPROTO_TCP, unix.TCP_ULP) },
	"congestion":   func() error { return option(unix.IPPROTO_TCP, unix.TCP_CONGESTION) },
	"socket cred":  func() error { _, err := unix.GetsockoptUcred(0, unix.SOL_SOCKET, unix.SO_PEERCRED); return err },
	"bind":         func() error { return call(unix.SYS_BIND, 0, 0) },
	"accept":       func() error { return call(unix.SYS_ACCEPT4, 0, 0) },
	"send to":      func() error { return call(unix.SYS_SENDTO, 0, 0) },
	"send many":    func() error { return call(unix.SYS_SENDMMSG, 0, 0) },
	"send message": func() error { return call(unix.SYS_SENDMSG, 0, 0) },
	"ioctl":        func() error { return call(unix.SYS_IOCTL, 0, unix.TUNSETIFF) },
	// Files, descriptors and signals.
	"open relative": func() error { _, err := unix.Openat2(unix.AT_FDCWD, ".", &unix.OpenHow{}); return err },
	"memory file":   func() error { _, err := unix.MemfdCreate("x", 0); return err },
	"duplicate":     func() error { _, err := unix.FcntlInt(0, unix.F_DUPFD, 0); return err },
	"dup":           func() error { _, err := unix.Dup(0); return err },
	"owner":         func() error { _, err := unix.FcntlInt(0, unix.F_SETOWN, 1); return err }, // of SIGIO
	"pipe":          func() error { return unix.Pipe2(make([]int, 2), 0) },
	"splice":        func() error { return call(unix.SYS_SPLICE, 0, 0) },
	"pidfd":         func() error { _, err := unix.PidfdOpen(1, 0); return err },
	"descriptor":    func() error { _, err := unix.PidfdGetfd(0, 0, 0); return err },
	"signal":        func() error { return unix.Tgkill(os.Getppid(), os.Getppid(), 0) },
	"queued signal": func() error { return call(unix.SYS_RT_SIGQUEUEINFO, uintptr(os.Getppid()), uintptr(unix.SIGTERM)) },
	"death signal":  func() error { return unix.Prctl(unix.PR_SET_PDEATHSIG, 0, 0, 0, 0) },
	"dumpable":      func() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0) },
	"own filter":    func() error { return call(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_STRICT, 0) },
	"chroot":        func() error { return unix.Chroot("/") },
	"priority":      func() error { return unix.Setpriority(unix.PRIO_PROCESS, 0, 1) },
	"processors":    func() error { return unix.SchedSetaffinity(0, &unix.CPUSet{1}) },
	"io_uring":      func() error { return call(unix.SYS_IO_URING_SETUP, 1, 0) },
	"BPF":           func() error { return call(unix.SYS_BPF, 0, 0) },
	"code later": func() error {
		m, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			return err
		}
		return unix.Mprotect(m, unix.PROT_READ|unix.PROT_EXEC)
	},
	"code": func() error {
		_, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
		return err
	},
}

// call makes a system call with two arguments.
func call(number, a, b uintptr) error {
	if _, _, err := unix.Syscall6(number, a, b, 0, 0, 0, 0); err != 0 {
		return err
	}
	return nil
}

func socketOf(domain, kind, protocol int) error {
	_, err := unix.Socket(domain, kind, protocol)
	return err
}

// option sets an option of a TCP socket.
func option(level, name int) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_TCP)
	if err != nil {
		return fmt.Errorf("no socket: %v", err)
	}
	return unix.SetsockoptInt(fd, level, name, 1)
}

// waiting asks how many bytes a socket has.
func waiting() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_TCP)
	if err != nil {
		return fmt.Errorf("no socket: %v", err)
	}
	_, err = unix.IoctlGetInt(fd, unix.SIOCINQ)
	return err
}

// ignoring is nil for an error that says that an older kernel has no such option.
func ignoring(old, err error) error {
	if errors.Is(err, old) {
		return nil
	}
	return err
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
	want := map[string]string{"clone3": "not implemented", "broadcast": "permission denied"}
	for _, name := range []string{"dial", "thread", "UDP", "no delay", "keep alive", "local ports", "buffers", "buffer lock", "waiting"} {
		want[name] = ""
	}
	for _, name := range []string{"exec", "ptrace", "fork", "namespace", "thread in a namespace", "vm without a thread", "code", "code later", "io_uring", "BPF"} {
		want[name] = "killed"
	}
	for name := range attempts {
		c := exec.Command("/proc/self/exe", attemptArg, name)
		c.Dir = t.TempDir()
		c.Env = []string{"GODEBUG=containermaxprocs=0,updatemaxprocs=0"} // as the Manager sets it: Go must open no file later
		out, err := c.Output()                                           // a binary with coverage complains on stderr
		expected, listed := want[name]
		if !listed {
			expected = "operation not permitted"
		}
		var exit *exec.ExitError
		switch {
		case expected == "killed":
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGSYS {
				t.Errorf("%s: %v: %s", name, err, out)
			}
		case err != nil, (expected == "") != (len(out) == 0), !strings.Contains(string(out), expected):
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
	if out, err := exec.Command("/proc/self/exe", attemptArg, "as-root").CombinedOutput(); err == nil {
		t.Errorf("as root: %s", out)
	}
}
