// Package pyzygote starts Python zygotes and has them fork scripts. It holds their program,
// the fork server, and the daemon's side: a zygote's key, its start, its children and its log.
//
// # Theory of operation
//
// A Python zygote is a Python in the zygote's container that has imported modules. Its
// program is the Python package in the directory program. Python runs sitecustomize.py at
// its start; the file has the theory of operation of that side. For each script the zygote
// forks a child into a sandbox that waits. The child waits until the daemon has read the
// child's posture from the kernel and sends the command line.
//
// A Python zygote can enter every waiting sandbox. So no byte of a request reaches it: a
// Key holds only numbers, and both sides check the list of modules.
//
// A Key describes a zygote, and Start starts it. Zygote.Fork forks a Child, and Child.Run sends
// it a Command. The zygote's packets and the child's lines are JSON. The daemon believes
// neither: an answer that no request expects ends the zygote. Package sandbox opens the
// namespaces that a child enters, and reads the postures of zygotes and children.
//
// Package sandbox also has the pool of Python zygotes (pool_zygotes.go), because that pool and
// the pool of sandboxes share a lock: a zygote's end removes the sandboxes in which its children
// wait, and a zygote with running children stays.
package pyzygote
