package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"strings"

	"github.com/skillrun/skillrun/sandbox"
)

// version is set by the linker.
var version string

// buildVersion is the version that was linked in, else the module's.
func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

// notify tells systemd how far the daemon is, sd_notify(3). Without systemd it
// does nothing; a lost message is systemd's timeout to report.
func notify(state string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	if rest, ok := strings.CutPrefix(path, "@"); ok { // an abstract address
		path = "\x00" + rest
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return
	}
	defer c.Close()
	fmt.Fprint(c, state)
}

// printBoundaries lists what this machine gives. The error says that something
// is missing.
func printBoundaries(w io.Writer, boundaries []sandbox.Boundary) error {
	missing := 0
	for _, b := range boundaries {
		mark := "ok      "
		if !b.Found {
			mark, missing = "MISSING ", missing+1
		}
		fmt.Fprintf(w, "%s %-28s %s\n", mark, b.Name, b.Why)
		if b.Detail != "" {
			fmt.Fprintf(w, "%9s%-28s %s\n", "", "", b.Detail)
		}
	}
	if missing > 0 {
		return fmt.Errorf("%d of %d boundaries are missing", missing, len(boundaries))
	}
	return nil
}
