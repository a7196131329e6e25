// Skillrun-python carries a CPython and unpacks it for skillrund. It is installed in the
// same directory. It is a separate program so that skillrund and skillrun stay small; see
// docs/decisions/0005.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/skillrun/skillrun/internal/runtime/embedded"
)

func main() {
	unpack := flag.String("unpack", "", "unpack into the empty `directory`; without it, print the name of what is carried")
	target := flag.String("target", "/opt/python", "`path` by which Python will see that directory")
	flag.Parse()
	if err := run(flag.Args(), *unpack, *target); err != nil {
		fmt.Fprintf(os.Stderr, "skillrun-python: %v\n", err)
		os.Exit(1)
	}
}

// run prints the name, or unpacks. The daemon asks for the name first and unpacks only a Python
// that it does not have yet. An error means exit code 1.
func run(args []string, unpack, target string) error {
	if len(args) > 0 {
		return fmt.Errorf("%q: takes no arguments; see --help", args[0])
	}
	if unpack != "" {
		return embedded.Unpack(unpack, target)
	}
	name, err := embedded.Name()
	if err != nil {
		return err
	}
	_, err = fmt.Println(name)
	return err
}
