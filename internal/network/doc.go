// Package network gives sandboxes a network that reaches what rules allow. It runs one helper process
// for each tenant; package helper is that process.
//
// Theory of operation. A Manager belongs to the daemon. Manager.Open returns a sandbox.Network. When
// package sandbox attaches it, the Manager sees to it that the tenant's helper runs. With the program's
// first packet, it sends the TUN device and the rules to the helper (package wire), which reads the packet from
// the device. The helper reports refusals and ended connections, and the Manager passes them to the
// execution's policy.Sink.
//
// Each helper is in a cgroup, which bounds its memory and threads. The kernel kills the helper when the
// daemon dies (startHelpers), and the next daemon clears the cgroup.
//
// A helper may die: of a fault in the stack, of the kernel's OOM killer, of a signal. The Manager
// keeps a duplicate of each device. It starts a new helper, attaches the devices again and cuts the
// sandboxes' connections, because their state died with the old helper (tenant.go). The Manager kills
// a helper that does not answer. If helpers die again and again, the pause before the next start
// grows. During the pause Attach fails, so no program starts with a network that no helper would carry.
package network
