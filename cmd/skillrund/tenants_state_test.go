package main

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/skillrun/skillrun/internal/record"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// stateOf returns the quota of state_bytes of a caller's tenant.
func (d *running) stateOf(who context.Context) *pb.Quota {
	d.t.Helper()
	r, err := d.system.GetBudget(who, &pb.GetBudgetRequest{})
	if err != nil {
		d.t.Fatal(err)
	}
	for _, q := range r.Tenant.GetQuotas() {
		if q.Key == "state_bytes" {
			return q
		}
	}
	d.t.Fatalf("no quota state_bytes in %v", r)
	return nil
}

// leave runs a program that prints size bytes and leaves an artifact of the same size.
func (d *running) leave(who context.Context, size int) (id string, err error) {
	d.t.Helper()
	stream, err := d.runs.Execute(who, shell("calculator", fmt.Sprintf("head -c %d /dev/zero | tee zeros", size)))
	if err != nil {
		return "", err
	}
	r, err := collect(d.t, stream, 0, nil)
	if err == nil {
		r.wantExit(d.t, 0)
	}
	return r.id, err
}

// A tenant that fills its quota of state loses its oldest executions with their output and artifacts. No other
// tenant does. A tenant whose running executions use up the quota is refused, and can go on when one ended.
func TestQuotaOfState(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, withTokens+`
tenants:
  acme: {quotas: {state_bytes: 1MiB}}
  busy: {quotas: {state_bytes: 128KiB}}
  globex: {}
`)
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	acme, busy, globex := d.asTenant(ctx, "acme", "invoke"), d.asTenant(ctx, "busy", "admin"), d.asTenant(ctx, "globex", "invoke")
	const size = 100_000
	has := func(who context.Context, id string) bool {
		t.Helper()
		_, err := d.runs.GetExecution(who, &pb.GetExecutionRequest{ExecutionId: id})
		if err != nil {
			wantReason(t, err, codes.NotFound, "EXECUTION_NOT_FOUND", "")
		}
		return err == nil
	}
	theirs, err := d.leave(globex, 2<<20)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for range 9 {
		id, err := d.leave(acme, size)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	// Five fit, the sixth exceeds the quota, and the seventh finds it used up.
	if q := d.stateOf(acme); q.Limit != 1<<20 || q.Used < 4*2*size || q.Used > 1<<20+2*size+10_000 {
		t.Errorf("got %v", q)
	}
	for i, id := range ids {
		if want := i >= len(ids)-4; i != len(ids)-5 && i != len(ids)-6 && has(acme, id) != want {
			t.Errorf("execution %d is there: %v", i, !want)
		}
	}
	last, err := d.runs.GetArtifact(acme, &pb.GetArtifactRequest{ExecutionId: ids[8], Path: "zeros"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := last.Recv(); err != nil {
		t.Errorf("the artifact of the last execution: %v", err)
	}
	if !has(globex, theirs) || d.stateOf(globex).Used < 4<<20 {
		t.Error("the other tenant lost its execution")
	}

	// The program runs on after its output, so nothing can go.
	req := shell("calculator", fmt.Sprintf("head -c %d /dev/zero; sleep 600", 2*size))
	req.OnDisconnect = pb.OnDisconnect_ON_DISCONNECT_CONTINUE
	stream, err := d.runs.Execute(busy, req)
	if err != nil {
		t.Fatal(err)
	}
	runs := ""
	for got := 0; got < 2*size; {
		e, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		runs, got = e.ExecutionId, got+len(e.GetOutput().GetData())
	}
	used := strconv.FormatUint(d.stateOf(busy).Used, 10)
	wantQuota(t, d.refusalOf(busy, shell("calculator", "true")), "state_bytes", 128<<10, used)
	p := &pushing{secured: &secured{running: d}, about: pb.NewSkillServiceClient(d.conn)}
	_, err = p.push(busy, pushable("say", "x")...)
	wantQuota(t, err, "state_bytes", 128<<10, used)
	if _, err := d.leave(globex, 1); err != nil {
		t.Errorf("the other tenant: %v", err)
	}
	if _, err := d.runs.CancelExecution(busy, &pb.CancelExecutionRequest{ExecutionId: runs}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.leave(busy, 1); err != nil {
		t.Errorf("after the end: %v", err)
	}
	if has(busy, runs) {
		t.Error("the large execution was not removed")
	}
	p.mustPush(busy, "say", "x")
}

// After SIGKILL the next daemon counts the files on the disk.
func TestStateIsCountedAfterRestart(t *testing.T) {
	t.Parallel()
	const config = withTokens + "tenants: {acme: {quotas: {state_bytes: 1GiB}}, globex: {}}\n"
	d := startDaemon(t, config)
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	acme, globex := d.asTenant(ctx, "acme", "invoke"), d.asTenant(ctx, "globex", "invoke")
	for _, size := range []int{1, 100, 50_000, 3 << 20} {
		for _, who := range []context.Context{acme, globex, acme} {
			if _, err := d.leave(who, size); err != nil {
				t.Fatal(err)
			}
		}
	}
	theirs := d.stateOf(globex).Used
	d.begin(acme)
	d.kill()
	d = startDaemonIn(t, d.dir, config)
	ours := d.stateOf(acme).Used
	if got := d.stateOf(globex).Used; got != theirs {
		t.Errorf("got %d, want %d", got, theirs)
	}
	d.stop()
	dir := filepath.Join(d.dir, "state/record")
	var files int64 // the larger spools and all artifacts, of both tenants
	for _, name := range []string{"spool", "artifacts"} {
		err := filepath.WalkDir(filepath.Join(dir, name), func(_ string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			fi, err := e.Info()
			if err == nil {
				files += fi.Size()
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if sum := int64(ours + theirs); sum < files || sum > files+3*50_100+13*8<<10 {
		t.Errorf("the daemon counts %d bytes, and %d are in files", sum, files)
	}
	s, err := record.Open(record.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got := s.BytesOf("acme"); got != int64(ours) {
		t.Errorf("got %d, want %d", got, ours)
	}
}
