// Command skillrun runs the scripts of agent skills through a skillrund daemon.
//
// Each command is in a file of its name. Its method of app (runCommand, psCommand, ...) returns
// the cobra command; root in app.go collects them. Four rules hold for all of them:
//
//   - Results go to standard output, notes and errors to standard error as "skillrun: ...". So
//     a pipe gets only results.
//   - A command returns an error and does not exit. app.exit prints it and finds the exit code
//     (exit.go).
//   - Text from the daemon may come from a skill or a script. It passes printable before it
//     reaches a terminal. Only the output of a program is passed on unchanged.
//   - Messages use the words of the command line. fields.go translates the contract's names.
package main

import (
	"context"
	"os"
)

// version is set by the linker.
var version = "unknown"

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
