package zygote

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/pseudofs"
)

// Capabilities of the zygotes while they serve. pid1/zygote.c drops all others, and gives the
// reasons for these.
const (
	zygoteEffective = 1<<unix.CAP_SETGID | 1<<unix.CAP_SETUID
	zygotePython    = 1 << unix.CAP_SYS_ADMIN
	zygoteBounding  = zygoteEffective | zygotePython
)

// A posture is the expected state of a zygote's process in the kernel.
type posture struct {
	id                   uint32 // its uid and gid, on the machine
	effective, permitted uint64 // sets of capabilities, by bit (capabilities(7))
	filters              int    // number of the daemon's filters on the process
}

// CheckPosture compares the zygote's state in the kernel with the expected one. The caller
// destroys a zygote with another state: libcontainer then makes the sandboxes.
func (z *Zygote) CheckPosture() error {
	p := posture{id: z.config.FirstID, effective: zygoteEffective, permitted: zygoteEffective, filters: 1}
	if z.config.Python {
		p.permitted |= zygotePython
	}
	return p.check(z.pid)
}

// CheckPython does the same for the process of a Python zygote, which Spawn started. The
// caller ends a Python zygote with another state: Python programs are then executed.
func (z *Zygote) CheckPython(pid int) error {
	p := posture{id: z.config.FirstID, effective: zygotePython, permitted: zygotePython, filters: 2}
	return p.check(pid)
}

// check compares p with the kernel's status of a process.
func (p posture) check(pid int) error {
	status, err := pseudofs.ReadStatus(strconv.Itoa(pid))
	if err != nil {
		return err
	}
	own, err := pseudofs.OwnFilters()
	if err != nil {
		return err
	}
	four := strings.Join(slices.Repeat([]string{fmt.Sprint(p.id)}, 4), "\t")
	set := func(caps uint64) string { return fmt.Sprintf("%016x", caps) }
	return status.Compare([][2]string{
		{"Uid", four}, {"Gid", four},
		{"CapInh", set(0)}, {"CapPrm", set(p.permitted)}, {"CapEff", set(p.effective)},
		{"CapBnd", set(zygoteBounding)}, {"CapAmb", set(0)},
		{"NoNewPrivs", "1"}, {"Seccomp", "2"}, {"Seccomp_filters", strconv.Itoa(own + p.filters)},
		{"TracerPid", "0"}, {"Threads", "1"},
	})
}
