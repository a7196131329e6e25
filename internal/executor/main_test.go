package executor_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/skillrun/skillrun/sandbox"
)

// TestMain gives sandboxes a private mount namespace, which they need. With benchDir in the
// environment, this process becomes the daemon of the benchmarks.
func TestMain(m *testing.M) {
	if dir := os.Getenv(benchDir); dir != "" {
		if err := serveBench(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Geteuid() == 0 {
		if err := sandbox.Isolate(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}
