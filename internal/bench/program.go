package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	skillrun "github.com/skillrun/skillrun/clients/go"
)

// A program is a program to run in a sandbox and bare, with its expected output.
type program struct {
	sandboxed func(*skillrun.Client) *skillrun.Cmd
	bare      []string // its argv, with the program's path
	want      string
}

var (
	trueProgram = program{
		sandboxed: func(c *skillrun.Client) *skillrun.Cmd { return c.Command(benchSkill, "true") },
		bare:      []string{"/usr/bin/true"},
	}
	sum = program{
		sandboxed: func(c *skillrun.Client) *skillrun.Cmd { return c.Script(benchSkill, "scripts/sum.py") },
		bare:      []string{systemPython, "-c", strings.TrimSpace(sumProgram)},
		want:      sumOutput,
	}
	pandasSum = program{
		sandboxed: func(c *skillrun.Client) *skillrun.Cmd { return c.Script(benchSkill, "scripts/total.py") },
		bare:      []string{systemPython, "-c", pandasProgram},
		want:      pandasOutput,
	}
)

// systemPython is the Python that sandboxes run on a machine with a system Python.
const systemPython = "/usr/bin/python3"

// hasPython returns an error if the Python to compare with is missing.
func hasPython() error {
	if _, err := os.Stat(systemPython); err != nil {
		return notRun("" + systemPython + " is not installed")
	}
	return nil
}

// requestPatience limits a request that hangs. The time limits of sandboxed programs are
// shorter.
const requestPatience = 10 * time.Minute

// request runs p through a client, from the request to the outcome, and checks the result.
// Output waits for the outcome, so the time includes the sandbox's end and the record.
func (p program) request(ctx context.Context, c *skillrun.Client) error {
	ctx, cancel := context.WithTimeout(ctx, requestPatience)
	defer cancel()
	out, err := p.sandboxed(c).Output(ctx)
	if err != nil {
		if exit := (*skillrun.ExitError)(nil); errors.As(err, &exit) {
			return fmt.Errorf("sandboxed: %w: %s", err, bytes.TrimSpace(exit.Stderr))
		}
		return fmt.Errorf("sandboxed: %w", err)
	}
	return p.check("sandboxed", out)
}

// check compares all of the output. A fast answer that is wrong must not count.
func (p program) check(how string, out []byte) error {
	if string(out) != p.want {
		return fmt.Errorf("%s: it printed %q, not %q", how, out, p.want)
	}
	return nil
}

// bareEnv is the environment of a sandbox. It must be the same, because a Python's
// environment decides where it searches for packages.
var bareEnv = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/nonexistent", "USER=skill", "LANG=C.UTF-8", "TMPDIR=/tmp", "PYTHONDONTWRITEBYTECODE=1"}

// runBare starts p directly, waits for it, and checks its output. It runs without a context: the
// programs end by themselves, and a context costs a goroutine.
func (p program) runBare() error {
	out, err := output(p.bare, bareEnv, p.want != "")
	if err != nil {
		return fmt.Errorf("bare: %w", err)
	}
	return p.check("bare", out)
}

// devNull is opened only once, because opening it does not belong to the baseline.
var devNull = sync.OnceValues(func() (*os.File, error) { return os.OpenFile(os.DevNull, os.O_RDWR, 0) })

// output runs argv with as few system calls as possible, because it is the baseline and
// must not include the overhead of os/exec. If the program fails, the error has its output.
func output(argv, env []string, read bool) ([]byte, error) {
	null, err := devNull()
	if err != nil {
		return nil, err
	}
	// Standard error is dropped: a pipe for it would need another reader.
	files := []uintptr{null.Fd(), null.Fd(), null.Fd()}
	var pipe [2]int
	if read {
		if err := syscall.Pipe2(pipe[:], syscall.O_CLOEXEC); err != nil {
			return nil, err
		}
		defer syscall.Close(pipe[0])
		files[1] = uintptr(pipe[1])
	}
	pid, err := syscall.ForkExec(argv[0], argv, &syscall.ProcAttr{Env: env, Files: files})
	if read {
		syscall.Close(pipe[1])
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", argv[0], err)
	}
	var out []byte
	if read {
		out, err = readAll(pipe[0])
	}
	if werr := waitFor(pid); werr != nil {
		return nil, fmt.Errorf("%s: %w: %s", argv[0], werr, bytes.TrimSpace(out))
	}
	return out, err
}

// waitFor waits for a child, which must exit with 0.
func waitFor(pid int) error {
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(pid, &status, 0, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		break
	}
	switch {
	case status.Signaled():
		return fmt.Errorf("the program was ended by %v", status.Signal())
	case status.ExitStatus() != 0:
		return fmt.Errorf("exit code %d", status.ExitStatus())
	}
	return nil
}

// It reads with plain system calls, because a file in Go's poller takes more of them.
func readAll(fd int) ([]byte, error) {
	var out []byte
	buffer := make([]byte, 4096)
	for {
		n, err := syscall.Read(fd, buffer)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return out, err
		}
		out = append(out, buffer[:n]...)
	}
}

// sameView describes how the sandbox's Python and the bare one differ in where they search
// for packages. Empty: they do not differ.
func sameView(ctx context.Context, c *skillrun.Client) (string, error) {
	inside, err := c.Script(benchSkill, "scripts/view.py").Output(ctx)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, systemPython, "-c", viewProgram)
	cmd.Env = bareEnv
	outside, err := cmd.Output()
	if err != nil {
		return "", err
	}
	if bytes.Equal(inside, outside) {
		return "", nil
	}
	return fmt.Sprintf("the two Pythons search different packages: sandboxed %q, bare %q", inside, outside), nil
}
