package pyzygote

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/preflight"
	"github.com/skillrun/skillrun/sandbox/internal/pseudofs"
)

// A namespace is one that a child of a Python zygote enters.
type namespace struct {
	name string // in /proc/PID/ns
	kind int    // CLONE_NEW..., for setns(2)
}

// entered returns the namespaces that a child enters, in this order: it enters the PID
// namespace by the fork, and the user namespace gives it the right to enter the others.
func entered() []namespace {
	all := []namespace{
		{"pid", unix.CLONE_NEWPID}, {"user", unix.CLONE_NEWUSER}, {"mnt", unix.CLONE_NEWNS}, {"net", unix.CLONE_NEWNET},
		{"ipc", unix.CLONE_NEWIPC}, {"uts", unix.CLONE_NEWUTS}, {"cgroup", unix.CLONE_NEWCGROUP},
	}
	if preflight.TimeNamespaces() {
		all = append(all, namespace{"time", unix.CLONE_NEWTIME})
	}
	return all
}

// OpenNamespaces opens the namespaces of a sandbox's init for a child, and returns their kinds
// (unix.CLONE_NEWPID first). A Python zygote may not open them: the permission that it would
// need also lets it read init's memory (namespaces(7)). The caller closes the files.
func OpenNamespaces(pid int) (files []*os.File, kinds []int, err error) {
	for _, n := range entered() {
		f, err := pseudofs.Open(fmt.Sprintf("/proc/%d/ns/%s", pid, n.name), unix.O_RDONLY)
		if err != nil {
			for _, f := range files {
				f.Close()
			}
			return nil, nil, err
		}
		files, kinds = append(files, f), append(kinds, n.kind)
	}
	return files, kinds, nil
}
