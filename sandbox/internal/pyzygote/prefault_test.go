package pyzygote_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A waiting child has copied most of the pages that its script will write to, in one call
// or in many. If the kernel can't do that, the child works without it.
func TestForkServerPrefaults(t *testing.T) {
	if _, err := os.Stat("/lib64/ld-linux-x86-64.so.2"); err != nil {
		t.Skipf("children have no fast exit that a zygote could rehearse: not x86_64: %v", err)
	}
	if err := populates(); err != nil {
		t.Skipf("a kernel without MADV_POPULATE_WRITE: %v", err)
	}
	c := newForkTarget(t, publicDir(t), forkServerAlso()...)
	runs := map[string]zygoteRun{}
	for _, kind := range []struct{ name, file, old, new string }{
		{name: "as it is"},
		{"a call each", "libc", `"process_madvise": (440, 440)`, `"process_madvise": (9999, 9999)`},
		{"a kernel without", "prefault", "MADV_POPULATE_WRITE = 23", "MADV_POPULATE_WRITE = 9999"},
		{"a low limit", "prefault", "MAX_PREFAULTED = 4 << 20", "MAX_PREFAULTED = 64 << 10"},
		{"a zygote that may not look", "prefault", `"/proc/%d/pagemap"`, `"/proc/%d/none"`},
		{"another Python's rehearsal", "zygote", `[self.name, "/proc/self/fd/%d" % script]`, `["/usr/bin/python3", "-c", "raise SystemExit(84)"]`},
	} {
		var changes []change
		if kind.old != "" {
			changes = append(changes, change{"forkserver/" + kind.file + ".py", kind.old, kind.new})
		}
		runs[kind.name] = runInSandbox(t, c, changes...)
		t.Logf("%s: %+v", kind.name, runs[kind.name])
	}
	const maxPrefaulted = 4 << 20 // MAX_PREFAULTED of prefault.py
	without := runs["a kernel without"]
	for _, name := range []string{"as it is", "a call each"} {
		if got := runs[name]; got.faults > without.faults/2 {
			t.Errorf("%s: %d faults after it waited, want at most half of %d", name, got.faults, without.faults)
		}
		if got := runs[name]; got.own <= without.own || got.own > without.own+maxPrefaulted {
			t.Errorf("%s: %d bytes of its own, want more than %d and at most %d more", name, got.own, without.own, maxPrefaulted)
		}
		// Pages that it has copied but not written.
		if got := runs[name]; got.same < got.own/4 {
			t.Errorf("%s: of %d bytes of its own %d are as its zygote's, want a quarter", name, got.own, got.same)
		}
	}
	if got, most := runs["a low limit"], without.own+128<<10; got.own > most || got.faults <= runs["as it is"].faults {
		t.Errorf("a low limit: got %+v, want at most %d bytes of its own", got, most)
	}
	if got := runs["a zygote that may not look"]; got.faults <= without.faults/2 {
		t.Errorf("a zygote that may not look: got %+v, want about as without", got)
	}
	// Children then destroy all modules at their end: at least twice as many faults.
	if got := runs["another Python's rehearsal"]; got.faults <= without.faults*3/2 {
		t.Errorf("another Python's rehearsal: got %+v, want no fast exit", got)
	}
}

// A zygoteRun describes a child: its memory while it waited, and its faults afterwards.
type zygoteRun struct {
	own    int // bytes of memory that is not shared
	same   int // of it, in pages as the zygote has them
	faults int // of pages, after it waited
}

func runInSandbox(t *testing.T, c *forkTarget, changes ...change) (r zygoteRun) {
	t.Helper()
	server := startForkServerIn(t, forkServerEnv(), forkServerPython(), forkServerCommon, changes...)
	before := server.endedUse(t)
	child := server.fork(c)
	waiting := useOf(t, child.pid)
	r.own, r.same = ownMemory(t, child.pid, server.cmd.Process.Pid)
	child.assign(forkServerCommand{Argv: []string{server.cmd.Args[0], "-c", "print(2+2)"}})
	if by := child.started(); by != "" {
		t.Errorf("started by %q", by)
	}
	if got := child.finish(""); got != (forkServerResult{stdout: "4\n"}) {
		t.Errorf("got %v", got)
	}
	r.faults = server.endedUse(t).minus(before).faults - waiting.faults
	return r
}

// populates returns an error if the kernel can't prefault a process's pages.
func populates() error {
	b, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Munmap(b) }()
	return unix.Madvise(b, unix.MADV_POPULATE_WRITE)
}

// ownMemory returns how many bytes of a child's writable memory are private, and how many
// of these are in pages with the same content as the zygote's.
func ownMemory(t *testing.T, child, zygote int) (own, same int) {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", child))
	if err != nil {
		t.Fatal(err)
	}
	open := func(pid int, name string) *os.File {
		f, err := os.Open(fmt.Sprintf("/proc/%d/%s", pid, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	pages, mine, zygotes := open(child, "pagemap"), open(child, "mem"), open(zygote, "mem")
	size := int64(os.Getpagesize())
	a, b := make([]byte, size), make([]byte, size)
	for line := range strings.Lines(string(maps)) {
		if !strings.Contains(line, " rw-p ") {
			continue
		}
		var start, end int64
		if _, err := fmt.Sscanf(line, "%x-%x", &start, &end); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		words := make([]byte, (end-start)/size*8)
		if _, err := pages.ReadAt(words, start/size*8); err != nil {
			t.Fatal(err)
		}
		for at := start; at < end; at += size {
			word := binary.NativeEndian.Uint64(words[(at-start)/size*8:])
			if word>>63 == 0 || word>>61&1 == 1 || word>>56&1 == 0 { // absent, of a file, shared
				continue
			}
			own += int(size)
			if _, err := mine.ReadAt(a, at); err != nil {
				t.Fatal(err)
			}
			// The read fails for pages that the zygote lacks.
			if _, err := zygotes.ReadAt(b, at); err == nil && bytes.Equal(a, b) {
				same += int(size)
			}
		}
	}
	return own, same
}
