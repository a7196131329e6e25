// Package pyzygote holds the program of Python zygotes, the fork server, and what the daemon
// must know before it starts one: the key of a zygote, its modules and its log.
//
// # Theory of operation
//
// A Python zygote is a Python in the zygote's container that has imported modules. Its
// program is the Python package in the directory program. Python runs sitecustomize.py at
// its start; the file has the theory of operation of that side. For each script the zygote
// forks a child into a prepared sandbox. The child waits until the daemon has read the
// child's posture from the kernel and sends the command line.
//
// A Python zygote can enter every waiting sandbox. So no byte of a request reaches it: a
// Key holds only numbers, and both sides check the list of modules.
//
// Package sandbox has the client of the fork server (python_zygote.go), because the client
// needs the zygote's packets, the namespaces of a sandbox and the posture. It also has the
// pool of Python zygotes (pool_zygotes.go), which shares its lock with the pool of
// sandboxes.
package pyzygote
