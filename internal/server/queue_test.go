package server

import (
	"slices"
	"testing"
	"time"

	"github.com/skillrun/skillrun/internal/executor"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// An execution that waits for a slot sends its position after the header and when it changes; one that
// waits for nothing sends none. The positions are not stored.
func TestQueued(t *testing.T) {
	d := startDaemon(t, func(c *executor.Config, _ *Config) { c.MaxRunning, c.MaxQueued = 1, 2 })
	d.positions = time.Millisecond
	cancel := func(id string) {
		t.Helper()
		if _, err := d.runs.CancelExecution(t.Context(), &pb.CancelExecutionRequest{ExecutionId: id}); err != nil {
			t.Fatal(err)
		}
	}
	first, err := d.runs.Execute(t.Context(), script("scripts/forever.sh"))
	running := readUntil(t, first, err, "ready")
	waits := func(position uint32) (eventStream, *transcript) {
		t.Helper()
		s, err := d.runs.Execute(t.Context(), script("scripts/forever.sh"))
		if err != nil {
			t.Fatal(err)
		}
		r := &transcript{}
		r.until(s, func(r *transcript) bool { return len(r.positions) > 0 })
		if r.err != nil || r.header == nil || !slices.Equal(r.positions, []uint32{position}) {
			t.Fatalf("got the positions %v, %v", r.positions, r.err)
		}
		return s, r
	}
	_, next := waits(1)
	s, last := waits(2)
	got, err := d.runs.GetExecution(t.Context(), &pb.GetExecutionRequest{ExecutionId: last.id})
	if err != nil || got.QueuePosition != 2 || got.State != pb.ExecutionState_EXECUTION_STATE_QUEUED || got.LastSequence != 1 {
		t.Errorf("got %v, %v", got, err)
	}

	cancel(next.id)
	last.until(s, func(r *transcript) bool { return len(r.positions) > 1 })
	attached, err := d.runs.AttachExecution(t.Context(), &pb.AttachExecutionRequest{ExecutionId: last.id, AfterSequence: 1})
	again := &transcript{}
	if err != nil {
		t.Fatal(err)
	}
	again.until(attached, func(r *transcript) bool { return len(r.positions) > 0 })
	if !slices.Equal(again.positions, []uint32{1}) || len(again.sequences) != 0 {
		t.Errorf("attached while it waits: got the positions %v after the events %v", again.positions, again.sequences)
	}

	cancel(running.id)
	last.until(s, func(r *transcript) bool { return r.stdout != "" })
	cancel(last.id)
	last.until(s, func(*transcript) bool { return false })
	if !slices.Equal(last.positions, []uint32{2, 1}) || !consecutive(last.sequences, 1) || last.outcome == nil {
		t.Errorf("got the positions %v, the sequences %v, %v, %v", last.positions, last.sequences, last.outcome, last.err)
	}
	attached, err = d.runs.AttachExecution(t.Context(), &pb.AttachExecutionRequest{ExecutionId: last.id})
	ended := readAll(t, attached, err)
	running.until(first, func(*transcript) bool { return false })
	if len(ended.positions) != 0 || len(running.positions) != 0 || !slices.Equal(ended.sequences, last.sequences) {
		t.Errorf("got the positions %v after the end, and %v of an execution that did not wait", ended.positions, running.positions)
	}
	got, err = d.runs.GetExecution(t.Context(), &pb.GetExecutionRequest{ExecutionId: last.id})
	if err != nil || got.QueuePosition != 0 {
		t.Errorf("ended: got %v, %v", got, err)
	}
}

// Far behind in the queue there is more time between two looks.
func TestPositionWait(t *testing.T) {
	for position, want := range map[int]time.Duration{1: time.Second, 99: time.Second, 100: 2 * time.Second, 1000: 11 * time.Second} {
		f := follow{Server: &Server{positions: positionInterval}, position: position}
		if got := f.positionWait(); got != want {
			t.Errorf("position %d: got %s, want %s", position, got, want)
		}
	}
}
