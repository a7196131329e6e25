package sandbox

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/pseudofs"
)

// TestRootOwnsNoSandbox starts a script that keeps signals pending. The kernel charges them, like
// instances of inotify, to the owners of the script's user namespaces. /proc/self/status has the
// number of this process's user, root.
func TestRootOwnsNoSandbox(t *testing.T) { eachMaker(t, testRootOwnsNoSandbox) }

func testRootOwnsNoSandbox(t *testing.T, h *Host) {
	before := pendingSignals(t)
	k := startTalk(t, h, Spec{Program: command("python3", "-c", `
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGRTMIN})
for _ in range(200): os.kill(os.getpid(), signal.SIGRTMIN)
print("pending", flush=True)
sys.stdin.read(1)`)}, nil)
	k.line("pending\n")
	if got := pendingSignals(t); got > before+100 { // a few may be of other processes
		t.Errorf("root has %d pending signals, want about %d as before the script", got, before)
	}
	if owner := ownerBelow(t, k.p.sandbox.userns); owner < h.ids.first || owner >= h.ids.first+uint32(2*len(h.ids.used)) {
		t.Errorf("user %d owns the sandbox, want one from %d on", owner, h.ids.first)
	}
	if _, err := k.in.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	if exit := k.wait(); exit.End != Exited || exit.Code != 0 {
		t.Errorf("got %+v", exit)
	}
}

// pendingSignals returns the number of pending signals of this process's user (SigQ, proc(5)).
func pendingSignals(t *testing.T) (n int) {
	t.Helper()
	text, err := pseudofs.Read("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(text, "\nSigQ:")
	if _, err := fmt.Sscanf(rest, "%d/", &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// ownerBelow returns the owner of the ancestor of a user namespace that is a child of this process's own namespace
// (ioctl_ns(2)).
func ownerBelow(t *testing.T, ns *os.File) uint32 {
	t.Helper()
	own, err := os.Stat("/proc/self/ns/user")
	if err != nil {
		t.Fatal(err)
	}
	for {
		fd, err := unix.IoctlRetInt(int(ns.Fd()), unix.NS_GET_PARENT)
		if err != nil {
			t.Fatal(err)
		}
		parent := os.NewFile(uintptr(fd), "user namespace")
		defer parent.Close()
		info, err := parent.Stat()
		if err != nil {
			t.Fatal(err)
		}
		if os.SameFile(info, own) {
			owner, err := unix.IoctlGetInt(int(ns.Fd()), unix.NS_GET_OWNER_UID)
			if err != nil {
				t.Fatal(err)
			}
			return uint32(owner)
		}
		ns = parent
	}
}
