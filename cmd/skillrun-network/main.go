// Skillrun-network carries the network of sandboxes. skillrund starts one for each tenant whose sandboxes use a network; it
// is installed in the same directory. It is a separate program because it parses the packets of hostile programs: the
// daemon has no such code, and keeps no copy of it in memory. See docs/decisions/0022.
package main

import (
	"fmt"
	"os"

	"github.com/skillrun/skillrun/internal/buildversion"
	"github.com/skillrun/skillrun/internal/network/helper"
)

// version is set by the linker. The Makefile passes it by -ldflags -X.
var version string

func main() {
	if len(os.Args) > 1 {
		if os.Args[1] == "--version" {
			fmt.Println("skillrun-network", buildversion.Of(version))
			return
		}
		fmt.Fprintln(os.Stderr, "skillrun-network: skillrund starts this program; it takes no arguments but --version")
		os.Exit(1)
	}
	os.Exit(helper.Run(buildversion.Of(version)))
}
