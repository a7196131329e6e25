package executor_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/skillrun/skillrun/internal/hosttest"
)

// With benchDir in the environment, this process becomes the daemon of the benchmarks.
func TestMain(m *testing.M) {
	if dir := os.Getenv(benchDir); dir != "" {
		if err := serveBench(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(hosttest.Main(m))
}
