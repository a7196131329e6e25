package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A sessionUser is a caller with a session.
type sessionUser struct {
	*running
	ctx      context.Context
	sessions pb.SessionServiceClient
	id       string
}

// newSession makes a session of a caller.
func (d *running) newSession(who context.Context, m *pb.CreateSessionRequest) *sessionUser {
	d.t.Helper()
	u := &sessionUser{running: d, ctx: who, sessions: pb.NewSessionServiceClient(d.conn)}
	made, err := u.sessions.CreateSession(who, m)
	if err != nil {
		d.t.Fatal(err)
	}
	u.id = made.Session.SessionId
	return u
}

// in runs a request in the session.
func (u *sessionUser) in(req *pb.ExecuteRequest) *result {
	u.t.Helper()
	if req.Session == nil {
		req.Session = &pb.SessionUse{}
	}
	req.Session.SessionId = u.id
	stream, err := u.runs.Execute(u.ctx, req)
	if err != nil {
		u.t.Fatal(err)
	}
	r, err := collect(u.t, stream, 0, nil)
	if err != nil {
		u.t.Fatal(err)
	}
	return r
}

// file returns the content of a file of the newest version.
func (u *sessionUser) file(path string) (string, error) {
	u.t.Helper()
	stream, err := u.sessions.GetSessionFile(u.ctx, &pb.GetSessionFileRequest{SessionId: u.id, Path: path})
	if err != nil {
		return "", err
	}
	var data []byte
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return string(data), nil
		}
		if err != nil {
			return "", err
		}
		data = append(data, r.Data...)
	}
}

func (u *sessionUser) wantFile(path, want string) {
	u.t.Helper()
	if got, err := u.file(path); got != want || err != nil {
		u.t.Errorf("%s: got %q, %v; want %q", path, got, err, want)
	}
}

// Two skills work on the files of one session. SIGKILL of the daemon loses no version that an outcome has
// named, and the program that it ends commits nothing.
func TestSessionSurvivesSIGKILL(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	d := startDaemonIn(t, dir, "")
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	u := d.newSession(ctx, &pb.CreateSessionRequest{Labels: map[string]string{"task": "report"}})
	r := u.in(shell("calculator", "mkdir out; echo 1,2 >out/a.csv"))
	if s := r.outcome.Session; s.GetCommittedVersion() != 1 || s.FilesAdded != 1 || s.SizeBytes != 4 || r.header.Session.GetVersion() != 0 {
		t.Errorf("got %v, header %v", s, r.header.Session)
	}
	r = u.in(code("data-analysis", "print(open('out/a.csv').read(), end=''); open('b.txt', 'w').write('made of it')"))
	r.wantStdout(t, "1,2\n")
	if s := r.outcome.Session; s.GetCommittedVersion() != 2 || r.header.Session.GetVersion() != 1 {
		t.Errorf("got %v, header %v", s, r.header.Session)
	}

	req := shell("calculator", "rm -r out b.txt; echo lost >lost; echo ready; sleep 3600")
	req.Session = &pb.SessionUse{SessionId: u.id, CommitFailed: true}
	runs, _ := d.untilOutput(ctx, req)
	_, err := d.try(&pb.ExecuteRequest{Skill: "calculator", Source: &pb.ExecuteRequest_Code{Code: &pb.InlineCode{Text: "1"}}, Session: &pb.SessionUse{SessionId: u.id}})
	wantReason(t, err, codes.FailedPrecondition, "SESSION_BUSY", "is in use by execution "+runs.ExecutionId)
	_, err = u.sessions.DeleteSession(ctx, &pb.DeleteSessionRequest{SessionId: u.id})
	wantReason(t, err, codes.FailedPrecondition, "SESSION_BUSY", "")
	d.kill()

	d = startDaemonIn(t, dir, "")
	u = &sessionUser{running: d, ctx: ctx, sessions: pb.NewSessionServiceClient(d.conn), id: u.id}
	got, err := u.sessions.GetSession(ctx, &pb.GetSessionRequest{SessionId: u.id})
	if err != nil || got.Session.Newest.GetNumber() != 2 || got.Session.Writer != "" || got.Session.Labels["task"] != "report" {
		t.Errorf("got %v, %v", got, err)
	}
	u.wantFile("out/a.csv", "1,2\n")
	u.wantFile("b.txt", "made of it")
	r = u.in(shell("calculator", "ls; cat out/a.csv; rm -r out"))
	if r.outcome.Session.GetCommittedVersion() != 3 || r.outcome.Session.FilesDeleted != 1 {
		t.Errorf("got %v", r.outcome.Session)
	}
	again := shell("calculator", "cat out/a.csv")
	again.Session = &pb.SessionUse{Version: 2}
	u.in(again).wantStdout(t, "1,2\n")
	if _, err := u.sessions.DeleteSession(ctx, &pb.DeleteSessionRequest{SessionId: u.id}); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "state/sessions/default")); len(left) != 0 || err != nil {
		t.Errorf("left on disk: %v, %v", left, err)
	}
	d.wantNothingLeft()
}

// The kernel renames no directory of a lower layer of the workspace. The advice names programs that copy it, and these
// work.
func TestRenameOfADirectory(t *testing.T) {
	t.Parallel()
	d := startShared(t)
	u := d.newSession(t.Context(), &pb.CreateSessionRequest{})
	u.in(shell("calculator", "mkdir out; echo 1 >out/a; mv out made; mv made out")).wantExit(t, 0)
	r := u.in(code("data-analysis", "import os; os.rename('out', 'old')"))
	r.wantExit(t, 1)
	if !strings.Contains(r.outcome.Advice, "shutil.move") {
		t.Errorf("stderr %q, advice %q", r.stderr.String(), r.outcome.Advice)
	}
	u.in(code("data-analysis", "import os, shutil; os.rename('out/a', 'out/b'); shutil.move('out', 'old')")).wantExit(t, 0)
	u.wantFile("old/b", "1\n")
	if got, err := u.file("out/b"); err == nil {
		t.Errorf("the old directory is still there: %q", got)
	}
	req := shell("calculator", "mv in moved; cat moved/x")
	req.Files = []*pb.InputFile{{Path: "in/x", Source: &pb.InputFile_Content{Content: []byte("input")}}}
	d.run(req).wantStdout(t, "input")
}

// The command line makes a session, works in it, and shows and removes it.
func TestSessionByCommandLine(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	run := func(want string, args ...string) string {
		t.Helper()
		var stderr strings.Builder
		cmd := d.cli(args...)
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil || want != "" && string(out) != want {
			t.Fatalf("skillrun %q: got %q, %v, %s; want %q", args, out, err, stderr.String(), want)
		}
		return strings.TrimSpace(string(out))
	}
	id := run("", "session", "create", "--label", "k=v", "--ttl", "2h")
	other := run("", "session", "create")
	run("", "run", "--session", id, "-l", "bash", "-c", "echo 1 >f", "calculator")
	run("", "session", "run", id, "-l", "bash", "-c", "echo 23 >f", "calculator")
	run("23\n", "run", "--session", id, "-l", "bash", "-c", "cat f", "calculator")
	run("1\n", "run", "--session", id, "--at", "1", "-l", "bash", "-c", "cat f", "calculator")
	list := run("", "session", "ls", "--label", "k=v")
	if lines := strings.Split(list, "\n"); len(lines) != 2 || !strings.HasPrefix(lines[1], id+"  2 ") {
		t.Errorf("ls: got %q", list)
	}
	const sum = "4355a46b19d348dc2f57c046f8ef63d4538ebb936000f3c9ee954a27460dd865" // of "1\n"
	run("SIZE  SHA-256                                                           PATH\n2 B   "+sum+"  f\n", "session", "show", "--at", "1", id)
	if text := run("", "session", "show", "--json", id); !strings.Contains(text, `"path":"f"`) {
		t.Errorf("show --json: got %q", text)
	}
	if text := run("", "session", "ls", "--json"); strings.Count(text, "\n") != 1 || !strings.Contains(text, id) || !strings.Contains(text, other) {
		t.Errorf("ls --json: got %q", text)
	}
	if lines := strings.Split(run("", "session", "versions", id), "\n"); len(lines) != 3 || !strings.HasPrefix(lines[1], "2        1     1      3 B   ") {
		t.Errorf("versions: got %q", lines)
	}
	run("", "session", "update", id, "--label", "new=1", "--ttl", "3h")
	if text := run("", "session", "ls", "--json", "--label", "new=1"); !strings.Contains(text, `"ttl":"10800s"`) || strings.Contains(text, `"k":"v"`) {
		t.Errorf("after update: got %q", text)
	}
	small := run("", "session", "create", "--max-bytes", "1k", "--max-files", "2")
	out, err := d.cli("session", "run", small, "-l", "bash", "-c", "head -c 2000 /dev/zero >f; true", "calculator", "--json").Output()
	if exitCode(t, err) != 125 || !strings.Contains(string(out), "SESSION_UNCOMMITTED_OVER_QUOTA") {
		t.Errorf("2000 bytes in a session of 1 KiB: got %v, %s", err, out)
	}
	run(id+" removed\n"+other+" removed\n", "session", "rm", id, other)
	out, err = d.cli("session", "show", id).CombinedOutput()
	if exitCode(t, err) == 0 || !strings.Contains(string(out), ": not found (SESSION_NOT_FOUND") {
		t.Errorf("a removed session: got %q", out)
	}
	out, err = d.cli("session", "create", "--ttl", "8760h").CombinedOutput()
	if exitCode(t, err) == 0 || !strings.Contains(string(out), "--ttl must be at most 720h (sessions.ttl in the daemon's configuration)") {
		t.Errorf("a long --ttl: got %q", out)
	}
}

// Files go into a session and come back with the same bytes and mode.
func TestSessionCopy(t *testing.T) {
	t.Parallel()
	d := startShared(t)
	dir := t.TempDir()
	run := func(stdin string, args ...string) (string, error) {
		t.Helper()
		cmd := d.cli(append([]string{"session"}, args...)...)
		cmd.Dir, cmd.Stdin = dir, strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	must := func(want, stdin string, args ...string) {
		t.Helper()
		if got, err := run(stdin, args...); got != want || err != nil {
			t.Fatalf("skillrun session %q: got %q, %v; want %q", args, got, err, want)
		}
	}
	made, err := run("", "create")
	if err != nil {
		t.Fatal(made, err)
	}
	id := strings.TrimSpace(made)
	large := strings.Repeat("0123456789", 300_000)
	for name, mode := range map[string]os.FileMode{"large": 0o600, "tool": 0o755} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(large), mode); err != nil {
			t.Fatal(err)
		}
	}
	must("version 1\n", "", "cp", "large", id+":in/")
	must("version 1\n", "", "cp", "./large", id+":in/large") // as it is
	must("version 2\n", "", "cp", "tool", id+":")
	must("version 3\n", "a,b\n", "cp", "-", id+":in/table.csv")
	must("a,b\n", "", "cp", id+":in/table.csv", "-")
	// A device is written to and stays: root must not lose /dev/null.
	if err := os.Symlink("/dev/stdout", filepath.Join(dir, "device")); err != nil {
		t.Fatal(err)
	}
	must("a,b\n", "", "cp", id+":in/table.csv", "device")
	if fi, err := os.Lstat(filepath.Join(dir, "device")); err != nil || fi.Mode().Type() != os.ModeSymlink {
		t.Errorf("the device was replaced: %v, %v", fi, err)
	}
	got, err := d.cli("run", "--session", id, "-l", "bash", "-c", "cat in/table.csv >>out; test -x tool && wc -c <in/large", "calculator").Output()
	if string(got) != "3000000\n" || err != nil {
		t.Errorf("the program: got %q, %v", got, err)
	}
	if err := os.Mkdir(filepath.Join(dir, "to"), 0o755); err != nil {
		t.Fatal(err)
	}
	must("", "", "cp", id+":tool", "to")
	must("", "", "cp", id+":out", "to/renamed")
	if fi, err := os.Stat(filepath.Join(dir, "to/tool")); err != nil || fi.Mode()&0o111 == 0 || fi.Size() != int64(len(large)) {
		t.Errorf("tool: %v, %v", fi, err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "to/renamed")); string(data) != "a,b\n" || err != nil {
		t.Errorf("renamed: %q, %v", data, err)
	}
	for want, args := range map[string][]string{
		"one of the two must be SESSION:PATH": {"large", "tool"},
		"--at is for copies out of a session": {"--at", "1", "large", id + ":x"},
		"standard input has no name":          {"-", id + ":"},
		"has the component":                   {"large", id + ":../x"},
		"is a directory of the session":       {"large", id + ":in"},
		`session "x": not found`:              {"large", "x:y"},
		`path "nothing": not found`:           {id + ":nothing", "to"},
		"no such file or directory":           {"nothing", id + ":x"},
		`path "tool": not found`:              {"--at", "1", id + ":tool", "-"},
	} {
		if got, err := run("", append([]string{"cp"}, args...)...); exitCode(t, err) == 0 || !strings.Contains(got, want) {
			t.Errorf("cp %q: got %q, want %q", args, got, want)
		}
	}
	if list, err := os.ReadDir(filepath.Join(dir, "to")); len(list) != 2 || err != nil {
		t.Errorf("left: %v, %v", list, err)
	}
}

// Without configured tenants each caller sees the use of the tenant in its credential, as the quotas count it.
func TestBudgetWithoutTenants(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, withTokens)
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	for tenant, sessions := range map[string]uint64{"default": 2, "acme": 1} {
		caller := d.asTenant(ctx, tenant, "admin")
		for range sessions {
			d.newSession(caller, &pb.CreateSessionRequest{})
		}
		one, err := d.system.GetBudget(caller, &pb.GetBudgetRequest{})
		if err != nil {
			t.Fatal(err)
		}
		list, err := d.system.ListTenants(caller, &pb.ListTenantsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range append(list.Tenants, one.Tenant) {
			i := slices.IndexFunc(b.Quotas, func(q *pb.Quota) bool { return q.Key == "sessions" })
			if b.Name != tenant || b.Quotas[i].Used != sessions {
				t.Errorf("%s: got %v, want %d sessions", tenant, b, sessions)
			}
		}
	}
}

// A session belongs to its tenant, and each tenant has separate quotas. When a tenant is removed, so are
// its sessions.
func TestSessionsOfTenants(t *testing.T) {
	t.Parallel()
	dir := newTenantsDir(t)
	const config = withTokens + "sessions: {bytes: 1MiB, versions: 2}\ntenants_dir: tenants\ntenants: {globex: {}}\n"
	d := startDaemonIn(t, dir, config)
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	d.write("tenants/acme.yaml", "quotas: {sessions: 1, session_bytes: 64KiB}\n")
	acme, globex := d.asTenant(ctx, "acme", "invoke"), d.asTenant(ctx, "globex", "invoke")
	until(t, "a new tenant: no effect in time", func() bool { return !d.unknownTenant(acme) })

	u := d.newSession(acme, &pb.CreateSessionRequest{})
	_, err := u.sessions.CreateSession(acme, &pb.CreateSessionRequest{})
	wantReason(t, err, codes.ResourceExhausted, "SESSION_QUOTA", "the tenant has 1 sessions, and may have no more")
	u.in(shell("calculator", "echo mine >f"))
	r := u.in(shell("calculator", "head -c 100000 /dev/zero >big"))
	if s := r.outcome.Session; s.GetUncommitted() != pb.SessionUncommitted_SESSION_UNCOMMITTED_OVER_QUOTA || s.CommittedVersion != 0 {
		t.Errorf("got %v", s)
	}
	u.wantFile("f", "mine\n")
	b, err := d.system.GetBudget(acme, &pb.GetBudgetRequest{})
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]uint64{}
	for _, q := range b.Tenant.Quotas {
		used[q.Key] = q.Used
	}
	if used["sessions"] != 1 || used["session_bytes"] == 0 || used["session_bytes"] > 64<<10 {
		t.Errorf("used: %v", used)
	}

	_, err = u.sessions.GetSession(globex, &pb.GetSessionRequest{SessionId: u.id})
	wantReason(t, err, codes.NotFound, "SESSION_NOT_FOUND", "")
	theirs := shell("calculator", "cat f")
	theirs.Session = &pb.SessionUse{SessionId: u.id}
	stream, err := d.runs.Execute(globex, theirs)
	if err == nil {
		_, err = stream.Recv()
	}
	wantReason(t, err, codes.NotFound, "SESSION_NOT_FOUND", "")
	_, err = u.sessions.CreateSession(d.asTenant(ctx, "globex", "read"), &pb.CreateSessionRequest{})
	wantReason(t, err, codes.PermissionDenied, "ROLE_REQUIRED", "")

	if err := os.Remove(filepath.Join(dir, "tenants/acme.yaml")); err != nil {
		t.Fatal(err)
	}
	until(t, "a removed file: no effect in time", func() bool { return d.unknownTenant(acme) })
	done, err := d.system.PurgeTenant(ctx, &pb.PurgeTenantRequest{Tenant: "acme"})
	if err != nil || done.Sessions != 1 || done.SessionBytes == 0 {
		t.Errorf("purge: %v, %v", done, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "state/sessions/acme")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("files of the purged tenant: %v", err)
	}
}
