// Package sandbox runs untrusted programs. Each program gets its own
// libcontainer sandbox: a Spec goes in, an Exit comes out.
//
// A Host owns the sandboxes of one daemon. Host.Start builds a sandbox, checks
// the confinement of the program's first process from outside, starts the
// program and returns a Process. Process.Wait returns after the last process
// of the sandbox has ended. If this machine can't enforce a part of a Spec,
// Open or Start returns an error; no part is left out silently.
//
// In every sandbox the program runs as user 1000, named skill. It has no
// capability, and runs in its own namespaces (up to eight), in a cgroup and
// under a seccomp filter. It sees /usr of the host read-only, a generated /etc,
// private instances of /proc, /dev, /tmp, HOME and /workspace, and the
// read-only directories that its Spec names. PID 1 of a sandbox is a small init
// program (package internal/pid1).
//
// The package executes the running binary again for the first stages of a
// sandbox. Package initialisers therefore run several times; a program that
// imports this package must keep them free of side effects. Package internal/pid1
// locks the main goroutine to the first thread (reexec.go). A daemon calls
// Isolate first in main.
package sandbox
