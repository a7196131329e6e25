// Package pid1 holds the C programs of a sandbox, and the daemon's half of the protocols that
// they speak. All C code that ships is here.
//
// # The programs
//
// The daemon's binary contains all of them (docs/decisions/0001-init-is-the-same-binary.md).
// Each source with a program has a constructor, which runs before main and before the Go
// runtime starts. It recognises its own process by the second argument (InitArg, ZygoteArg,
// ProbeArg, CrashArg) and never returns there. In any other process it does nothing.
//
//	init          PID 1 of a sandbox. It starts the commands of a Plan and reports their end (init.c)
//	the zygote    PID 1 of a container. It clones the inits of sandboxes (zygote.c)
//	the probe     a script that attacks each boundary from inside (init_probe.c)
//	crash         a process that dies by a signal that dumps core (crash.c)
//
// init.c and zygote.c begin with their theories of operation. userns.c is no program: it makes
// short children for functions of this package. sanitize.c has the options of the sanitizers, for
// make test-sanitize.
//
// # The layers
//
// Init and the zygote are built from these parts, the lowest first. A part calls functions of
// the parts that it names, and of no other.
//
//	wire             frames between the daemon and init        nothing
//	packets          packets between the daemon and the zygote wire (only a header)
//	confine          drops capabilities, loads filters, limits wire
//	init_program     decodes the program                       wire
//	init_glob        expands patterns of file names            init_program
//	init_child       a command, from fork to exec              wire, confine, init_program, init_glob
//	init_cloned      sets up a cloned sandbox                  wire, packets, confine
//	init             one execution                             wire, confine, init_program, init_child, init_cloned
//	python_program   copies the program of a Python zygote     nothing
//	zygote           receives packets, clones, starts Pythons  wire, packets, confine, init_cloned, init, python_program
//
// TestLayers has the same list. It compares the list with the includes of the sources, and
// with the symbols of the compiled objects.
//
// # The protocols
//
// Control is the daemon's end of the socket to one init, which carries frames. The zygote's
// socket carries packets; package zygote sends them. C code defines the numbers of both
// protocols: kinds, magic values, bounds and sizes (wire.h, packets.h, init_program.h). The Go
// constants for these numbers take their values from the headers by cgo. Package seccomp repeats
// two of them, MaxInstructions and InstructionSize; program.go compiles only if they are equal.
//
// Go and C each have code for the order of the fields: Plan.Encode and EncodeFilters on one
// side, init_program.c on the other. The tests of package sandbox run every kind of plan in a
// real init, TestMalformedProgram sends init malformed ones, and TestSeedsOfFuzzZygote requires
// that packets and frames of the Go code reach the end of the C code. FuzzInit and FuzzZygote
// run the C code with the messages of a lying daemon. FuzzInitSays of package sandbox and
// FuzzZygoteSays of package zygote run the daemon's half with a lying init and a lying zygote.
//
// # Fault injection
//
// A build with the tag skillrun_faults includes fault.h before every C source. Calls that
// install a layer of protection then go through fault.c, which can skip them. A release build
// has nothing of it.
package pid1
