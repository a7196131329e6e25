package executor_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/skillrun/skillrun/sandbox"
)

// TestMain gives real sandboxes what they need: a mount namespace of their own. With
// benchDir in the environment it is the daemon of the benchmarks.
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
