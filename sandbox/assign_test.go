package sandbox

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// After a program has printed something, a cancelled start context has no effect. Stop
// still works, with its grace.
func TestCanceledOnceItRuns(t *testing.T) { eachMaker(t, testCanceledOnceItRuns) }

func testCanceledOnceItRuns(t *testing.T, h *Host) {
	for i := range 40 {
		ctx, cancel := context.WithCancel(context.Background())
		var said strings.Builder
		out := writerFunc(func(b []byte) (int, error) {
			cancel()
			return said.Write(b)
		})
		p, err := h.Start(ctx, Spec{
			ID: fmt.Sprintf("runs%d", i), Env: testEnv,
			Program: bash("trap 'echo bye; exit 6' TERM; echo ready; while :; do sleep 0.02; done"),
		}, IO{Stdout: out, Stderr: io.Discard})
		if err != nil {
			t.Errorf("run %d: printed %q, and then: %v", i, said.String(), err)
			continue
		}
		<-ctx.Done()
		p.Stop(time.Minute)
		if exit, err := p.Wait(); err != nil || exit.End != Stopped || exit.Code != 6 || said.String() != "ready\nbye\n" {
			t.Errorf("run %d: got %+v, %v, %q", i, exit, err, said.String())
		}
	}
}
