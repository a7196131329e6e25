// Command skillrun runs the scripts of agent skills through a skillrund daemon.
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
