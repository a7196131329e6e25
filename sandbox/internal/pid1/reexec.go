package pid1

// These options compile and link the C code of this package, also in a plain "go build".
// cgo allows each of them in a source file. With _FORTIFY_SOURCE, functions of the C library
// end the process before they overflow a buffer. -U is there because some distributions set
// a level themselves.

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

// Arguments that make this binary run as another program, before main and before the Go
// runtime. Each has an effect only in the process that it is meant for.
const (
	InitArg  = "skillrun-init"  // PID 1 of a sandbox (init.c)
	ProbeArg = "skillrun-probe" // tries the boundaries from inside (init_probe.c)
	CrashArg = "skillrun-crash" // sets the limit of core dumps and dies by a signal that dumps core (crash.c)
)

// init runs in every process of this binary that reaches the Go runtime: the daemon and
// libcontainer's first stage. Inits and zygotes never come here.
func init() {
	// libcontainer executes this binary again as the first stage of a sandbox. The
	// argument and the environment variable identify such a process. It never
	// reaches main.
	if len(os.Args) > 1 && os.Args[1] == "init" && os.Getenv("_LIBCONTAINER_INITPIPE") != "" {
		libcontainer.Init()
	}
	// For mounts, libcontainer moves a thread into the sandbox's mount namespace and
	// ends the thread afterwards. Go can't end the first thread of a process. That
	// thread would stay in the sandbox's namespace, and /proc/self, which is the first
	// thread's, would show the sandbox. So the first thread is locked to main.
	runtime.LockOSThread()
}
