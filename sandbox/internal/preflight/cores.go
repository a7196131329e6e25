package preflight

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/pid1"
)

// NoDump is the limit of core dumps in bytes. It is too small for a file. If core_pattern
// is a pipe, it is the only value with which the kernel starts no program: with any other
// value, even 0, the kernel runs the pipe's program as root outside the sandbox, and that
// program reads the crashed process (coredump_pipe in fs/coredump.c; do_coredump before
// Linux 6.17). The filter keeps a script from changing the limit: see pretend_when in
// seccomp.yaml.
const NoDump = 1

// DumpLimit is NoDump, or 0 if this process can't give its children 1. 0 prevents files
// as well, but not a pipe's program: Machine reports that.
func DumpLimit() uint64 {
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &own); err != nil || own.Max >= NoDump {
		return NoDump
	}
	if MayRaiseLimits() {
		return NoDump
	}
	return 0
}

// MayRaiseLimits reports whether this process may raise hard limits, and change the limits of other processes
// (prlimit(2)).
func MayRaiseLimits() bool {
	have, err := effectiveCapabilities()
	return err != nil || have&(1<<unix.CAP_SYS_RESOURCE) != 0
}

func tryCoreDumps(Config) (string, error) {
	pattern, err := os.ReadFile("/proc/sys/kernel/core_pattern")
	if err != nil {
		return "", err
	}
	return dumpsGoNowhere(string(pattern), crash)
}

// dumpsGoNowhere says whether the RLIMIT_CORE of sandboxes prevents core dumps, given the
// content of core_pattern (core(5)). It prevents dumps to files. It prevents dumps to a
// program if it is NoDump, and crash tries that. It doesn't prevent dumps to a socket
// (since Linux 6.16): for these the kernel ignores the limit.
func dumpsGoNowhere(pattern string, crash func() (dumped bool, err error)) (string, error) {
	pattern = strings.TrimSpace(pattern)
	if socket, ok := strings.CutPrefix(pattern, "@"); ok {
		return "", fmt.Errorf("core_pattern sends dumps to a socket, %s, whatever the limits of a sandbox are", strings.TrimPrefix(socket, "@"))
	}
	program, ok := strings.CutPrefix(pattern, "|")
	if !ok {
		return "core_pattern names a file, for which the limit is too small", nil
	}
	program, _, _ = strings.Cut(strings.TrimSpace(program), " ")
	if program == "/bin/false" || program == "/usr/bin/false" {
		return "core_pattern is a pipe to " + program + ", which discards dumps", nil
	}
	dumped, err := crash()
	switch {
	case err != nil:
		return "", fmt.Errorf("core_pattern is a pipe to a program, %s, and the daemon can't test whether a limit of %d byte prevents its start: %w", program, NoDump, err)
	case dumped:
		return "", fmt.Errorf("core_pattern is a pipe to a program, %s, and this kernel starts it even with a limit of %d byte", program, NoDump)
	}
	return fmt.Sprintf("with the limit of sandboxes, %d byte, a crash doesn't start %s", NoDump, program), nil
}

// crash runs a process that dies with the RLIMIT_CORE of sandboxes, and returns whether
// its wait status has the core dump flag (WCOREDUMP, wait(2)).
func crash() (dumped bool, err error) {
	if DumpLimit() != NoDump {
		return false, errors.New("the daemon's own hard limit is 0; set LimitCORE=1 in the systemd unit, or --ulimit core=1 for a container")
	}
	ctx, cancel := context.WithTimeout(context.Background(), crashPatience)
	defer cancel()
	// The environment is empty so that a dump of this process holds no secrets.
	cmd := exec.CommandContext(ctx, "/proc/self/exe", pid1.CrashArg)
	cmd.Env = []string{}
	err = cmd.Run()
	if cmd.ProcessState == nil {
		return false, err
	}
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !status.Signaled() || status.Signal() != unix.SIGQUIT {
		return false, fmt.Errorf("the test program did not crash as expected: %v", err)
	}
	return status.CoreDump(), nil
}

// crashPatience bounds the time for one program's start and dump.
const crashPatience = 10 * time.Second
