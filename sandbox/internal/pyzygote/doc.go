// Package pyzygote is the Python fork server and the daemon's client of it.
//
// # Theory of operation
//
// A Python zygote is a Python in the zygote's container that has imported modules. Its
// program, the fork server, is the Python package in program: Python runs sitecustomize.py
// at its start, which has the theory of operation of that side. For each script the zygote
// forks a child into a prepared sandbox. The child waits until the daemon has read its
// posture from the kernel and sends the command line.
package pyzygote
