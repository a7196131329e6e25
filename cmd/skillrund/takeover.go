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
	"github.com/skillrun/skillrun/internal/session"
)

// A takeover: the next daemon starts while the earlier one serves, takes over its sockets and its state, and
// serves; the earlier one only ends what it has begun.
//
// Theory of operation. SIGUSR2 makes the daemon start its program again, from the path of its binary and with
// the same arguments. So the next daemon can be another version and can have another configuration. It inherits
// the listening sockets and two socket pairs, over which the daemons call each other (net/rpc).
//
//	earlier                                   next
//	  | starts ------------------------------> | opens everything that two daemons can have open: sandboxes,
//	  | serves                                 | skills, packages, images; probes the boundaries
//	  | <----------------------------- Await --|
//	  | stops accepting; asks clients to leave |
//	  | ends the calls that are under way      |
//	  | hands over record, sessions, audit log |
//	  |-- executions that have not ended ----> | opens these beside the earlier daemon
//	  | <--------------------------- Serving --| accepts connections, which have waited in the kernel
//	  | runs its executions to their ends      | asks the earlier one to cancel and to signal them
//	  |-- Started, Released, Ended ----------> |
//	  | exits                                  | adopts what is left
//
// At each moment one daemon alone accepts executions. If the next daemon fails before Serving, the earlier one
// takes back what it has handed over, and serves again. Both ends see the death of the other one as the end of
// the socket pair.
//
// takeover_earlier.go and takeover_next.go have the two sides.

// takeoverVar tells the next daemon that it takes over: the number of sockets, and whether the starter of the
// first daemon keeps them.
const takeoverVar = "_SKILLRUN_TAKEOVER"

// The descriptors of the next daemon. Its sockets follow.
const (
	toEarlier   = 3 // for calls to the earlier daemon
	fromEarlier = 4 // for calls of the earlier daemon
	firstSocket = 5
)

// Names of the services of net/rpc.
const (
	earlierService = "Earlier"
	nextService    = "Next"
)

// peerPatience bounds a call to the other daemon, and the write of one. A daemon that does not answer in this
// time is stopped or out of memory, and the other one must not wait for it.
const peerPatience = 5 * time.Second

// A HandedOver is what the next daemon must know of the earlier one.
type HandedOver struct {
	Executions []executor.Inherited // that have not ended
	Sessions   []session.Held       // in which executions of the earlier daemon work
}

// Arguments of calls between the daemons. net/rpc needs exported types.
type (
	CancelCall struct {
		ID, By, Reason string
		Grace          time.Duration
	}
	SignalCall struct {
		ID     string
		Signal syscall.Signal
	}
	Nothing struct{}
)

// A SessionName names the session in a call to the next daemon.
type SessionName struct{ Tenant, ID string }

// inheritedTakeover reads takeoverVar. ok is false if this daemon takes over from no other.
func inheritedTakeover() (sockets int, stay, ok bool, err error) {
	value, ok := os.LookupEnv(takeoverVar)
	if !ok {
		return 0, false, false, nil
	}
	count, kept, _ := strings.Cut(value, " ")
	sockets, err = strconv.Atoi(count)
	return sockets, kept == keptByStarter, true, errors.Join(err, os.Unsetenv(takeoverVar))
}

// keptByStarter follows the number in takeoverVar.
const keptByStarter = "kept"

// takeoverValue is the value that inheritedTakeover reads.
func takeoverValue(sockets int, stay bool) string {
	if stay {
		return fmt.Sprint(sockets, " ", keptByStarter)
	}
	return strconv.Itoa(sockets)
}

// socketPair returns a connection, and the file of its other end for a child.
func socketPair() (net.Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
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
func fileConn(fd int) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), "takeover")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return patientConn{c}, nil
}

// A patientConn gives up a peer that does not read.
type patientConn struct{ net.Conn }

func (c patientConn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(peerPatience)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}
