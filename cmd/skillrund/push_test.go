package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/grpc/codes"

	skillrun "github.com/skillrun/skillrun/clients/go"
	"github.com/skillrun/skillrun/internal/skill/skilltest/folder"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A pushing is a daemon with two tenants that push skills over TLS.
type pushing struct {
	*secured
	runs  executionClient
	about pb.SkillServiceClient
	acme  context.Context // with an admin's token
	other context.Context // of globex
	acmes string          // acme's token
}

func startPushing(t *testing.T, extra string) *pushing {
	t.Helper()
	return startSecured(t, extra).pushing()
}

// pushing returns a secured daemon with tokens of two tenants.
func (s *secured) pushing() *pushing {
	s.t.Helper()
	conn := s.connect(nil)
	p := &pushing{secured: s, runs: executionClient{pb.NewExecutionServiceClient(conn)}, about: pb.NewSkillServiceClient(conn)}
	p.acmes = s.token("create", "--tenant", "acme", "--name", "a", "--role", "admin")
	p.acme = with(s.t.Context(), p.acmes)
	p.other = with(s.t.Context(), s.token("create", "--tenant", "globex", "--name", "b", "--role", "admin"))
	return p
}

// pushable returns the messages of a push of a skill that prints its text.
func pushable(name, text string) []*pb.PushSkillRequest {
	return pushOf(map[string]string{
		"SKILL.md":       "---\nname: " + name + "\ndescription: A skill that a test pushes.\n---\nRun it.\n",
		"scripts/say.sh": "#!/bin/sh\necho " + text + "\n",
	})
}

func pushOf(files map[string]string) (messages []*pb.PushSkillRequest) {
	total := 0
	for path, text := range files {
		total += len(text)
		messages = append(messages, &pb.PushSkillRequest{Message: &pb.PushSkillRequest_Entry{Entry: &pb.PushSkillEntry{Path: path, SizeBytes: uint64(len(text)), Data: []byte(text)}}})
	}
	header := &pb.PushSkillRequest{Message: &pb.PushSkillRequest_Header{Header: &pb.PushSkillHeader{SizeBytes: uint64(total)}}}
	return append([]*pb.PushSkillRequest{header}, messages...)
}

func (p *pushing) push(who context.Context, messages ...*pb.PushSkillRequest) (*pb.PushSkillResponse, error) {
	p.t.Helper()
	stream, err := p.about.PushSkill(who)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, m := range messages {
		if stream.Send(m) != nil {
			break // CloseAndRecv has the reason
		}
	}
	return stream.CloseAndRecv()
}

func (p *pushing) mustPush(who context.Context, name, text string) string {
	p.t.Helper()
	r, err := p.push(who, pushable(name, text)...)
	if err != nil {
		p.t.Fatal(err)
	}
	return r.GetVersion().GetDigest()
}

// says runs the script of a pushed skill and returns its output, or the reason of the error.
func (p *pushing) says(who context.Context, ref string) string {
	p.t.Helper()
	stream, err := p.runs.Execute(who, script(ref, "scripts/say.sh"))
	if err != nil {
		p.t.Fatal(err)
	}
	r, err := collect(p.t, stream, 0, nil)
	if err != nil {
		return skillrun.Reason(err)
	}
	// An execution holds its version of the skill for a moment after its end. The cancel of an ended one waits for that.
	if _, err := p.runs.CancelExecution(who, &pb.CancelExecutionRequest{ExecutionId: r.id}); err != nil {
		p.t.Fatal(err)
	}
	return strings.TrimSpace(r.stdout.String())
}

func (p *pushing) wantSays(who context.Context, ref, want string) {
	p.t.Helper()
	if got := p.says(who, ref); got != want {
		p.t.Errorf("%s: got %q, want %q", ref, got, want)
	}
}

func (p *pushing) names(who context.Context) (names []string) {
	p.t.Helper()
	list, err := p.about.ListSkills(who, &pb.ListSkillsRequest{})
	if err != nil {
		p.t.Fatal(err)
	}
	for _, s := range list.GetSkills() {
		names = append(names, s.GetName())
	}
	return names
}

func TestPushAndRunVersions(t *testing.T) {
	t.Parallel()
	p := startPushing(t, "snapshots: {pushed_versions: 2}\n")
	one := p.mustPush(p.acme, "say", "one")
	p.wantSays(p.acme, "say", "one")
	two := p.mustPush(p.acme, "say", "two")
	p.wantSays(p.acme, "say", "two")
	p.wantSays(p.acme, "say@"+one, "one")
	r, err := p.push(p.acme, pushable("say", "three")...)
	if gone := r.GetRemovedVersions(); err != nil || len(gone) != 1 || gone[0].GetName() != "say" || gone[0].GetDigest() != one {
		t.Errorf("got %v, %v; want the oldest version removed", r, err)
	}
	p.wantSays(p.acme, "say@"+one, "DIGEST_MISMATCH")
	p.wantSays(p.acme, "say@"+two, "two")
	versions, err := p.about.ListSkillVersions(p.acme, &pb.ListSkillVersionsRequest{Skill: "say", PageSize: 1})
	if err != nil || len(versions.GetVersions()) != 1 || versions.GetVersions()[0].GetDigest() != r.GetVersion().GetDigest() {
		t.Fatalf("got %v, %v", versions, err)
	}
	rest, err := p.about.ListSkillVersions(p.acme, &pb.ListSkillVersionsRequest{Skill: "say", PageToken: versions.GetNextPageToken()})
	if err != nil || len(rest.GetVersions()) != 1 || rest.GetVersions()[0].GetDigest() != two {
		t.Errorf("got %v, %v", rest, err)
	}
}

// Two tenants have skills of the same name, and neither sees the other's, over gRPC or MCP.
func TestPushedSkillsOfTwoTenants(t *testing.T) {
	t.Parallel()
	p := startPushing(t, "")
	a := p.mustPush(p.acme, "say", "acme")
	p.mustPush(p.other, "say", "globex")
	p.mustPush(p.acme, "secret", "hidden")
	p.wantSays(p.acme, "say", "acme")
	p.wantSays(p.other, "say", "globex")
	p.wantSays(p.acme, "secret", "hidden")
	p.wantSays(p.other, "say@"+a, "DIGEST_MISMATCH")
	if got := p.names(p.other); slices.Contains(got, "secret") || !slices.Contains(got, "say") {
		t.Errorf("globex sees %v", got)
	}
	// A request for a foreign skill gets the same answer as for a skill that does not exist.
	for _, name := range []string{"secret", "nobody-has-it"} {
		_, err := p.about.GetSkill(p.other, &pb.GetSkillRequest{Skill: name})
		errs := map[string]error{"get": err}
		_, errs["activate"] = p.about.ActivateSkill(p.other, &pb.ActivateSkillRequest{Skill: name})
		_, errs["check"] = p.about.CheckCommand(p.other, &pb.CheckCommandRequest{Skill: name, Command: "ls"})
		_, errs["validate"] = p.about.ValidateSkill(p.other, &pb.ValidateSkillRequest{Subject: &pb.ValidateSkillRequest_Skill{Skill: name}})
		_, errs["versions"] = p.about.ListSkillVersions(p.other, &pb.ListSkillVersionsRequest{Skill: name})
		_, errs["delete"] = p.about.DeleteSkill(p.other, &pb.DeleteSkillRequest{Skill: name})
		file, err := p.about.ReadSkillFile(p.other, &pb.ReadSkillFileRequest{Skill: name, Path: "SKILL.md"})
		if err == nil {
			_, err = file.Recv()
		}
		errs["read"] = err
		prepared, err := p.about.PrepareSkill(p.other, &pb.PrepareSkillRequest{Skill: name})
		if err == nil {
			_, err = prepared.Recv()
		}
		errs["prepare"] = err
		for call, err := range errs {
			t.Run(name+" "+call, func(t *testing.T) {
				wantReason(t, err, codes.NotFound, "SKILL_NOT_FOUND", fmt.Sprintf("%q: skill not found", name))
			})
		}
		p.wantSays(p.other, name, "SKILL_NOT_FOUND")
	}
	_, err := p.about.DeleteSkill(p.acme, &pb.DeleteSkillRequest{Skill: "calculator"})
	wantReason(t, err, codes.FailedPrecondition, "SKILL_NOT_PUSHED", "shared by all tenants")
	reader := with(t.Context(), p.token("create", "--tenant", "acme", "--name", "r", "--role", "invoke"))
	_, err = p.push(reader, pushable("say", "x")...)
	wantReason(t, err, codes.PermissionDenied, "ROLE_REQUIRED", "")
	_, err = p.about.DeleteSkill(reader, &pb.DeleteSkillRequest{Skill: "say"})
	wantReason(t, err, codes.PermissionDenied, "ROLE_REQUIRED", "")
	if _, err := p.about.ListSkillVersions(reader, &pb.ListSkillVersionsRequest{Skill: "say"}); err != nil {
		t.Error(err)
	}
}

// Agents see only their tenant's skills. A change notifies the agents of this tenant and no others.
func TestPushedSkillsOverMCP(t *testing.T) {
	t.Parallel()
	p := startPushing(t, "")
	others := p.token("create", "--tenant", "globex", "--name", "mcp", "--role", "read")
	connect := func(token string) (*mcp.ClientSession, chan struct{}) {
		t.Helper()
		notified := make(chan struct{}, 100)
		options := &mcp.ClientOptions{ResourceListChangedHandler: func(context.Context, *mcp.ResourceListChangedRequest) { notified <- struct{}{} }}
		over := &http.Client{Transport: bearing{&http.Transport{TLSClientConfig: p.trust()}, token}}
		c, err := mcp.NewClient(&mcp.Implementation{Name: "test"}, options).Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: p.mcp, HTTPClient: over}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c, notified
	}
	names := func(c *mcp.ClientSession) (names []string) {
		t.Helper()
		for r, err := range c.Resources(t.Context(), nil) {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, r.Name)
		}
		return names
	}
	own, ownNotified := connect(p.acmes)
	other, otherNotified := connect(others)
	p.mustPush(p.acme, "say", "acme")
	<-ownNotified
	if got := names(own); !slices.Contains(got, "say") || !slices.Contains(got, "calculator") {
		t.Errorf("acme's agent sees %v", got)
	}
	read := &mcp.ReadResourceParams{URI: "skill://say/SKILL.md"}
	if r, err := own.ReadResource(t.Context(), read); err != nil || !strings.Contains(r.Contents[0].Text, "Run it.") {
		t.Errorf("got %v, %v", r, err)
	}
	if got := names(other); slices.Contains(got, "say") || !slices.Contains(got, "calculator") {
		t.Errorf("globex's agent sees %v", got)
	}
	if _, err := other.ReadResource(t.Context(), read); err == nil {
		t.Error("globex's agent reads acme's skill")
	}
	// globex's own push notifies its agent once, and nothing before it did.
	p.mustPush(p.other, "other", "x")
	<-otherNotified
	if got := names(other); !slices.Contains(got, "other") {
		t.Errorf("globex's agent sees %v", got)
	}
	if len(otherNotified) > 0 {
		t.Error("globex's agent was notified of acme's push")
	}
}

// A deleted skill runs to its end, and its files go then.
func TestDeletedSkillRunsToItsEnd(t *testing.T) {
	t.Parallel()
	p := startPushing(t, "")
	digest := p.mustPush(p.acme, "say", "one")
	stream, err := p.runs.ExecuteInteractive(p.acme)
	if err != nil {
		t.Fatal(err)
	}
	start := shell("say", "echo ready; read line; sh /skills/say/scripts/say.sh; cat scripts/say.sh | wc -l")
	if err := stream.Send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Start{Start: start}}); err != nil {
		t.Fatal(err)
	}
	for ready := false; !ready; {
		m, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		ready = m.GetOutput() != nil
	}
	if r, err := p.about.DeleteSkill(p.acme, &pb.DeleteSkillRequest{Skill: "say"}); err != nil || !slices.Equal(r.GetDigests(), []string{digest}) {
		t.Fatalf("got %v, %v", r, err)
	}
	p.wantSays(p.acme, "say", "SKILL_NOT_FOUND")
	snapshot := filepath.Join(p.dir, "state/tenants/acme/skills", strings.TrimPrefix(digest, "sha256:"))
	if _, err := os.Stat(snapshot); err != nil {
		t.Errorf("the files of a running execution are gone: %v", err)
	}
	if err := stream.Send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Stdin{Stdin: []byte("go on\n")}}); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for {
		m, err := stream.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		out.Write(m.GetOutput().GetData())
	}
	if out.String() != "one\n2\n" {
		t.Errorf("got %q", out.String())
	}
	until(t, "the files of the deleted skill stay", func() bool { _, err := os.Stat(snapshot); return os.IsNotExist(err) })
}

// A daemon that is killed while a push comes in has nothing of it afterwards.
func TestKilledDuringPush(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	d := startDaemonIn(t, dir, "")
	push := func(messages ...*pb.PushSkillRequest) (*pb.PushSkillResponse, error) {
		return (&pushing{secured: &secured{running: d}, about: d.skills.SkillServiceClient}).push(t.Context(), messages...)
	}
	kept, err := push(pushable("say", "kept")...)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := d.skills.PushSkill(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range pushable("say", "lost") {
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	staged := filepath.Join(dir, "state/uploads/*/skill/scripts/say.sh")
	until(t, "the files of the push do not come", func() bool { found, _ := filepath.Glob(staged); return len(found) == 1 })
	d.kill()
	if _, err := stream.CloseAndRecv(); err == nil {
		t.Fatal("the push has an answer")
	}
	d = startDaemonIn(t, dir, "")
	versions, err := d.skills.ListSkillVersions(t.Context(), &pb.ListSkillVersionsRequest{Skill: "say"})
	if err != nil || len(versions.GetVersions()) != 1 || versions.GetVersions()[0].GetDigest() != kept.GetVersion().GetDigest() {
		t.Errorf("got %v, %v; want the version of the first push", versions, err)
	}
	d.run(script("say", "scripts/say.sh")).wantStdout(t, "kept\n")
	if left, _ := filepath.Glob(filepath.Join(dir, "state/uploads/*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// hostilePushes are refused, each with its reason, and leave nothing.
func TestHostilePushes(t *testing.T) {
	t.Parallel()
	p := startPushing(t, "snapshots: {files: 1000, bytes: 1MiB}\n")
	entry := func(e *pb.PushSkillEntry) *pb.PushSkillRequest {
		return &pb.PushSkillRequest{Message: &pb.PushSkillRequest_Entry{Entry: e}}
	}
	header := func(size uint64) *pb.PushSkillRequest {
		return &pb.PushSkillRequest{Message: &pb.PushSkillRequest_Header{Header: &pb.PushSkillHeader{SizeBytes: size}}}
	}
	many := []*pb.PushSkillRequest{header(0)}
	for i := range 100_000 {
		many = append(many, entry(&pb.PushSkillEntry{Path: fmt.Sprintf("f/%d", i)}))
	}
	for name, tt := range map[string]struct {
		messages []*pb.PushSkillRequest
		reason   string
		text     string
	}{
		"nothing":         {nil, "INVALID_REQUEST", "header"},
		"no header":       {pushable("say", "x")[1:], "INVALID_REQUEST", "header"},
		"no SKILL.md":     {pushOf(map[string]string{"a": "x"}), "SKILL_INVALID", "Missing required file: SKILL.md"},
		"parent":          {pushOf(map[string]string{"../../../x": "x"}), "INVALID_REQUEST", "entry.path"},
		"absolute":        {pushOf(map[string]string{"/etc/cron.d/x": "x"}), "INVALID_REQUEST", "entry.path"},
		"NUL":             {pushOf(map[string]string{"a\x00": "x"}), "INVALID_REQUEST", "entry.path"},
		"100,000 files":   {many, "INVALID_REQUEST", "snapshots.files"},
		"huge":            {[]*pb.PushSkillRequest{header(1 << 40)}, "INVALID_REQUEST", "snapshots.bytes"},
		"endless":         {[]*pb.PushSkillRequest{header(1 << 63)}, "INVALID_REQUEST", "header.size_bytes"},
		"more bytes":      {[]*pb.PushSkillRequest{header(1), entry(&pb.PushSkillEntry{Path: "a", SizeBytes: 2})}, "INVALID_REQUEST", "announced"},
		"missing bytes":   {[]*pb.PushSkillRequest{header(2), entry(&pb.PushSkillEntry{Path: "a", SizeBytes: 2, Data: []byte("x")})}, "INVALID_REQUEST", "missing"},
		"outgoing link":   {append(pushable("say", "x"), entry(&pb.PushSkillEntry{Path: "scripts/x", LinkTarget: "/etc/shadow"})), "SKILL_INVALID", "leaves the skill"},
		"through a link":  {append(pushable("say", "x"), entry(&pb.PushSkillEntry{Path: "l", LinkTarget: "/etc"}), entry(&pb.PushSkillEntry{Path: "l/x"})), "INVALID_REQUEST", "not a directory"},
		"twice":           {append(pushable("say", "x"), entry(&pb.PushSkillEntry{Path: "a"}), entry(&pb.PushSkillEntry{Path: "a"})), "INVALID_REQUEST", "twice"},
		"case":            {append(pushable("say", "x"), entry(&pb.PushSkillEntry{Path: "a"}), entry(&pb.PushSkillEntry{Path: "A"})), "INVALID_REQUEST", "case"},
		"built-in name":   {pushOf(map[string]string{"SKILL.md": "---\nname: skillrun.run-python\ndescription: d\n---\n"}), "SKILL_INVALID", "name"},
		"broken manifest": {pushOf(map[string]string{"SKILL.md": "---\nname: [\n---\n"}), "SKILL_INVALID", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := p.push(p.acme, tt.messages...)
			wantReason(t, err, codes.InvalidArgument, tt.reason, tt.text)
		})
	}
	if left, _ := filepath.Glob(filepath.Join(p.dir, "state/uploads/*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if left, _ := filepath.Glob(filepath.Join(p.dir, "state/tenants/acme/skills/*")); len(left) > 1 {
		t.Errorf("left beside the lock: %v", left)
	}
	if strings.Contains(p.log.String(), "level=ERROR") {
		t.Errorf("a caller's mistakes are errors of the log:\n%s", p.log)
	}
	p.mustPush(p.acme, "say", "still works")
	p.wantSays(p.acme, "say", "still works")
}

// The command and the Go client push a folder: the digest is the one that the folder has as a skill of
// the configuration.
func TestPushCommand(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	content := folder.Files{
		"say/SKILL.md":               "---\nname: say\ndescription: A skill that a test pushes.\n---\nRun it.\n",
		"say/scripts/say.sh*":        "#!/bin/sh\necho from a folder\n",
		"say/scripts/link":           "-> say.sh",
		"say/large":                  strings.Repeat("0123456789abcdef", 100_000),
		"say/.git/config":            "not pushed",
		"say/scripts/__pycache__/x":  "not pushed",
		"say/node_modules/.DS_Store": "not pushed",
		"say/node_modules/x":         "pushed",
	}
	content.Write(t, filepath.Join(dir, "skills"))
	d := startDaemonIn(t, dir, "")
	shared, err := d.skills.GetSkill(t.Context(), &pb.GetSkillRequest{Skill: "say"})
	if err != nil {
		t.Fatal(err)
	}
	cli := func(args ...string) string {
		t.Helper()
		cmd := d.cli(args...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("skillrun %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	source := filepath.Join(dir, "skills/say")
	if out := cli("push", "--name", "say", source); !strings.Contains(out, "say@"+shared.Digest+" pushed") {
		t.Errorf("got %s", out)
	}
	if out := cli("push", source); !strings.Contains(out, "was there already") {
		t.Errorf("got %s", out)
	}
	if out := cli("skills", "versions", "say"); !strings.Contains(out, shared.Digest) || strings.Count(out, "\n") != 2 {
		t.Errorf("got %s", out)
	}
	if out := cli("run", "say@"+shared.Digest, "scripts/say.sh"); out != "from a folder\n" {
		t.Errorf("got %q", out)
	}
	if out := cli("skills", "rm", "say"); out != "say: 1 version(s) deleted\n" {
		t.Errorf("got %q", out)
	}
	folder.Files{"bad/SKILL.md": "---\nname: Bad Name\ndescription: d\n---\n"}.Write(t, dir)
	out, err := d.cli("push", filepath.Join(dir, "bad")).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "SKILL.md:2: ") || !strings.Contains(string(out), "SKILL_INVALID") {
		t.Errorf("got %v\n%s", err, out)
	}
}
