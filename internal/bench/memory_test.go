package bench

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
)

func TestParentIn(t *testing.T) {
	tests := []struct {
		stat        string
		pid, parent int
		ok          bool
	}{
		{"12 (sh) S 7 12 12 0", 12, 7, true},
		{"12 (a) b) (c) R 7 12", 12, 7, true},
		{"12 sh S 7", 0, 0, false},
		{"12 (sh)", 0, 0, false},
		{"", 0, 0, false},
	}
	for _, test := range tests {
		pid, parent, err := parentIn(test.stat)
		if ok := err == nil; ok != test.ok || ok && (pid != test.pid || parent != test.parent) {
			t.Errorf("%q: got %d, %d, %v, want %d, %d", test.stat, pid, parent, err, test.pid, test.parent)
		}
	}
}

// A child and its child are found, and their memory can be read.
func TestDescendants(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", `sh -c 'echo $$; read x'; true`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 16)); err != nil { // the inner process runs
		t.Fatal(err)
	}
	parents, err := parentsOf()
	if err != nil {
		t.Fatal(err)
	}
	beneath := descendants(cmd.Process.Pid, parents)
	if len(beneath) != 1 {
		t.Errorf("below the shell: got %v, want one process", beneath)
	}
	all := descendants(os.Getpid(), parents)
	if !slices.Contains(all, cmd.Process.Pid) || len(beneath) == 1 && !slices.Contains(all, beneath[0]) {
		t.Errorf("below this test: got %v, want %d and %v in it", all, cmd.Process.Pid, beneath)
	}
	for name, read := range map[string]func(int) (int64, error){
		"held": heldBytes, "resident": residentBytes, "peak": peakBytes, "proportional": proportionalBytes,
	} {
		if n, err := read(cmd.Process.Pid); err != nil || n <= 0 || n > 1<<30 {
			t.Errorf("%s memory of a shell: got %d, %v", name, n, err)
		}
	}
	in.Close()
	io.Copy(io.Discard, out)
	cmd.Wait()
	if n, err := residentBytes(cmd.Process.Pid); err == nil {
		t.Errorf("memory of a process that has ended: got %d, want an error", n)
	}
}

// forgetPeak resets the peak to the current resident memory.
func TestForgetPeak(t *testing.T) {
	const size = 64 << 20
	ballast, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < size; i += 4096 {
		ballast[i] = 1
	}
	before, err := peakBytes(os.Getpid())
	if err != nil || before < size {
		t.Errorf("peak: got %d, %v, want at least %d", before, err, size)
	}
	if err := errors.Join(syscall.Munmap(ballast), forgetPeak(os.Getpid())); err != nil {
		t.Fatal(err)
	}
	after, err := peakBytes(os.Getpid())
	if err != nil || after > before-size/2 {
		t.Errorf("peak after forgetPeak: got %d, %v, want less than %d", after, err, before-size/2)
	}
}

// standingBeneath finds the processes that wait in new PID namespaces, and not the makers of
// these namespaces.
func TestStandingBeneath(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("pid namespaces need root")
	}
	// The shell stands for a daemon, the outer unshare's child for a zygote, and the
	// children of the two inner ones for waiting sandboxes. Each prints when it waits.
	cmd := exec.Command("/bin/sh", "-c", `unshare --fork --pid --kill-child sh -c '
		for i in 1 2; do unshare --fork --pid --kill-child sh -c "echo ready; read x" <&3 & done; wait' 3<&0; true`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("ready\n")*2)); err != nil {
		t.Fatal(err)
	}
	waiting, err := standingBeneath(cmd.Process.Pid)
	if err != nil || len(waiting) != 2 {
		t.Errorf("got %v, %v, want two", waiting, err)
	}
	for _, s := range waiting {
		if s.bytes <= 0 || s.bytes > 64<<20 || s.python {
			t.Errorf("got %+v, want the memory of a shell, and no Python", s)
		}
	}
	in.Close()
	io.Copy(io.Discard, out)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
