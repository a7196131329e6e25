package zygote

import (
	"context"
	"encoding/binary"
	"os"
	"slices"

	"github.com/opencontainers/runc/libcontainer/configs"

	"github.com/skillrun/skillrun/sandbox/internal/pid1"
)

// A Sandbox describes a sandbox to clone.
type Sandbox struct {
	Number    int    // of the sandbox; the answer repeats it
	RootID    uint32 // id of its init on the host; the script has the next one
	OpenFiles int    // RLIMIT_NOFILE of the script
	Executes  bool   // init forks the first process; else a Python zygote does
	TmpBytes  int64  // size of /tmp and of the home directory, each
	TmpFiles  int    // inodes of these
	Rlimits   []configs.Rlimit

	Control *os.File    // init's end of the control socket
	Streams [3]*os.File // of the first process, if init forks it
	Root    []int       // descriptors of the mounts of its root, at the first of Config.Places
	Procs   []*os.File  // cgroup.procs files that init enters
}

// Make has the zygote clone the init of a sandbox. It returns init's pid on the host, and a
// pidfd that the caller closes. The caller still closes the files of s.
func (z *Zygote) Make(ctx context.Context, s Sandbox) (pid, pidfd int, err error) {
	var fds []int
	for _, f := range slices.Concat([]*os.File{s.Control}, s.Streams[:]) {
		fds = append(fds, int(f.Fd()))
	}
	fds = append(fds, s.Root...)
	for _, f := range s.Procs {
		fds = append(fds, int(f.Fd()))
	}
	return z.askProcess(ctx, z.makePacket(s), uint32(s.Number), fds)
}

func (z *Zygote) makePacket(s Sandbox) []byte {
	b := pid1.PacketHeader(pid1.PacketMake, uint32(s.Number), s.RootID-z.config.FirstID, uint32(s.OpenFiles), boolWord(s.Executes),
		uint32(s.TmpFiles), uint32(len(s.Procs)), uint32(len(s.Rlimits)), uint32(len(s.Root)))
	b = binary.LittleEndian.AppendUint64(b, uint64(s.TmpBytes))
	for _, l := range s.Rlimits {
		b = binary.LittleEndian.AppendUint64(b, uint64(l.Type))
		b = binary.LittleEndian.AppendUint64(b, l.Hard)
	}
	return append(b, make([]byte, pid1.MakeBytes-len(b))...)
}

// Spawn has the zygote start a program of a Python zygote (pid1/python_program.c), with env as
// its whole environment. The program gets one end of a socket, and log as its standard error.
// Spawn returns the program's pid on the host, and a pidfd.
func (z *Zygote) Spawn(program string, env []string, theirs, log *os.File) (pid int, pidfd *os.File, err error) {
	b := pid1.PacketHeader(pid1.PacketSpawn, 0, 1, uint32(len(env)))
	b = append(append(b, program...), 0)
	for _, e := range env {
		b = append(append(b, e...), 0)
	}
	pid, fd, err := z.askProcess(context.Background(), b, 0, []int{int(theirs.Fd()), int(log.Fd())})
	if err != nil {
		return 0, nil, err
	}
	return pid, os.NewFile(uintptr(fd), "pidfd"), nil
}
