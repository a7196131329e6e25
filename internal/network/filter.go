package network

import (
	"fmt"
	"runtime"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// allowed are the system calls that a helper may make with any arguments: what gateway's sockets and
// Go's runtime need. The first ones are the frequent ones.
var allowed = []uint32{
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_WRITEV, unix.SYS_EPOLL_PWAIT, unix.SYS_FUTEX, unix.SYS_NANOSLEEP,
	unix.SYS_CLOSE, unix.SYS_CONNECT, unix.SYS_GETSOCKOPT, unix.SYS_SETSOCKOPT, unix.SYS_GETSOCKNAME,
	unix.SYS_GETPEERNAME, unix.SYS_SHUTDOWN, unix.SYS_SENDTO, unix.SYS_RECVFROM, unix.SYS_SENDMSG, unix.SYS_RECVMSG,
	unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EVENTFD2, unix.SYS_FCNTL, unix.SYS_FSTAT,
	unix.SYS_MUNMAP, unix.SYS_MADVISE, unix.SYS_MREMAP, unix.SYS_BRK,
	unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_GETTIMEOFDAY, unix.SYS_GETRANDOM,
	unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_TGKILL,
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

// Offsets in struct seccomp_data (linux/seccomp.h), in bytes. An argument has 64 bits; all that are
// compared here are ints, in the low half, which comes first on a little-endian processor.
const (
	numberAt = 0
	archAt   = 4
)

func argumentAt(i uint32) uint32 { return 16 + 8*i }

// auditArch is AUDIT_ARCH_X86_64 and AUDIT_ARCH_AARCH64 (linux/audit.h).
var auditArch = map[string]uint32{"amd64": 0xc000003e, "arm64": 0xc00000b7}

var (
	allow = bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}
	kill  = bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_PROCESS}
	eperm = bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)}
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
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: arch, SkipTrue: 1}, kill,
		bpf.LoadAbsolute{Off: numberAt, Size: 4},
	}
	for _, call := range allowed {
		p = append(p, on(call, allow)...)
	}
	p = append(p, on(unix.SYS_CLONE3, enosys)...)
	p = append(p, on(unix.SYS_CLONE, argument(0, bpf.JumpBitsSet, unix.CLONE_THREAD, allow, kill)...)...)
	p = append(p, on(unix.SYS_MMAP, argument(2, bpf.JumpBitsSet, unix.PROT_EXEC, kill, allow)...)...)
	p = append(p, on(unix.SYS_MPROTECT, argument(2, bpf.JumpBitsSet, unix.PROT_EXEC, kill, allow)...)...)
	// Go names its memory with it.
	p = append(p, on(unix.SYS_PRCTL, argument(0, bpf.JumpEqual, unix.PR_SET_VMA, allow, eperm)...)...)
	p = append(p, on(unix.SYS_SOCKET, bpf.LoadAbsolute{Off: argumentAt(0), Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_INET, SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.AF_INET6, SkipTrue: 1}, allow, eperm)...)
	for _, call := range deadly {
		p = append(p, on(call, kill)...)
	}
	return assemble(append(p, eperm))
}

// on runs body for one call. The body returns in each case.
func on(call uint32, body ...bpf.Instruction) []bpf.Instruction {
	return append([]bpf.Instruction{bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: call, SkipTrue: uint8(len(body))}}, body...)
}

// argument compares one argument.
func argument(i uint32, cond bpf.JumpTest, val uint32, then, otherwise bpf.Instruction) []bpf.Instruction {
	return []bpf.Instruction{bpf.LoadAbsolute{Off: argumentAt(i), Size: 4}, bpf.JumpIf{Cond: cond, Val: val, SkipFalse: 1}, then, otherwise}
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
