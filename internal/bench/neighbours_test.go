package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The test binary is also the process of a neighbour's clients.
func TestMain(m *testing.M) {
	if !slices.Equal(os.Args[1:], []string{"bench", "neighbour"}) {
		os.Exit(m.Run())
	}
	if err := Neighbour(context.Background(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A neighbour acts in a process with the lowest priority and a separate session until it is stopped, and its
// unexpected error is reported.
func TestNeighbourProcess(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir := t.TempDir()
	log := fmt.Sprintf("msg=listening network=tcp address=%s\n", l.Addr())
	if err := os.WriteFile(filepath.Join(dir, "log"), []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &run{Config: Config{Self: os.Args[0]}, ctx: t.Context()}
	end, err := r.moveIn(neighbourTask{Row: "neighbour-handshakes-p99", Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept() // the first handshake
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	peer := childOf(t, os.Getpid())
	nice, err := syscall.Getpriority(syscall.PRIO_PROCESS, peer)
	if err != nil || 20-nice != lowest { // the system call returns 20 - nice, see getpriority(2)
		t.Errorf("got the priority %d (%v), want %d", 20-nice, err, lowest)
	}
	if group, err := os.ReadFile(fmt.Sprintf("/proc/%d/autogroup", peer)); err == nil && !strings.HasSuffix(string(group), fmt.Sprintf(" nice %d\n", lowest)) {
		t.Errorf("got the scheduler's group %q, want nice %d", group, lowest)
	}
	if acts, err := end(); err != nil || acts < 1 {
		t.Errorf("got %d acts and the error %v, want at least 1", acts, err)
	}

	none := filepath.Join(dir, "none")
	if _, err := r.moveIn(neighbourTask{Row: "true-p50", Dir: none}); err == nil || !strings.Contains(err.Error(), `no neighbour has the row "true-p50"`) {
		t.Errorf("an unknown row: got the error %v", err)
	}
	if end, err = r.moveIn(neighbourTask{Row: "neighbour-churn-p99", Dir: none}); err != nil {
		t.Fatal(err)
	}
	// It ends by itself: end would stop it before the error.
	if err := unix.Waitid(unix.P_PID, childOf(t, os.Getpid()), nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Errorf("waitid: %v", err)
	}
	if _, err := end(); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("an unexpected error: got %v, want that there is no such file", err)
	}
}

// childOf returns the only child of a process.
func childOf(t *testing.T, pid int) int {
	t.Helper()
	parents, err := parentsOf()
	if err != nil {
		t.Fatal(err)
	}
	children := descendants(pid, parents)
	if len(children) != 1 {
		t.Fatalf("got the children %v, want one", children)
	}
	return children[0]
}

// A row has a figure, or an error that names the cause.
func TestBesideNeighbour(t *testing.T) {
	broken := errors.New("boom")
	for _, tt := range []struct {
		name   string
		slices []error // their errors, alone and beside in turns
		moveIn error
		end    error
		want   string // "" for a figure
	}{
		{"measured", []error{nil, nil, nil, nil}, nil, nil, ""},
		{"no process", []error{nil}, broken, nil, "the neighbour: boom"},
		{"an unexpected answer", []error{nil, nil}, nil, broken, "the neighbour: boom"},
		{"the measured tenant fails alone", []error{nil, nil, broken}, nil, nil, "the measured tenant, alone: boom"},
		{"the measured tenant fails", []error{nil, broken}, nil, nil, "the measured tenant, beside its neighbour: boom"},
	} {
		r := &run{ctx: t.Context(), report: &Report{}, scale: scale{slices: 2}}
		row := ratioAtMost(2).row("x", "x", "ms")
		next := 0
		slice := func() (loaded, error) {
			next++
			return loaded{times: []float64{1}}, tt.slices[next-1]
		}
		_, err := r.beside(neighbour{row: "x"}, &row, slice, func() (func() (int, error), error) {
			return func() (int, error) { return 3, tt.end }, tt.moveIn
		})
		switch {
		case tt.want == "" && (err != nil || row.Ratio == nil || !strings.HasPrefix(row.Note, "the neighbour began ")):
			t.Errorf("%s: got the error %v, ratio %v and note %q, want figures", tt.name, err, row.Ratio, row.Note)
		case tt.want != "" && (err == nil || err.Error() != tt.want || row.Value != nil):
			t.Errorf("%s: got the error %v and the value %v, want the error %q", tt.name, err, row.Value, tt.want)
		}
	}
}
