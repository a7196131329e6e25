package dial

import (
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// If a dial fails because of the helper, an event has the cause. A refusal by the destination is no such event.
func TestFault(t *testing.T) {
	for errno, want := range map[syscall.Errno]string{
		unix.EADDRNOTAVAIL: "no free port", unix.EAGAIN: "no free port", unix.EMFILE: "too many open sockets",
		unix.ENFILE: "the machine does not open", unix.EPERM: "operation not permitted",
		unix.ECONNREFUSED: "", unix.ETIMEDOUT: "", unix.EHOSTUNREACH: "", unix.ENETUNREACH: "",
	} {
		err := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", errno)}
		if got := Fault(err); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%v: %q", errno, got)
		}
	}
	if Fault(nil) != "" {
		t.Error("a fault without an error")
	}
}
