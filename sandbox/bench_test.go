package sandbox

import (
	"fmt"
	"testing"
)

// BenchmarkTrue makes a sandbox, runs /usr/bin/true in it and waits until the sandbox
// is destroyed.
func BenchmarkTrue(b *testing.B) {
	h := openHost(b)
	for n := 0; b.Loop(); n++ {
		p, err := h.Start(b.Context(), Spec{ID: fmt.Sprint("b", n), Program: command("/usr/bin/true"), Env: testEnv}, IO{})
		if err != nil {
			b.Fatal(err)
		}
		if exit, err := p.Wait(); err != nil || exit.Code != 0 {
			b.Fatal(exit, err)
		}
	}
}
