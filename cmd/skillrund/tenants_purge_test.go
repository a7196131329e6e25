package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// purgedText is in the executions and skills of the purged tenant.
const purgedText = "words-of-acme-only"

// filesWith returns the files of the state directory that have purgedText, without the audit log, which keeps
// its entries.
func (d *running) filesWith() (names []string) {
	d.t.Helper()
	state := filepath.Join(d.dir, "state")
	err := filepath.WalkDir(state, func(path string, entry os.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil // the daemon removes files at the same time
		}
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		name, _ := filepath.Rel(state, path)
		data, err := os.ReadFile(path)
		if strings.Contains(string(data), purgedText) && !strings.HasPrefix(name, "audit/") {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return names
}

// Purge is refused while the tenant is configured and while its last execution runs. Then it removes all
// that the tenant has left, also if another daemon stored it, and no data of another tenant.
func TestPurgeTenant(t *testing.T) {
	t.Parallel()
	dir := newTenantsDir(t)
	const config = withTokens + "tenants_dir: tenants\ntenants: {globex: {}}\n"
	d := startDaemonIn(t, dir, config)
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	acme, globex := d.asTenant(ctx, "acme", "admin"), d.asTenant(ctx, "globex", "admin")
	d.write("tenants/acme.yaml", "")
	until(t, "a new tenant: no effect in time", func() bool { return !d.unknownTenant(acme) })
	p := &pushing{secured: &secured{running: d}, about: pb.NewSkillServiceClient(d.conn)}
	p.mustPush(acme, "say", purgedText)
	p.mustPush(globex, "say", "other-words")
	keyed := func(who context.Context, text string) string {
		t.Helper()
		req := shell("calculator", "echo "+text+"; echo "+text+" >"+text+".txt")
		req.IdempotencyKey, req.Labels = "once-"+text, map[string]string{"note": text}
		stream, err := d.runs.Execute(who, req)
		if err != nil {
			t.Fatal(err)
		}
		r, err := collect(t, stream, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.wantStdout(t, text+"\n")
		return r.id
	}
	first, theirs := keyed(acme, purgedText), keyed(globex, "other-words")
	runs := d.begin(acme)

	purge := func(who context.Context, name string) (*pb.PurgeTenantResponse, error) {
		return d.system.PurgeTenant(who, &pb.PurgeTenantRequest{Tenant: name})
	}
	_, err := purge(globex, "acme")
	wantReason(t, err, codes.PermissionDenied, "ROLE_REQUIRED", "")
	_, err = purge(ctx, "../acme")
	wantReason(t, err, codes.InvalidArgument, "INVALID_REQUEST", "is not a name of a tenant")
	_, err = purge(ctx, "acme")
	wantReason(t, err, codes.FailedPrecondition, "TENANT_CONFIGURED", "tenant acme is configured; remove it from tenants or tenants_dir first")
	if err := os.Remove(filepath.Join(dir, "tenants/acme.yaml")); err != nil {
		t.Fatal(err)
	}
	until(t, "a removed file: no effect in time", func() bool { return d.unknownTenant(acme) })
	_, err = purge(ctx, "acme")
	wantReason(t, err, codes.FailedPrecondition, "TENANT_BUSY", "tenant acme: 1 of its executions run or wait; try again when it has ended")

	// SIGKILL leaves the execution open; the next daemon ends its record.
	d.kill()
	d = startDaemonIn(t, dir, config)
	if len(d.filesWith()) == 0 {
		t.Fatal("the state directory has nothing of acme")
	}
	done, err := purge(ctx, "acme")
	if err != nil || done.Executions != 2 || done.ExecutionBytes == 0 || done.SkillVersions != 1 || done.SkillBytes == 0 {
		t.Errorf("got %v, %v", done, err)
	}
	if done, err := purge(ctx, "acme"); err != nil || done.Executions+done.SkillVersions+done.Environments != 0 {
		t.Errorf("again: got %v, %v", done, err)
	}
	if names := d.filesWith(); len(names) > 0 {
		t.Errorf("%v still have data of acme", names)
	}
	if e, err := d.runs.GetExecution(globex, &pb.GetExecutionRequest{ExecutionId: theirs}); err != nil || e.ExecutionId != theirs {
		t.Errorf("the other tenant: got %v, %v", e, err)
	}

	// The tenant comes back and finds nothing; its key is free.
	d.write("tenants/acme.yaml", "")
	until(t, "the tenant again: no effect in time", func() bool { return !d.unknownTenant(acme) })
	list, err := d.runs.ListExecutions(acme, &pb.ListExecutionsRequest{})
	if err != nil || len(list.GetExecutions()) != 0 {
		t.Errorf("got %v, %v", list, err)
	}
	skills, err := d.skills.ListSkills(acme, &pb.ListSkillsRequest{})
	if err != nil || slices.ContainsFunc(skills.GetSkills(), func(s *pb.SkillSummary) bool { return s.Name == "say" }) {
		t.Errorf("got %v, %v", skills, err)
	}
	for _, id := range []string{first, runs} {
		_, err := d.runs.GetExecution(acme, &pb.GetExecutionRequest{ExecutionId: id})
		wantReason(t, err, codes.NotFound, "EXECUTION_NOT_FOUND", "")
	}
	if again := keyed(acme, purgedText); again == first {
		t.Error("the key still has its first execution")
	}

	// A broken upload to a session waits for its caller, but not longer than its tenant.
	sessions := pb.NewSessionServiceClient(d.conn)
	made, err := sessions.CreateSession(acme, &pb.CreateSessionRequest{})
	if err != nil {
		t.Fatal(err)
	}
	upload, err := sessions.PutSessionFile(acme)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*pb.PutSessionFileRequest{
		{Message: &pb.PutSessionFileRequest_Header{Header: &pb.PutSessionFileHeader{
			SessionId: made.Session.SessionId, Path: "f", SizeBytes: uint64(len(purgedText)) + 1, Sha256: strings.Repeat("0", 64),
		}}},
		{Message: &pb.PutSessionFileRequest_Data{Data: []byte(purgedText)}},
	} {
		if err := upload.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	_, err = upload.CloseAndRecv()
	wantReason(t, err, codes.InvalidArgument, "INVALID_REQUEST", "resume there")
	if err := os.Remove(filepath.Join(dir, "tenants/acme.yaml")); err != nil {
		t.Fatal(err)
	}
	until(t, "removed again: no effect in time", func() bool { return d.unknownTenant(acme) })
	if _, err := purge(ctx, "acme"); err != nil {
		t.Error(err)
	}
	if names := d.filesWith(); len(names) > 0 {
		t.Errorf("%v still have data of acme", names)
	}
}
