// Package preflight finds out, before a daemon serves, whether sandboxes on this machine hold their
// boundaries. A boundary is a feature of the machine that sandboxes need, or a protection that
// every sandbox must have.
//
// # Features of the machine
//
// Machine tries each feature of the machine that sandboxes need: capabilities, namespaces,
// cgroups, id-mapped mounts and so on. It makes no sandbox: it uses the feature in a child or on
// a thread that ends, and leaves nothing. A failure names the remedy.
//
// # Protections of a sandbox
//
// The probe is a program (pid1/init_probe.c) that runs in a real sandbox as a script would. It
// attempts forbidden actions, then uses up processes and memory, and reports each attempt as a
// line. The caller makes the sandbox. This package makes the program's environment and judges the
// program's report:
//
//	NewProber         opens sockets and takes locks on the host that a sandbox must not reach
//	Prober.Env        the program's environment: the expected state of its sandbox
//	Report            takes the program's output
//	Report.Judge      the boundaries, from the report and from the end that the caller saw
//	Prober.Close      closes the sockets and the locks
//
// A boundary that the program did not report exactly once is missing: a sandbox in which the
// program can't finish proves nothing.
//
// The package knows neither sandboxes nor their makers.
package preflight
