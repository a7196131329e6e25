package bench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// prewarmedMemory measures the memory of an idle daemon's prewarmed sandboxes. A page that
// several processes share counts in part for each of them (PSS, proc_pid_smaps(5)). The
// kernel's own memory for the sandboxes is not included.
func prewarmedMemory(r *run, rows rowSet) error {
	return errors.Join(
		r.prewarmed(rows["memory-prewarmed"], trueProgram, "without"),
		r.prewarmed(rows["memory-prewarmed-python"], sum, "with"))
}

// prewarmed fills one row: the memory of the sandboxes that the daemon has prewarmed after
// requests for p. python is "with" or "without". The requests show the daemon which
// sandboxes to prewarm; after the pause they have ended.
func (r *run) prewarmed(row *Row, p program, python string) error {
	d, err := r.startNew("prewarmed", "")
	if err != nil {
		return err
	}
	const requests, width = 40, 8
	err = r.each(requests, width, func(ctx context.Context, _ int) error { return p.request(ctx, d.client) })
	if err == nil {
		err = r.pause(r.scale.toIdle)
	}
	var waiting []standing
	if err == nil {
		waiting, err = standingBeneath(d.pid())
	}
	if err := errors.Join(err, d.stop()); err != nil {
		return err
	}
	waiting = slices.DeleteFunc(waiting, func(s standing) bool { return s.python != (python == "with") })
	if len(waiting) == 0 {
		row.NotRun = "the idle daemon has no prewarmed sandbox " + python + " a Python"
		return nil
	}
	var sizes []float64
	for _, s := range waiting {
		sizes = append(sizes, float64(s.bytes)/(1<<20))
	}
	row.set(median(sizes), len(sizes))
	return nil
}

// A standing is a sandbox that waits for a program. bytes is the sum over its processes;
// python says that one of them is a Python.
type standing struct {
	bytes  int64
	python bool
}

// standingBeneath returns the waiting sandboxes of a daemon. It groups the daemon's descendants
// by PID namespace. The daemon's own namespace is left out, and so is a zygote's: a process in it
// is the parent of a process in another namespace. /proc is read while processes start and end,
// so a process that is gone is skipped.
func standingBeneath(daemon int) ([]standing, error) {
	own, err := pidNamespace(daemon)
	if err != nil {
		return nil, err
	}
	parents, err := parentsOf()
	if err != nil {
		return nil, err
	}
	spaces, zygotes := map[string]standing{}, map[string]bool{own: true}
	for _, pid := range descendants(daemon, parents) {
		space, err := pidNamespace(pid)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has ended
		}
		if err != nil {
			return nil, err
		}
		n, err := proportionalBytes(pid)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)) // fails for a process that is ending
		s := spaces[space]
		s.bytes += n
		s.python = s.python || strings.HasPrefix(filepath.Base(exe), "python")
		spaces[space] = s
		if above, err := pidNamespace(parents[pid]); err == nil && above != space {
			zygotes[above] = true
		}
	}
	var waiting []standing
	for space, s := range spaces {
		if !zygotes[space] {
			waiting = append(waiting, s)
		}
	}
	return waiting, nil
}

// pidNamespace is a name such as "pid:[4026531836]". It fails with ENOENT for a process that has
// ended (namespaces(7)).
func pidNamespace(pid int) (string, error) { return os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid)) }

// descendants returns the processes that a process started, directly or through others. parents
// is a snapshot (parentsOf); a process whose parent has ended is not among them.
func descendants(of int, parents map[int]int) []int {
	var found []int
	for next := []int{of}; len(next) > 0; next = next[1:] {
		for pid, parent := range parents {
			if parent == next[0] {
				found, next = append(found, pid), append(next, pid)
			}
		}
	}
	slices.Sort(found)
	return found
}

// parentsOf returns the parent of every process. Processes that end during the read are left out.
func parentsOf() (map[int]int, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	parents := map[int]int{}
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // the process has ended
		}
		pid, parent, err := parentIn(string(data))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		parents[pid] = parent
	}
	return parents, nil
}

// parentIn parses a line of /proc/<pid>/stat: "pid (name) state ppid ...". The name may
// have any characters, see proc(5).
func parentIn(stat string) (pid, parent int, err error) {
	open, end := strings.IndexByte(stat, '('), strings.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return 0, 0, errors.New("the line has no name")
	}
	if pid, err = strconv.Atoi(strings.TrimSpace(stat[:open])); err != nil {
		return 0, 0, err
	}
	var state string
	_, err = fmt.Sscan(stat[end+1:], &state, &parent)
	return pid, parent, err
}
