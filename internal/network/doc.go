// Package network gives sandboxes a network that rules decide on. It runs one helper process for each
// tenant; package gateway does the work there.
//
// Theory of operation. A Manager belongs to the daemon. Manager.Open returns a sandbox.Network. When
// package sandbox attaches it, the Manager sends the TUN device and the rules to the tenant's helper
// (wire.go) and waits until the helper carries packets. The helper reports refusals and ended
// connections, and the Manager passes them to the execution's policy.Sink.
//
// The helper is the daemon's own program (helper.go). It reads what hostile programs send, so it
// gives up everything first (confine.go): it has a user of its own, an empty root directory, no
// capabilities, a process namespace of its own, and a list of allowed system calls without the
// opening of files and the start of programs (filter.go). It needs no privilege, because the
// device comes ready, and it makes ordinary sockets.
//
// A helper may die: by a fault in the stack, by the kernel for its memory, by a signal. The Manager
// keeps a duplicate of each device. It starts a new helper, attaches the devices again and has the
// sandboxes' connections cut, as nobody knows their state any more (tenant.go). A helper that does
// not answer is killed. If helpers die again and again, the pause before the next one grows, and
// Attach fails meanwhile: no program runs with a network that is not carried.
package network
