package sandbox

import (
	"context"
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

// BenchmarkRoots starts a program with the host's root and with another root, in sandboxes
// of the zygote and in sandboxes that libcontainer makes.
func BenchmarkRoots(b *testing.B) {
	c := testConfig(b)
	c.Prewarmed = 4
	c.Roots = []Root{{Name: "tree", Dir: newTree(b)}}
	h := openWith(b, c)
	n := 0
	for _, root := range []string{"", "tree"} {
		for name, start := range map[string]func(context.Context, Spec, IO) (*Process, error){"zygote": h.Start, "direct": h.startDirect} {
			b.Run(fmt.Sprintf("root=%s/%s", root, name), func(b *testing.B) {
				for b.Loop() {
					n++
					p, err := start(b.Context(), Spec{ID: fmt.Sprint("b", n), Program: command("/usr/bin/id"), Env: testEnv, Root: root}, IO{})
					if err != nil {
						b.Fatal(err)
					}
					if exit, err := p.Wait(); err != nil || exit.Code != 0 {
						b.Fatal(exit, err)
					}
				}
			})
		}
	}
}
