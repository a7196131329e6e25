// Package zygote starts the zygote, and speaks its protocol.
//
// # Theory of operation
//
// The zygote is PID 1 of a libcontainer container. Its program is C code in the daemon's binary
// (pid1/zygote.c). It clones the inits of sandboxes, and starts the programs of Python zygotes.
// All its sandboxes are in PID namespaces beneath its own, so they end with it.
//
// Daemon and zygote share one socket, which carries packets (pid1/packets.h has their layout).
// The daemon sends a packet with descriptors, and the zygote answers each packet with one
// packet. Start sends the data that all sandboxes share: filters, paths to mask and mount
// points. Make and Spawn each send one request. Only one request is under way at a time.
//
// The daemon does not believe the zygote: an answer must have the right kind, size and number,
// and the caller reads the posture of each cloned process from the kernel. No byte of an
// execution's request reaches the zygote (docs/security.md, The zygotes).
//
// Package sandbox decides when a zygote runs (pool.go) and gives each sandbox its root, cgroup
// and pipes (cloner.go).
package zygote
