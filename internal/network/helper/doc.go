// Package helper is the process that carries the networks of one tenant's sandboxes (cmd/skillrun-network). It serves a
// network.Manager, which starts it.
//
// A helper parses packets of hostile programs, so it first drops its privileges (confine.go): it has a separate user, an
// empty root directory, no capabilities, a separate PID namespace, and a list of allowed system calls. The list has no
// call that opens a file or starts a program (filter.go). The helper needs no privilege: the Manager sends it configured
// devices, and it makes ordinary sockets. Package gateway carries the packets (helper.go).
package helper
