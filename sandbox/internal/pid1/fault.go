//go:build skillrun_faults

package pid1

// fault.c takes layers off a sandbox, for tests. Package sandbox writes the list of layers
// that fault.c reads.

/*
#cgo CFLAGS: -include ${SRCDIR}/fault.h
*/
import "C"
