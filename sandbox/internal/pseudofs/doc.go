// Package pseudofs reads and writes files of /proc and of cgroups, which exist on no disk.
//
// Its functions make plain system calls. Package os would register each file with the
// runtime's poller. These files are always ready, so the poller would wake a thread at once:
// three times the work of the read. Do not use these functions for other files:
// a read that has to wait blocks a thread.
package pseudofs
