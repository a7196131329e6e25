package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/mcp"
	"github.com/skillrun/skillrun/internal/session"
)

// A takeover replaces a daemon without a pause: the next daemon starts while the earlier daemon serves, takes
// over its sockets and its state, and then serves. The earlier daemon lets its executions end, and exits.
//
// Theory of operation. SIGUSR2 makes the daemon start its program again, from the path of its binary and with
// the same arguments. So the next daemon can be another version and can have another configuration. The next
// daemon inherits the listening sockets and three socket pairs: over two of them the daemons call each other
// (takeover_calls.go). Over the third one the earlier daemon forwards calls of its clients (server.HandOver).
//
//	earlier                                   next
//	  | starts ------------------------------> | opens everything that two daemons can have open: sandboxes,
//	  | serves                                 | skills, packages, images; probes the boundaries
//	  | <----------------------------- Await --|
//	  | stops accepting; asks clients to leave |
//	  | lets calls that still come wait        |
//	  | hands over record, sessions, audit log |
//	  |-- executions that have not ended ----> | opens them; the earlier daemon still does
//	  | <--------------------------- Serving --| accepts connections, which have waited in the kernel
//	  |-- calls that waited -----------------> | answers them
//	  | runs its executions to their ends      | asks the earlier one to cancel and to signal them
//	  |-- Started, Released, Ended ----------> |
//	  | exits                                  | adopts the state that the earlier daemon leaves
//
// At most one daemon accepts executions at any moment. If the next daemon fails before Serving, the earlier
// daemon takes its state back and serves again. If one daemon dies, the kernel closes its end of the socket
// pairs, so the other daemon notices the death as the end of its connections.
//
// takeover_earlier.go has the side of the earlier daemon, takeover_next.go the side of the next daemon.

// takeoverVar is the environment variable that tells a daemon to take over. Its value is the number of inherited
// sockets, and keptByStarter if systemd or another starter of the first daemon keeps the sockets open.
const takeoverVar = "_SKILLRUN_TAKEOVER"

// keptByStarter follows the number in takeoverVar: the sockets stay open when both daemons have ended.
const keptByStarter = "kept"

// File descriptors of the next daemon. They begin at 3, after standard input, output and error.
const (
	toEarlier   = 3 // the next daemon calls the earlier one
	fromEarlier = 4 // the earlier daemon calls the next one
	fromClients = 5 // the earlier daemon forwards calls of its clients
	stateLock   = 6 // the file with the lock of state_dir: both daemons hold the lock, so no third one can come between them
	firstSocket = 7 // the first of the listening sockets
)

// A handedOver lists the work that goes on in the earlier daemon.
type handedOver struct {
	Executions []executor.Inherited // the executions that have not ended
	Sessions   []session.Held       // the sessions that these executions may change
	Agents     []mcp.HandedSession  // the sessions of agents over HTTP
	OwnSockets []bool               // listener.own of each socket
}

// Calls of the earlier daemon.
const (
	callAwait   = "Await"
	callServing = "Serving"
	callCancel  = "Cancel"
	callSignal  = "Signal"
)

// Calls of the next daemon.
const (
	callStarted  = "Started"
	callEnded    = "Ended"
	callReleased = "Released"
)

// Arguments of calls between the daemons, as JSON.
type (
	cancelCall struct {
		ID, By, Reason string
		Grace          time.Duration
	}
	signalCall struct {
		ID     string
		Signal syscall.Signal
	}
	sessionName struct{ Tenant, ID string }
)

// inheritedTakeover reads takeoverVar, and unsets it so that no child process inherits it. ok is false if the
// variable is not set: then this is a plain start. stay reports whether the value has keptByStarter.
func inheritedTakeover() (sockets int, stay, ok bool, err error) {
	value, ok := os.LookupEnv(takeoverVar)
	if !ok {
		return 0, false, false, nil
	}
	count, kept, _ := strings.Cut(value, " ")
	sockets, err = strconv.Atoi(count)
	return sockets, kept == keptByStarter, true, errors.Join(err, os.Unsetenv(takeoverVar))
}

// takeoverValue is the value that inheritedTakeover reads.
func takeoverValue(sockets int, stay bool) string {
	if stay {
		return fmt.Sprint(sockets, " ", keptByStarter)
	}
	return strconv.Itoa(sockets)
}

// socketPair returns a connection, and the other end of it as a file for a child process. kind is unix.SOCK_STREAM or
// unix.SOCK_SEQPACKET.
func socketPair(kind int) (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	theirs := os.NewFile(uintptr(fds[1]), "takeover")
	c, err := fileConn(fds[0])
	if err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return c, theirs, nil
}

// fileConn returns the connection of a descriptor, and closes the descriptor.
func fileConn(fd int) (*net.UnixConn, error) {
	f := os.NewFile(uintptr(fd), "takeover")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("descriptor %d is a %T", fd, c), c.Close())
	}
	return u, nil
}
