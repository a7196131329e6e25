package helper

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/network/wire"
)

// allowed are the system calls that a helper may make with any arguments: what gateway's sockets and
// Go's runtime need. The first ones are the frequent ones.
var allowed = []uint32{
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_WRITEV, unix.SYS_EPOLL_PWAIT, unix.SYS_FUTEX, unix.SYS_NANOSLEEP,
	unix.SYS_CLOSE, unix.SYS_CONNECT, unix.SYS_GETSOCKNAME, unix.SYS_GETPEERNAME, unix.SYS_SHUTDOWN,
	unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EVENTFD2, unix.SYS_FSTAT,
	unix.SYS_MUNMAP, unix.SYS_MADVISE, unix.SYS_MREMAP, unix.SYS_BRK,
	unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_GETTIMEOFDAY, unix.SYS_GETRANDOM,
	unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_GETPID, unix.SYS_GETTID,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK, unix.SYS_RESTART_SYSCALL,
	unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
}

// deadly are calls that only an attacker in the process makes.
var deadly = []uint32{
	unix.SYS_EXECVE, unix.SYS_EXECVEAT, unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV,
	unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_PIVOT_ROOT, unix.SYS_BPF, unix.SYS_KEYCTL,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_PERF_EVENT_OPEN,
	unix.SYS_IO_URING_SETUP, unix.SYS_USERFAULTFD, unix.SYS_OPEN_BY_HANDLE_AT,
}

// A rule says what happens to a call whose arguments meet all conditions.
type rule struct {
	call uint32
	when []condition
	then bpf.RetConstant
}

// A condition says that an argument, without the bits in ignored, is one of some values. All arguments
// that are compared here are ints to the kernel.
type condition struct {
	argument uint32 // its index, from 0
	ignored  uint32 // bits that may have any value
	values   []uint32
}

func is(argument uint32, values ...uint32) condition { return condition{argument, 0, values} }

const (
	// A thread, as Go and glibc make it (pthread_create). Without CLONE_THREAD it would be a process.
	threadFlags   = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_THREAD | unix.CLONE_SYSVSEM
	threadOptions = unix.CLONE_SETTLS | unix.CLONE_PARENT_SETTID | unix.CLONE_CHILD_SETTID | unix.CLONE_CHILD_CLEARTID

	socketOptions = unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK // flags in the type
	notExecutable = ^uint32(unix.PROT_EXEC)
)

// rules are the calls whose arguments matter. The first rule that fits decides.
func rules() []rule {
	inet := is(0, unix.AF_INET, unix.AF_INET6)
	return []rule{
		{unix.SYS_SOCKET, []condition{inet, {1, socketOptions, []uint32{unix.SOCK_STREAM}}, is(2, 0, unix.IPPROTO_TCP)}, allow},
		{unix.SYS_SOCKET, []condition{inet, {1, socketOptions, []uint32{unix.SOCK_DGRAM}}, is(2, 0, unix.IPPROTO_UDP)}, allow},
		{unix.SYS_GETSOCKOPT, []condition{is(1, unix.SOL_SOCKET), is(2, unix.SO_ERROR)}, allow},
		{unix.SYS_SETSOCKOPT, []condition{is(1, unix.SOL_SOCKET), is(2, unix.SO_LINGER, unix.SO_KEEPALIVE, unix.SO_RCVBUF, unix.SO_SNDBUF, unix.SO_BUF_LOCK)}, allow},
		{unix.SYS_SETSOCKOPT, []condition{is(1, unix.IPPROTO_TCP), is(2, unix.TCP_NODELAY, unix.TCP_KEEPIDLE, unix.TCP_KEEPINTVL, unix.TCP_KEEPCNT)}, allow},
		{unix.SYS_SETSOCKOPT, []condition{is(1, unix.IPPROTO_IPV6), is(2, unix.IPV6_V6ONLY)}, allow},
		{unix.SYS_SETSOCKOPT, []condition{is(1, unix.IPPROTO_IP), is(2, unix.IP_LOCAL_PORT_RANGE)}, allow},
		// Package net permits broadcasts on each socket, and takes an error seriously. No rule of a
		// network allows a broadcast.
		{unix.SYS_SETSOCKOPT, []condition{is(1, unix.SOL_SOCKET), is(2, unix.SO_BROADCAST)}, ignore},
		// Other sockets are connected, and are read and written like files.
		{unix.SYS_SENDMSG, []condition{is(0, wire.ManagerFD)}, allow},
		{unix.SYS_RECVMSG, []condition{is(0, wire.ManagerFD)}, allow},
		{unix.SYS_IOCTL, []condition{is(1, unix.SIOCINQ)}, allow}, // how many bytes wait in a socket
		{unix.SYS_FCNTL, []condition{is(1, unix.F_GETFL, unix.F_SETFL)}, allow},
		{unix.SYS_TGKILL, []condition{is(0, uint32(os.Getpid()))}, allow}, // Go interrupts its threads
		{unix.SYS_PRCTL, []condition{is(0, unix.PR_SET_VMA)}, allow},      // Go names its memory
		{unix.SYS_CLONE, []condition{{0, threadOptions, []uint32{threadFlags}}}, allow},
		{unix.SYS_CLONE, nil, kill},
		{unix.SYS_CLONE3, nil, enosys},
		{unix.SYS_MMAP, []condition{{2, notExecutable, []uint32{0}}}, allow},
		{unix.SYS_MMAP, nil, kill},
		{unix.SYS_MPROTECT, []condition{{2, notExecutable, []uint32{0}}}, allow},
		{unix.SYS_MPROTECT, nil, kill},
	}
}

// Offsets in struct seccomp_data (linux/seccomp.h), in bytes. An argument has 64 bits. The low half comes
// first on a little-endian processor.
const (
	numberAt = 0
	archAt   = 4
)

func argumentAt(i uint32) uint32 { return 16 + 8*i }

// auditArch is AUDIT_ARCH_X86_64 and AUDIT_ARCH_AARCH64 (linux/audit.h).
var auditArch = map[string]uint32{"amd64": 0xc000003e, "arm64": 0xc00000b7}

var (
	allow  = bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}
	kill   = bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_PROCESS}
	ignore = bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO} // the call has success and does nothing
	eperm  = bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)}
	// glibc takes it for an older kernel, and uses clone, whose arguments a filter can read.
	enosys = bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)}
)

// filter compiles the helper's filter. A call in no list fails with EPERM.
func filter() ([]unix.SockFilter, error) {
	arch, ok := auditArch[runtime.GOARCH]
	if !ok {
		return nil, fmt.Errorf("no list of system calls for %s", runtime.GOARCH)
	}
	p := []bpf.Instruction{
		bpf.LoadAbsolute{Off: archAt, Size: 4},
		// Another architecture means other numbers of calls, such as the ones of 32-bit programs (seccomp(2)).
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: arch, SkipTrue: 1}, kill,
		bpf.LoadAbsolute{Off: numberAt, Size: 4},
	}
	for _, call := range allowed {
		p = append(p, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: call, SkipTrue: 1}, allow)
	}
	for _, call := range deadly {
		p = append(p, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: call, SkipTrue: 1}, kill)
	}
	for _, r := range rules() {
		p = append(p, r.compile()...)
	}
	return assemble(append(p, eperm))
}

// compile returns instructions that return r.then, or run past their end.
func (r rule) compile() []bpf.Instruction {
	// From the last condition to the first, because each needs to know how many instructions it has to skip.
	rest := []bpf.Instruction{r.then}
	for i := len(r.when) - 1; i >= 0; i-- {
		rest = append(r.when[i].compile(len(rest)), rest...)
	}
	return append([]bpf.Instruction{
		bpf.LoadAbsolute{Off: numberAt, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: r.call, SkipTrue: uint8(len(rest))},
	}, rest...)
}

// compile returns instructions that run past their end if the condition holds, and else skip the rest.
func (c condition) compile(rest int) []bpf.Instruction {
	// Only the low 32 bits are compared. That is safe for these arguments: the kernel takes them as int and ignores
	// the upper half.
	p := []bpf.Instruction{bpf.LoadAbsolute{Off: argumentAt(c.argument), Size: 4}, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: ^c.ignored}}
	for i, v := range c.values {
		p = append(p, bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipTrue: uint8(len(c.values) - i)})
	}
	return append(p, bpf.Jump{Skip: uint32(rest)})
}

func assemble(p []bpf.Instruction) (program []unix.SockFilter, err error) {
	raw, err := bpf.Assemble(p)
	if err != nil {
		return nil, err
	}
	for _, r := range raw {
		program = append(program, unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K})
	}
	return program, nil
}
