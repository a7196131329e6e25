package netdev

import (
	"fmt"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// own is the network namespace of this process. It stays open.
var own = sync.OnceValues(func() (*os.File, error) { return os.Open("/proc/self/ns/net") })

// In runs f in a network namespace, on a thread that is locked until f returns. Sockets and devices
// that f opens stay in that namespace. A goroutine that f starts runs outside of the namespace.
func In(namespace *os.File, f func() error) error {
	home, err := own()
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	// A new goroutine, because setns(2) changes only the calling thread. If the thread can't return, it must end, and
	// the caller's goroutine must not.
	go func() {
		runtime.LockOSThread()
		if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			runtime.UnlockOSThread()
			done <- fmt.Errorf("enter the network namespace: %w", err)
			return
		}
		err := f()
		// A thread that can't return ends with this goroutine, because it stays locked.
		if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}
