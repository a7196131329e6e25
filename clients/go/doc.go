// Package skillrun runs the scripts of agent skills through a skillrund daemon. Start with
// [Dial] and [Cmd]; the package reads like os/exec:
//
//	c, err := skillrun.Dial("unix:///run/skillrun/skillrun.sock")
//	...
//	cmd := c.Script("calculator", "scripts/calc.py", "2+2")
//	cmd.Stdout = os.Stdout
//	err = cmd.Run(ctx)
//
// There are two kinds of failure. A program that exits with a code other than zero, is
// killed, or exceeds a limit gives an [*ExitError]; its Outcome has the kernel's evidence.
// Every other error comes from the daemon, the connection or this side. If it came over
// gRPC, status.FromError returns its status and [Reason] its stable reason.
//
// If a stream breaks while the program runs, the client attaches again after the last event
// that it has seen, so the writers get every byte once. A request is sent again only if it
// cannot have started, or if it has an idempotency key.
package skillrun
