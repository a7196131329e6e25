package main

import (
	"bufio"
	"context"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// Two clients wait for the only slot, the second one with the command line. It sees its position, and that
// it moves up when the first one is cancelled; then its program runs. An execution that waits is listed with
// its position.
func TestWaitingClientsSeeTheirPositions(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "concurrency: {running: 1, reserved: 0}\n")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	held := d.begin(ctx)
	first := d.queue(ctx)

	second := d.cli("run", "--json", "calculator", "-c", "print('ran')")
	stdout, err := second.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	var positions []uint32
	var output string
	var last uint64
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		e := &pb.ExecutionEvent{}
		if err := protojson.Unmarshal(lines.Bytes(), e); err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		output += string(e.GetOutput().GetData())
		queued := e.GetQueued()
		if queued == nil {
			if last++; e.GetSequence() != last {
				t.Errorf("event %d has the sequence %d", last, e.GetSequence())
			}
			continue
		}
		positions = append(positions, queued.GetPosition())
		if e.GetSequence() != 1 {
			t.Errorf("a position has the sequence %d, want the header's", e.GetSequence())
		}
		free := held
		if len(positions) == 1 {
			d.wantListed(e.GetExecutionId(), "queued, position 2")
			d.wantListed(first, "queued, position 1")
			free = first
		}
		if _, err := d.runs.CancelExecution(ctx, &pb.CancelExecutionRequest{ExecutionId: free}); err != nil {
			t.Fatal(err)
		}
	}
	if err := second.Wait(); err != nil || output != "ran\n" || len(positions) != 2 || positions[0] != 2 || positions[1] != 1 {
		t.Errorf("got %q, %v and the positions %v; want 2 and 1", output, err, positions)
	}
}

// wantListed checks the state of an execution in the output of skillrun ps.
func (d *running) wantListed(id, state string) {
	d.t.Helper()
	out, err := d.cli("ps").CombinedOutput()
	if err != nil {
		d.t.Fatalf("ps: %v: %s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, id) && strings.Contains(line, state) {
			return
		}
	}
	d.t.Errorf("execution %s is not %s:\n%s", id, state, out)
}
