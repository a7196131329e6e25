// Package sandbox runs programs that nobody trusts, each in a libcontainer
// sandbox of its own: a Spec goes in, an Exit comes out.
//
// A Host owns a machine's sandboxes. Host.Start builds one, checks from
// outside that the program's first process is as confined as was asked, lets
// it go and returns a Process; Process.Wait answers when nothing of the
// sandbox is left. What can't be enforced on this machine is an error of Open
// or Start, never left out.
//
// In every sandbox the program is user 1000, named skill, without any
// capability, in eight namespaces, a cgroup and a seccomp filter. It sees
// /usr of the host read-only, a made-up /etc, its own /proc, /dev, /tmp, HOME
// and /workspace, and the read-only directories that its Spec names. Its PID 1
// is a small init of ours, described in init.c.
//
// The package runs its own binary again for the first stages of a sandbox, so
// a program that imports it must not do work in package initialisers that it
// would mind repeating. It also keeps the main goroutine on the first thread.
// A daemon calls Isolate first in main.
package sandbox
