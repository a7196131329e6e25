package zygote

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/cgroup"
	"github.com/skillrun/skillrun/sandbox/internal/pid1"
	"github.com/skillrun/skillrun/sandbox/internal/pseudofs"
	"github.com/skillrun/skillrun/sandbox/internal/seccomp"
	"github.com/skillrun/skillrun/sandbox/internal/socket"
)

// Name is the name of the zygote's container and cgroup.
const Name = "_zygote"

const (
	answerPatience  = 10 * time.Second // bound for one answer; the zygote has no other work
	latePatience    = 10 * time.Millisecond
	destroyPatience = 5 * time.Second // bound for the end of all processes
)

// A Config describes a zygote. All fields are required; CoreLimit may be 0.
type Config struct {
	Containers string          // directory of libcontainer's state
	Container  *configs.Config // with Configure's part
	Group      cgroup.Group    // of the container
	Parent     cgroup.Group    // has the container's cgroup and the cgroups of its sandboxes
	FirstID    uint32          // on the host, of root in the zygote's user namespace
	Filters    seccomp.Filters
	Python     bool     // Spawn will be called
	CoreLimit  uint32   // RLIMIT_CORE of the zygote
	Masked     []string // paths of /proc that a sandbox does not see
	Places     []string // mount points of a sandbox's root, at most pid1.MaxPlaces
}

// A Zygote is a running zygote. Its methods may be called from many goroutines.
type Zygote struct {
	config    Config
	container *libcontainer.Container
	init      *libcontainer.Process
	pid       int // of the host
	gone      chan struct{}
	spaces    map[string]string
	turn      chan struct{} // holds a token while a request runs: one at a time
	owes      bool          // the answer to the last request is outstanding
	socket    *os.File
}

// Start builds the container and sends the zygote the data that all sandboxes share. The caller
// calls CheckPosture before it uses the zygote, and Destroy in the end.
func Start(c Config) (_ *Zygote, err error) {
	z := &Zygote{config: c, gone: make(chan struct{}), turn: make(chan struct{}, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(err, z.Destroy())
		}
	}()
	var theirs *os.File
	if z.socket, theirs, err = socket.Pair(unix.SOCK_SEQPACKET, "zygote"); err != nil {
		return nil, err
	}
	defer theirs.Close()
	if err := z.run(theirs); err != nil {
		return nil, err
	}
	// Libcontainer sets the device rules of the zygote's cgroup. On v2 the cgroups of its
	// sandboxes are siblings of that cgroup, so the rules go on the parent.
	if err := c.Parent.LimitDevices(); err != nil {
		return nil, err
	}
	if _, err := z.ask(context.Background(), z.begin(), 0, nil); err != nil {
		return nil, err
	}
	z.spaces, err = z.readSpaces()
	return z, err
}

// run has libcontainer build the container and execute the zygote in it.
func (z *Zygote) run(theirs *os.File) (err error) {
	if z.container, err = libcontainer.Create(z.config.Containers, Name, z.config.Container); err != nil {
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	p := &libcontainer.Process{
		Args: []string{"/proc/self/exe", pid1.ZygoteArg}, Env: []string{"HOME=/"}, Cwd: "/",
		Stdin: null, Stdout: null, Stderr: null, ExtraFiles: []*os.File{theirs}, Init: true,
	}
	if err := z.container.Run(p); err != nil {
		return err
	}
	z.init = p // a process to wait for
	go func() {
		defer close(z.gone)
		_, _ = p.Wait()
	}()
	z.pid, err = p.Pid()
	return err
}

// readSpaces reads the zygote's namespaces.
func (z *Zygote) readSpaces() (map[string]string, error) {
	spaces := map[string]string{}
	for _, n := range z.config.Container.Namespaces {
		name := configs.NsName(n.Type)
		link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", z.pid, name))
		if err != nil {
			return nil, err
		}
		spaces[name] = link
	}
	return spaces, nil
}

// PID returns the zygote's pid on the host.
func (z *Zygote) PID() int { return z.pid }

// Gone is closed when the zygote has ended.
func (z *Zygote) Gone() <-chan struct{} { return z.gone }

// Group returns the zygote's cgroup.
func (z *Zygote) Group() cgroup.Group { return z.config.Group }

// Spaces returns the zygote's namespaces by name, as texts such as net:[4026531840]
// (namespaces(7)). No sandbox of the zygote may share one. The caller doesn't change the map.
func (z *Zygote) Spaces() map[string]string { return z.spaces }

// Destroy ends the zygote and all its sandboxes, and removes the container.
func (z *Zygote) Destroy() error {
	if z.socket != nil {
		z.socket.Close()
	}
	if z.container == nil {
		return nil
	}
	if err := z.config.Group.Clear(destroyPatience); err != nil {
		return err
	}
	if z.init != nil {
		<-z.gone
	}
	return z.container.Destroy()
}

// begin returns the first packet: the filters, the paths to mask and the mount points.
func (z *Zygote) begin() []byte {
	c := z.config
	all := [][]byte{c.Filters.Init, c.Filters.Script, c.Filters.Zygote, c.Filters.Python}
	var sizes []uint32
	for _, code := range all {
		sizes = append(sizes, uint32(len(code)/seccomp.InstructionSize))
	}
	b := pid1.PacketHeader(pid1.PacketBegin, append(sizes, boolWord(c.Python), c.CoreLimit, uint32(len(c.Masked)), uint32(len(c.Places)))...)
	b = append(b, slices.Concat(all...)...)
	for _, path := range slices.Concat(c.Masked, c.Places) {
		b = append(append(b, path...), 0)
	}
	return b
}

// ask sends one packet and receives its answer: a pidfd, or -1 for the first packet. It waits for
// earlier requests, and then for answerPatience. If ctx ends first, its cause is the error.
func (z *Zygote) ask(ctx context.Context, packet []byte, number uint32, fds []int) (int, error) {
	select {
	case z.turn <- struct{}{}:
	case <-ctx.Done():
		return -1, context.Cause(ctx)
	}
	defer func() { <-z.turn }()
	b := make([]byte, pid1.MadeBytes)
	if z.owes {
		// An earlier request timed out. The sandbox that it made has ended, since its
		// control socket is closed. Receive its answer now, or it would pass for the
		// answer to this request.
		_ = z.socket.SetReadDeadline(time.Now().Add(latePatience))
		_, got, err := socket.Receive(z.socket, b)
		socket.CloseAll(got)
		if err != nil {
			return -1, fmt.Errorf("no answer to the last request: %w", err)
		}
		z.owes = false
	}
	_ = z.socket.SetDeadline(time.Now().Add(answerPatience))
	defer z.endReadWith(ctx)()
	if err := socket.Send(z.socket, packet, fds); err != nil {
		return -1, err
	}
	n, got, err := socket.Receive(z.socket, b)
	if err != nil {
		z.owes = true
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return -1, err
	}
	word := func(i int) uint32 { return binary.LittleEndian.Uint32(b[4*i:]) }
	err = unix.Errno(word(3))
	if n != pid1.MadeBytes || word(0) != pid1.ZygoteMagic || word(1) != uint32(pid1.PacketMade) || word(2) != number || len(got) > 1 {
		err = errors.New("malformed answer")
	}
	switch {
	case err != unix.Errno(0):
		socket.CloseAll(got)
		return -1, err
	case len(got) == 0:
		return -1, nil
	}
	return got[0], nil
}

// endReadWith makes reads of the socket fail from the end of ctx on. The caller calls the returned
// func before it gives up its turn, so that the next request's reads don't fail.
func (z *Zygote) endReadWith(ctx context.Context) (stop func()) {
	done := make(chan struct{})
	unhook := context.AfterFunc(ctx, func() {
		defer close(done)
		_ = z.socket.SetReadDeadline(time.Unix(1, 0)) // any time in the past
	})
	return func() {
		if !unhook() {
			<-done
		}
	}
}

// askProcess is ask for a packet whose answer is a process. The caller closes pidfd.
func (z *Zygote) askProcess(ctx context.Context, packet []byte, number uint32, fds []int) (pid, pidfd int, err error) {
	if pidfd, err = z.ask(ctx, packet, number, fds); err != nil {
		return 0, -1, err
	}
	if pidfd < 0 {
		return 0, -1, errors.New("the zygote's answer has no pidfd")
	}
	if pid, err = pseudofs.PIDOf(pidfd); err != nil {
		unix.Close(pidfd)
		return 0, -1, err
	}
	return pid, pidfd, nil
}

func boolWord(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}
