package sandbox

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Capabilities of the zygotes while they serve. pid1/zygote.c drops all others, and gives the
// reasons for these.
const (
	zygoteEffective = 1<<unix.CAP_SETGID | 1<<unix.CAP_SETUID
	zygotePython    = 1 << unix.CAP_SYS_ADMIN
	zygoteBounding  = zygoteEffective | zygotePython
)

// A zygotePosture is the expected state of a zygote's process in the kernel. A zygote with
// another state is not used: libcontainer makes the sandboxes, and Python programs are
// executed.
type zygotePosture struct {
	id                   uint32 // its uid and gid, on the machine
	effective, permitted uint64
	filters              int
}

func (m *zygote) posture() zygotePosture {
	p := zygotePosture{id: m.host.ids.first, effective: zygoteEffective, permitted: zygoteEffective, filters: 1}
	if m.host.config.PythonZygotes > 0 {
		p.permitted |= zygotePython
	}
	return p
}

func (m *zygote) pythonPosture() zygotePosture {
	return zygotePosture{id: m.host.ids.first, effective: zygotePython, permitted: zygotePython, filters: 2}
}

// check compares p with the kernel's status of a process.
func (p zygotePosture) check(pid int) error {
	status, err := readStatus(strconv.Itoa(pid))
	if err != nil {
		return err
	}
	own, err := ownFilters()
	if err != nil {
		return err
	}
	four := strings.Join(slices.Repeat([]string{fmt.Sprint(p.id)}, 4), "\t")
	set := func(caps uint64) string { return fmt.Sprintf("%016x", caps) }
	return status.compare([]statusLine{
		{"Uid", four}, {"Gid", four},
		{"CapInh", set(0)}, {"CapPrm", set(p.permitted)}, {"CapEff", set(p.effective)}, {"CapBnd", set(zygoteBounding)}, {"CapAmb", set(0)},
		{"NoNewPrivs", "1"}, {"Seccomp", "2"}, {"Seccomp_filters", strconv.Itoa(own + p.filters)}, {"TracerPid", "0"}, {"Threads", "1"},
	})
}
