package bench

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	skillrun "github.com/skillrun/skillrun/clients/go"
)

// A carrier is a way in which the network's script reaches the servers. run returns the numbers that the
// script prints; nil: it can't be run, and broken says why. broken is also the failure in the last turns, failed the
// number of runs in them that failed and were repeated, and spent the time of all runs in them.
type carrier struct {
	name   string
	run    func(args ...string) ([]float64, error)
	broken error
	failed int
	spent  time.Duration
}

// peerTries is how often a peer may try a run. pasta of Debian 12 resets some of the connections that send 256 MiB.
const peerTries = 4

// peerPatience is how long the runs of a peer may take in the turns of a row. After that, and at least one run that
// counts, the peer leaves out the other turns. pasta of Debian 12 drops what a socket does not take at once: sending
// 256 MiB takes up to 20 seconds, because the sender waits for retransmissions.
const peerPatience = 45 * time.Second

// try is run. A peer that fails tries again.
func (c *carrier) try(peer bool, args ...string) (took []float64, err error) {
	began := time.Now()
	defer func() { c.spent += time.Since(began) }()
	took, err = c.run(args...)
	for tries := 1; peer && err != nil && tries < peerTries; tries++ {
		c.failed++
		took, err = c.run(args...)
	}
	return took, err
}

// bareIn runs the script without a sandbox in a namespace.
func bareIn(n *namespace) func(args ...string) ([]float64, error) {
	return func(args ...string) ([]float64, error) {
		var out []byte
		err := n.do(func() (err error) {
			out, err = output(append([]string{systemPython, "-c", networkProgram}, args...), bareEnv, true)
			return err
		})
		if err != nil {
			return nil, err
		}
		return numbers(out)
	}
}

// sandboxedIn runs the script in a sandbox with a network.
func (r *run) sandboxedIn(c *skillrun.Client) func(args ...string) ([]float64, error) {
	return func(args ...string) ([]float64, error) {
		cmd := c.Script(networkSkill, "scripts/network.py", args...)
		cmd.Limits.WallTime = requestPatience
		out, err := cmd.Output(r.ctx)
		if err != nil {
			exit := (*skillrun.ExitError)(nil)
			if errors.As(err, &exit) {
				err = fmt.Errorf("%w: %s", err, exit.Stderr)
			}
			return nil, fault("sandboxed", err)
		}
		return numbers(out)
	}
}

// numbers parses lines with one number each.
func numbers(out []byte) (all []float64, err error) {
	for word := range strings.FieldsSeq(string(out)) {
		n, err := strconv.ParseFloat(word, 64)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	if len(all) == 0 {
		return nil, errors.New("the script printed no number")
	}
	return all, nil
}

// An attacher connects a namespace to the machine's network, and returns when it can be used. detach ends
// it.
type attacher func(r *run, machine, n *namespace) (detach func() error, err error)

// attachers are the other programs that give a namespace a network without a bridge. Neither has rules.
var attachers = []struct {
	name   string
	attach attacher
}{{"pasta", attachPasta}, {"slirp4netns", attachSlirp}}

// attachPasta starts pasta, which goes into the background when the network is ready. --no-map-gw makes
// the gateway an ordinary address: by default pasta maps it to the machine's loopback.
func attachPasta(r *run, machine, n *namespace) (func() error, error) {
	pidFile := filepath.Join(r.dir, "pasta.pid")
	cmd := exec.Command("pasta", "--config-net", "--netns-only", "--runas", "0:0", "--quiet", "--mtu", "65520", "--no-map-gw",
		"-t", "none", "-u", "none", "-T", "none", "-U", "none", "--pid", pidFile, "--netns", "/proc/self/fd/3")
	cmd.ExtraFiles = []*os.File{n.file} // number 3
	if err := machine.run(cmd); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(pidFile)
	if err != nil {
		return nil, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", pidFile, err)
	}
	return func() error { return end(pid) }, nil
}

// end ends a process that is no child, and waits for its end.
func end(pid int) error {
	// A pidfd names this process even if its number is given to another one (pidfd_open(2)).
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(process)
	if err := unix.PidfdSendSignal(process, unix.SIGTERM, nil, 0); err != nil {
		return err
	}
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}, int(stopPatience.Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR):
		case err == nil && n == 0:
			return fmt.Errorf("process %d does not end", pid)
		default:
			return err
		}
	}
}

// attachSlirp starts slirp4netns, which writes to a pipe when the network is ready.
func attachSlirp(_ *run, machine, n *namespace) (func() error, error) {
	ready, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer ready.Close()
	cmd := exec.Command("slirp4netns", "--configure", "--mtu=65520", "--netns-type=path", "--ready-fd=4", "/proc/self/fd/3", "tap0")
	cmd.ExtraFiles = []*os.File{n.file, theirs} // numbers 3 and 4
	err = machine.do(cmd.Start)
	theirs.Close()
	if err != nil {
		return nil, err
	}
	detach := func() error {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait() // it reports the signal
		return nil
	}
	ready.SetReadDeadline(time.Now().Add(startPatience))
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		return nil, errors.Join(fault("slirp4netns", err), detach())
	}
	return detach, nil
}

// attached makes a namespace with the network of a. end removes both.
func attached(r *run, machine *namespace, a attacher) (n *namespace, end func() error, err error) {
	if n, err = newNamespace(); err != nil {
		return nil, nil, err
	}
	detach, err := a(r, machine, n)
	if err != nil {
		n.close()
		return nil, nil, err
	}
	return n, func() error { n.close(); return detach() }, nil
}
