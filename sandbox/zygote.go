package sandbox

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/skillrun/skillrun/sandbox/internal/pid1"
	"github.com/skillrun/skillrun/sandbox/internal/seccomp"
	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/cgroup"
	"github.com/skillrun/skillrun/sandbox/internal/mount"
	"github.com/skillrun/skillrun/sandbox/internal/preflight"
	"github.com/skillrun/skillrun/sandbox/internal/pseudofs"
)

const (
	zygoteGroup  = "_zygote"        // not a valid Spec.ID
	zygoteAnswer = 10 * time.Second // bound for one answer; the zygote has no other work
	zygoteLate   = 10 * time.Millisecond
)

// zygoteCapabilities are the zygote's first capabilities: SETUID and SETGID to map the ids
// of sandboxes, SYS_ADMIN to unmount /dev/shm and for Python zygotes. pid1/zygote.c drops the
// capabilities that it does not need later. Each sandbox has its own user namespace, in
// which its init begins with every capability.
var zygoteCapabilities = []string{"CAP_SETGID", "CAP_SETUID", "CAP_SYS_ADMIN"}

// A zygote is a libcontainer container whose PID 1 clones sandboxes (pid1/zygote.c). All its
// sandboxes end with it.
type zygote struct {
	host      *Host
	container *libcontainer.Container
	init      *libcontainer.Process
	group     cgroup.Group
	patience  time.Duration // bound for one answer; 0: zygoteAnswer
	mu        sync.Mutex    // one request at a time
	owes      bool          // the answer to the last request is outstanding
	socket    *os.File
	gone      chan struct{}     // closed when PID 1 is gone
	spaces    map[string]string // the zygote's namespaces, by name
	places    []string          // mount points of a sandbox's root
}

// startZygote builds the container and sends the zygote the data that all sandboxes share.
func (h *Host) startZygote() (_ *zygote, err error) {
	m := &zygote{host: h, places: h.roots[""].Places(), group: h.cgroups.Group(h.groupName(), zygoteGroup), gone: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("zygote: %w", err), m.destroy())
		}
	}()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	err = unix.SetNonblock(fds[0], true) // so that the Go runtime polls it
	theirs := os.NewFile(uintptr(fds[1]), "zygote's socket")
	defer theirs.Close()
	if m.socket = os.NewFile(uintptr(fds[0]), "zygote"); err != nil {
		return nil, err
	}
	config := h.zygoteConfig(m.group)
	h.faults.of(true, "").ask(config)
	if m.container, err = libcontainer.Create(h.containers(), zygoteGroup, config); err != nil {
		return nil, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	m.init = &libcontainer.Process{
		Args: []string{"/proc/self/exe", pid1.ZygoteArg}, Env: []string{"HOME=/"}, Cwd: "/",
		Stdin: null, Stdout: null, Stderr: null, ExtraFiles: []*os.File{theirs}, Init: true,
	}
	if err := m.container.Run(m.init); err != nil {
		m.init = nil // no process to wait for
		return nil, err
	}
	go func() {
		defer close(m.gone)
		_, _ = m.init.Wait()
	}()
	// Libcontainer sets the device rules of the zygote's cgroup. On v2 the cgroups of its
	// sandboxes are siblings of that cgroup, so the rules go on the parent.
	if err := h.cgroups.Group(h.groupName()).LimitDevices(); err != nil {
		return nil, err
	}
	if _, err = m.ask(m.begin(), 0, nil); err != nil {
		return m, err
	}
	if err := h.enforce(m.checkPosture); err != nil {
		return m, fmt.Errorf("posture: %w", err)
	}
	m.spaces, err = m.readSpaces()
	return m, err
}

func (m *zygote) checkPosture() error {
	pid, err := m.init.Pid()
	if err != nil {
		return err
	}
	return m.posture().check(pid)
}

// readSpaces reads the zygote's namespaces, which its sandboxes must not share.
func (m *zygote) readSpaces() (map[string]string, error) {
	pid, err := m.init.Pid()
	if err != nil {
		return nil, err
	}
	spaces := map[string]string{}
	for _, n := range namespaces(NetworkNone) {
		name := configs.NsName(n.Type)
		if spaces[name], err = os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, name)); err != nil {
			return nil, err
		}
	}
	return spaces, nil
}

func (h *Host) zygoteConfig(g cgroup.Group) *configs.Config {
	ids := []configs.IDMap{{ContainerID: 0, HostID: int64(h.ids.first), Size: int64(2 * len(h.ids.used))}}
	tmpfs := func(target, options string, flags int) *configs.Mount {
		return &configs.Mount{Source: "tmpfs", Destination: target, Device: "tmpfs", Flags: flags, Data: options}
	}
	c := &configs.Config{
		Version:         specs.Version,
		Rootfs:          h.rootfs(),
		Readonlyfs:      true,
		RootPropagation: unix.MS_PRIVATE | unix.MS_REC,
		Hostname:        hostname,
		Namespaces:      namespaces(NetworkNone),
		UIDMappings:     ids,
		GIDMappings:     ids,
		Capabilities:    &configs.Capabilities{Bounding: zygoteCapabilities, Effective: zygoteCapabilities, Permitted: zygoteCapabilities},
		NoNewPrivileges: true,
		OomScoreAdj:     new(1000),
		Rlimits:         []configs.Rlimit{{Type: unix.RLIMIT_CORE, Hard: preflight.DumpLimit(), Soft: preflight.DumpLimit()}},
		Cgroups:         &cgroups.Cgroup{Path: g.Path, Resources: &cgroups.Resources{Devices: cgroup.DeviceRules()}},
		Devices:         deviceNodes(),
		Mounts: []*configs.Mount{
			// Without masks: over a masked proc the kernel lets no sandbox mount its own.
			{Source: "proc", Destination: "/proc", Device: "proc", Flags: noExec},
			// For the zygote and for Python zygotes. It is read-only.
			tmpfs("/dev", devOptions, unix.MS_NOSUID|unix.MS_NOEXEC|unix.MS_STRICTATIME|unix.MS_RDONLY),
			tmpfs("/dev/shm", "mode=755,size=4k,nr_inodes=2", noExec|unix.MS_RDONLY),
			// Holds the programs of Python zygotes (pid1/python_program.c).
			tmpfs(mount.WorkspaceDir, "mode=755,size=256m,nr_inodes=256", withExec),
		},
	}
	if c.Namespaces.Contains(configs.NEWTIME) {
		c.TimeOffsets = hiddenUptime()
	}
	return c
}

// begin returns the first packet: the filters, the paths to mask and the mount points.
func (m *zygote) begin() []byte {
	f := m.host.filters
	all := [][]byte{f.Init, f.Script, f.Zygote, f.Python}
	var sizes []uint32
	for _, code := range all {
		sizes = append(sizes, uint32(len(code)/seccomp.InstructionSize))
	}
	b := pid1.PacketHeader(pid1.PacketBegin, append(sizes, boolWord(m.host.config.PythonZygotes > 0), uint32(len(maskedPaths)), uint32(len(m.places)))...)
	b = append(b, slices.Concat(all...)...)
	for _, path := range slices.Concat(maskedPaths, m.places) {
		b = append(append(b, path...), 0)
	}
	return b
}

// ask sends one packet and receives its answer: a pidfd, or -1 for the first packet.
func (m *zygote) ask(packet []byte, number uint32, fds []int) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := make([]byte, pid1.MadeBytes)
	if m.owes {
		// An earlier request timed out. The sandbox that it made has ended, since its
		// control socket is closed. Receive its answer now, or it would pass for the
		// answer to this request.
		_ = m.socket.SetDeadline(time.Now().Add(zygoteLate))
		_, got, err := receivePacket(m.socket, b)
		closeAll(got)
		if err != nil {
			return -1, fmt.Errorf("no answer to the last request: %w", err)
		}
		m.owes = false
	}
	_ = m.socket.SetDeadline(time.Now().Add(cmp.Or(m.patience, zygoteAnswer)))
	if err := sendPacket(m.socket, packet, fds); err != nil {
		return -1, err
	}
	n, got, err := receivePacket(m.socket, b)
	if err != nil {
		m.owes = true
		return -1, err
	}
	word := func(i int) uint32 { return binary.LittleEndian.Uint32(b[4*i:]) }
	err = unix.Errno(word(3))
	if n != pid1.MadeBytes || word(0) != pid1.ZygoteMagic || word(1) != uint32(pid1.PacketMade) || word(2) != number || len(got) > 1 {
		err = errors.New("malformed answer")
	}
	switch {
	case err != unix.Errno(0):
		closeAll(got)
		return -1, err
	case len(got) == 0:
		return -1, nil
	}
	return got[0], nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

func sendPacket(f *os.File, packet []byte, fds []int) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	var serr error
	err = conn.Write(func(fd uintptr) bool {
		serr = unix.Sendmsg(int(fd), packet, rights, nil, unix.MSG_NOSIGNAL)
		return serr != unix.EAGAIN
	})
	return errors.Join(err, serr)
}

// receivePacket receives one packet into b and returns its length and its descriptors.
// After an error none of the descriptors stays open.
func receivePacket(f *os.File, b []byte) (n int, fds []int, err error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return 0, nil, err
	}
	oob := make([]byte, unix.CmsgSpace(4*4))
	var oobn int
	var rerr error
	err = conn.Read(func(fd uintptr) bool {
		n, oobn, _, _, rerr = unix.Recvmsg(int(fd), b, oob, unix.MSG_CMSG_CLOEXEC)
		return rerr != unix.EAGAIN
	})
	if err = errors.Join(err, rerr); err != nil {
		return 0, nil, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return 0, nil, err
	}
	for _, m := range messages {
		got, err := unix.ParseUnixRights(&m)
		if err != nil {
			closeAll(fds)
			return 0, nil, err
		}
		fds = append(fds, got...)
	}
	if n == 0 { // end of file; no peer sends an empty packet
		closeAll(fds)
		return 0, nil, errors.New("gone")
	}
	return n, fds, nil
}

// destroy ends the zygote and all its sandboxes, and removes the container.
func (m *zygote) destroy() error {
	if m.socket != nil {
		m.socket.Close()
	}
	if m.container == nil {
		return nil
	}
	if err := m.group.Clear(destroyPatience); err != nil {
		return err
	}
	if m.init != nil {
		<-m.gone
	}
	return m.container.Destroy()
}

// pidOf returns the pid of a pidfd's process, in this process's PID namespace. A negative
// pidfd means that the zygote's answer had none.
func pidOf(pidfd int) (int, error) {
	if pidfd < 0 {
		return 0, errors.New("the zygote's answer has no pidfd")
	}
	text, err := pseudofs.Read(fmt.Sprintf("/proc/self/fdinfo/%d", pidfd))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if pid, ok := strings.CutPrefix(line, "Pid:"); ok {
			n, err := strconv.Atoi(strings.TrimSpace(pid))
			if err == nil && n <= 0 {
				err = errors.New("pidfd: process is gone")
			}
			return n, err
		}
	}
	return 0, errors.New("pidfd: no pid")
}
