package sandbox

// How the C of this package is compiled and linked, also by a plain "go build": by
// options that cgo allows in a source. Checked functions of the C library end the
// process where they would overflow; -U because some distributions set a level
// themselves.

// #cgo CFLAGS: -std=gnu11 -O2 -fstack-protector-strong -fstack-clash-protection -fno-strict-aliasing
// #cgo CFLAGS: -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3
// #cgo CFLAGS: -Werror -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Wold-style-definition
// #cgo CFLAGS: -Wvla -Wformat=2 -Wpointer-arith -Wundef -Wwrite-strings
// #cgo LDFLAGS: -Wl,-z,relro,-z,now,-z,noexecstack
import "C"

import (
	"os"
	"runtime"

	"github.com/opencontainers/runc/libcontainer"
	_ "github.com/opencontainers/runc/libcontainer/nsenter" // joins and makes the namespaces, before the Go runtime starts
)

// initArg is the argument by which init.c recognises that it is PID 1 of a sandbox.
const initArg = "skillrun-init"

func init() {
	// libcontainer runs this very binary again as the first stage of a
	// sandbox, and marks it by argument and environment. Such a process never
	// reaches main.
	if len(os.Args) > 1 && os.Args[1] == "init" && os.Getenv("_LIBCONTAINER_INITPIPE") != "" {
		libcontainer.Init()
	}
	// For mounts libcontainer takes a thread into the sandbox's mount
	// namespace and throws it away. The first thread of a process can't be
	// thrown away: it would stay there, and /proc/self, which is the first
	// thread's, would show the sandbox. So that thread belongs to main for good.
	runtime.LockOSThread()
}
