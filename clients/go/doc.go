// Package skillrun runs the scripts of agent skills through a skillrund daemon.
// It reads like os/exec:
//
//	c, err := skillrun.Dial("unix:///run/skillrun/skillrun.sock")
//	...
//	cmd := c.Script("calculator", "scripts/calc.py", "2+2")
//	cmd.Stdout = os.Stdout
//	err = cmd.Run(ctx)
//
// Two kinds of failure are kept apart. A program that exits with a code other
// than zero, is killed, or hits a limit gives an [*ExitError], which holds the
// outcome with the kernel's evidence. Everything else is an error of the daemon,
// of the connection or of this side; where it came over gRPC, status.FromError
// finds its status and [Reason] its stable reason.
//
// A stream that breaks while the program runs is attached again after the last
// event that was seen, so the writers get every byte once. A request is sent
// again only if it cannot have started, or if it has an idempotency key.
package skillrun
