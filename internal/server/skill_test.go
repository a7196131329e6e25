package server

import (
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/lint"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

func TestListSkills(t *testing.T) {
	d := startIdle(t, nil)
	list := func(m *pb.ListSkillsRequest) ([]string, string) {
		t.Helper()
		page, err := d.about.ListSkills(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, s := range page.Skills {
			names = append(names, s.Name)
			if s.Description == "" || !strings.HasPrefix(s.Digest, "sha256:") {
				t.Errorf("summary %v", s)
			}
		}
		return names, page.NextPageToken
	}
	if got, next := list(&pb.ListSkillsRequest{}); !slices.Equal(got, []string{"demo"}) || next != "" {
		t.Errorf("got %v, %q; want no hidden one", got, next)
	}
	first, next := list(&pb.ListSkillsRequest{IncludeHidden: true, PageSize: 1})
	second, end := list(&pb.ListSkillsRequest{IncludeHidden: true, PageSize: 1, PageToken: next})
	if got := append(first, second...); !slices.Equal(got, []string{"demo", "plain"}) || next == "" || end != "" {
		t.Errorf("pages: got %v, tokens %q, %q", got, next, end)
	}
	if got, _ := list(&pb.ListSkillsRequest{IncludeHidden: true, PageSize: maxPage + 1}); !slices.Equal(got, []string{"demo", "plain"}) {
		t.Errorf("a page that is too large: got %v, want it clamped", got)
	}
	_, err := d.about.ListSkills(t.Context(), &pb.ListSkillsRequest{PageToken: "?"})
	wantRefusal(t, err, refusal{codes.InvalidArgument, "INVALID_REQUEST", "page_token"})
}

func TestGetSkill(t *testing.T) {
	d := startIdle(t, nil)
	s, err := d.about.GetSkill(t.Context(), &pb.GetSkillRequest{Skill: "demo"})
	if err != nil {
		t.Fatal(err)
	}
	if s.Name != "demo" || s.License != "Apache-2.0" || s.Compatibility != "bash" || s.Version != "1.2.3" || s.Author != "Tester" ||
		!slices.Equal(s.Tags, []string{"one", "two"}) || s.Metadata["team"] != "server" || len(s.AllowedTools) != 2 || !s.HasAllowedTools ||
		s.Model != "small" || s.WhenToUse != "in tests" || s.MaxExecutionTime.AsDuration() != time.Minute || s.MaxMemoryBytes != 128<<20 ||
		s.NetworkAccess || s.DisableModelInvocation || s.Python != "auto" ||
		!slices.Equal(s.PythonPackages, []string{"pandas"}) {
		t.Errorf("got %v", s)
	}
	if got := s.UnknownFields.AsMap()["custom"].(map[string]any)["nested"].([]any); len(got) != 3 || got[0] != 1.0 || got[1] != true || got[2] != "two" {
		t.Errorf("unknown fields %v", s.UnknownFields)
	}
	i := slices.IndexFunc(s.Scripts, func(s *pb.SkillScript) bool { return s.Path == "scripts/hello.sh" })
	if i < 0 || s.Scripts[i].Language != "bash" || !strings.HasPrefix(s.Scripts[i].Description, "Says hello") {
		t.Errorf("scripts %v", s.Scripts)
	}
	if s.FileCount == 0 || s.SizeBytes == 0 {
		t.Errorf("%d files, %d bytes", s.FileCount, s.SizeBytes)
	}
	pinned, err := d.about.GetSkill(t.Context(), &pb.GetSkillRequest{Skill: "demo@" + s.Digest})
	if err != nil || pinned.Digest != s.Digest {
		t.Errorf("pinned: %v, %v", pinned, err)
	}
	hidden, err := d.about.GetSkill(t.Context(), &pb.GetSkillRequest{Skill: "plain"})
	if err != nil || !hidden.DisableModelInvocation || !hidden.NetworkAccess || hidden.HasAllowedTools || hidden.MaxExecutionTime != nil || hidden.UnknownFields != nil {
		t.Errorf("got %v, %v", hidden, err)
	}
	for name, want := range map[string]refusal{
		"":                                {codes.InvalidArgument, "INVALID_SKILL_NAME", "skill"},
		"../demo":                         {codes.InvalidArgument, "INVALID_SKILL_NAME", "skill"},
		"nope":                            {codes.NotFound, "SKILL_NOT_FOUND", ""},
		"demo@" + "sha256:" + sum("nope"): {codes.FailedPrecondition, "DIGEST_MISMATCH", ""},
	} {
		_, err := d.about.GetSkill(t.Context(), &pb.GetSkillRequest{Skill: name})
		wantRefusal(t, err, want)
	}
}

func TestActivateSkill(t *testing.T) {
	d := startIdle(t, nil)
	a, err := d.about.ActivateSkill(t.Context(), &pb.ActivateSkillRequest{Skill: "demo", Limits: &pb.ExecutionLimits{Processes: 7}})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(a.Instructions, "`/skills/demo/scripts/hello.sh`") || a.BaseDir != "/skills/demo" ||
		!slices.Contains(a.AllowedTools, "Bash(cat /skills/demo/references/*)") || a.Model != "small" {
		t.Errorf("got %v", a)
	}
	// The skill's max_memory and max_execution_time are its defaults.
	if a.Limits.MemoryBytes != 128<<20 || a.Limits.Processes != 7 || a.Limits.WallTime.AsDuration() != time.Minute {
		t.Errorf("limits %v", a.Limits)
	}
	var types []string
	for _, m := range a.Messages {
		types = append(types, m.Type)
		if m.Role != "user" || m.IsMeta != (m.Type != "metadata") {
			t.Errorf("message %v", m)
		}
	}
	if want := []string{"metadata", "prompt", "command_permissions"}; !slices.Equal(types, want) {
		t.Errorf("messages %v, want %v", types, want)
	}
	if last := a.Messages[2]; !slices.Equal(last.AllowedTools, a.AllowedTools) || last.Model != "small" {
		t.Errorf("permissions %v", last)
	}
	k := a.Context.GetConstraints()
	if a.Context.BaseDir != "/skills/demo" || !a.Context.ScriptExecutor || k.GetMaxExecutionTime() != 60 || k.GetMaxMemory() != 128 ||
		k.GetNetworkAccess() || !slices.Equal(k.GetAllowedCommands(), a.AllowedTools) || k.GetWorkingDirectory() != "/workspace" {
		t.Errorf("context %v", a.Context)
	}
	_, err = d.about.ActivateSkill(t.Context(), &pb.ActivateSkillRequest{Skill: "demo", Limits: &pb.ExecutionLimits{WallTime: durationpb.New(time.Hour)}})
	wantRefusal(t, err, refusal{codes.InvalidArgument, "LIMIT_TOO_LARGE", "limits.wall_time"})
	_, err = d.about.ActivateSkill(t.Context(), &pb.ActivateSkillRequest{Skill: "demo", Limits: &pb.ExecutionLimits{CpuTime: durationpb.New(0)}})
	wantRefusal(t, err, refusal{codes.InvalidArgument, "INVALID_REQUEST", "limits.cpu_time"})
	_, err = d.about.ActivateSkill(t.Context(), &pb.ActivateSkillRequest{Skill: "nope"})
	wantRefusal(t, err, refusal{codes.NotFound, "SKILL_NOT_FOUND", ""})
}

func TestReadSkillFile(t *testing.T) {
	d := startIdle(t, nil)
	read := func(m *pb.ReadSkillFileRequest) (string, []*pb.ReadSkillFileResponse, error) {
		t.Helper()
		s, err := d.about.ReadSkillFile(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		var data string
		var all []*pb.ReadSkillFileResponse
		for {
			r, err := s.Recv()
			if errors.Is(err, io.EOF) {
				return data, all, nil
			}
			if err != nil {
				return data, all, err
			}
			data += string(r.Data)
			all = append(all, r)
		}
	}
	want, err := os.ReadFile("testdata/skills/demo/references/REFERENCE.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, offset := range []int{0, 3, len(want)} {
		got, all, err := read(&pb.ReadSkillFileRequest{Skill: "demo", Path: "references/REFERENCE.md", OffsetBytes: uint64(offset)})
		if err != nil || got != string(want[offset:]) || len(all) != 1 || all[0].OffsetBytes != uint64(offset) ||
			all[0].SizeBytes != uint64(len(want)) || all[0].Sha256 != sum(string(want)) {
			t.Errorf("from %d: got %q, %v, %v", offset, got, all, err)
		}
	}
	for _, path := range []string{"/skills/demo/references/REFERENCE.md", "{baseDir}/references/REFERENCE.md"} {
		if got, _, err := read(&pb.ReadSkillFileRequest{Skill: "demo", Path: path}); err != nil || got != string(want) {
			t.Errorf("%s: got %q, %v", path, got, err)
		}
	}
	for _, c := range []struct {
		m    *pb.ReadSkillFileRequest
		want refusal
	}{
		{&pb.ReadSkillFileRequest{Skill: "demo", Path: "references/REFERENCE.md", OffsetBytes: 1 << 40}, refusal{codes.OutOfRange, "OFFSET_PAST_END", "offset_bytes"}},
		{&pb.ReadSkillFileRequest{Skill: "demo", Path: "nope"}, refusal{codes.NotFound, "SKILL_FILE_NOT_FOUND", ""}},
		{&pb.ReadSkillFileRequest{Skill: "demo", Path: "references"}, refusal{codes.InvalidArgument, "SKILL_PATH_IS_DIRECTORY", "path"}},
		{&pb.ReadSkillFileRequest{Skill: "demo", Path: "/etc/passwd"}, refusal{codes.InvalidArgument, "SKILL_PATH_ESCAPES", "path"}},
		{&pb.ReadSkillFileRequest{Skill: "demo", Path: ""}, refusal{codes.InvalidArgument, "INVALID_SKILL_PATH", "path"}},
		{&pb.ReadSkillFileRequest{Skill: "nope", Path: "SKILL.md"}, refusal{codes.NotFound, "SKILL_NOT_FOUND", ""}},
	} {
		_, _, err := read(c.m)
		wantRefusal(t, err, c.want)
	}
}

// CheckCommand and Execute say the same, and the words help.
func TestCheckCommand(t *testing.T) {
	d := startDaemon(t, nil)
	for _, c := range []struct {
		name    string
		m       *pb.CheckCommandRequest
		allowed bool
		rule    string
		runs    []string // joined
		reason  string
	}{
		{"covered", &pb.CheckCommandRequest{Skill: "demo", Command: "echo 'a b' && cat {baseDir}/references/REFERENCE.md"}, true,
			"Bash(echo:*), Bash(cat {baseDir}/references/*)", []string{"echo|a b", "cat|/skills/demo/references/REFERENCE.md"}, "covered by"},
		{"not covered", &pb.CheckCommandRequest{Skill: "demo", Command: "rm x"}, false, "", nil, "rm"},
		{"not parsed", &pb.CheckCommandRequest{Skill: "demo", Command: "echo $(id)"}, false, "", nil, ""},
		{"no rules", &pb.CheckCommandRequest{Skill: "plain", Command: "echo x"}, false, "", nil, "allowed-tools"},
		{"given rules", &pb.CheckCommandRequest{Command: "ls {baseDir}/x", AllowedTools: "Read, Bash(ls {baseDir}/*)"}, true,
			"Bash(ls {baseDir}/*)", []string{"ls|/skills/skill/x"}, "covered by"},
		{"given rules that don't cover it", &pb.CheckCommandRequest{Command: "ls", AllowedTools: "Bash(git:*)"}, false, "", nil, ""},
		{"no rules at all", &pb.CheckCommandRequest{Command: "ls"}, false, "", nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := d.about.CheckCommand(t.Context(), c.m)
			if err != nil {
				t.Fatal(err)
			}
			var runs []string
			for _, a := range r.Commands {
				runs = append(runs, strings.Join(a.Args, "|"))
			}
			if r.GetAllowed() != c.allowed || r.Rule != c.rule || !slices.Equal(runs, c.runs) || !strings.Contains(r.Reason, c.reason) || r.Reason == "" {
				t.Errorf("got %v", r)
			}
			if c.m.Skill == "" {
				return
			}
			e := d.execute(&pb.ExecuteRequest{Skill: c.m.Skill, Source: &pb.ExecuteRequest_Command{Command: c.m.Command}})
			if accepted := e.header != nil; accepted != r.GetAllowed() {
				t.Errorf("Execute: %v, %v", e.header, e.err)
			}
		})
	}
	_, err := d.about.CheckCommand(t.Context(), &pb.CheckCommandRequest{Skill: "nope", Command: "ls"})
	wantRefusal(t, err, refusal{codes.NotFound, "SKILL_NOT_FOUND", ""})
}

// A policy that grants a shell, and one that does not grant network, decide as
// in Execute.
func TestCheckCommandFollowsPolicy(t *testing.T) {
	d := startIdle(t, func(c *executor.Config, _ *Config) { c.Policy.Shell = true })
	r, err := d.about.CheckCommand(t.Context(), &pb.CheckCommandRequest{Command: "echo $(id)", AllowedTools: "Bash"})
	if err != nil || !r.GetAllowed() || r.Rule != "Bash" || len(r.Commands) != 1 || r.Commands[0].Args[0] != "bash" {
		t.Errorf("got %v, %v", r, err)
	}
}

// A loaded skill without allowed-tools is judged by this daemon's policy.
func TestValidateSkillFollowsPolicy(t *testing.T) {
	for rule, refused := range map[string]bool{"Bash(git:*)": true, "Bash(ls:*)": false} {
		d := startIdle(t, func(c *executor.Config, _ *Config) { c.Policy.Unlisted.Rules = []string{rule} })
		r, err := d.about.ValidateSkill(t.Context(), &pb.ValidateSkillRequest{Subject: &pb.ValidateSkillRequest_Skill{Skill: "plain"}})
		if err != nil {
			t.Fatal(err)
		}
		found := slices.ContainsFunc(r.Findings, func(f *pb.Finding) bool {
			return f.Rule == "command-refused" && f.Line == 10 && strings.Contains(f.Message, "'ls references' is not covered")
		})
		if found != refused {
			t.Errorf("with %s: %v", rule, r.Findings)
		}
	}
}

func TestValidateSkill(t *testing.T) {
	d := startIdle(t, nil)
	md := func(text, folder string) *pb.ValidateSkillRequest {
		return &pb.ValidateSkillRequest{Subject: &pb.ValidateSkillRequest_SkillMd{SkillMd: text}, Folder: folder}
	}
	const good = "---\nname: good\ndescription: d\n---\n"
	for _, c := range []struct {
		name  string
		m     *pb.ValidateSkillRequest
		valid bool
		rule  string // of some finding
		line  uint32
	}{
		{"good", md(good, "good"), true, "", 0},
		{"folder not checked", md(good, ""), true, "", 0},
		{"other folder", md(good, "other"), false, "name-folder", 2},
		{"no name", md("---\ndescription: d\n---\n", ""), false, "name-missing", 2},
		{"broken YAML", md("---\nname: [\n---\n", ""), false, "yaml", 2},
		{"empty", md("", ""), false, "front-matter", 0},
		{"loaded", &pb.ValidateSkillRequest{Subject: &pb.ValidateSkillRequest_Skill{Skill: "demo"}}, true, "unknown-field", 18},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := d.about.ValidateSkill(t.Context(), c.m)
			if err != nil {
				t.Fatal(err)
			}
			if r.GetValid() != c.valid {
				t.Errorf("valid: got %t (%v)", r.GetValid(), r.Findings)
			}
			if c.rule == "" {
				return
			}
			i := slices.IndexFunc(r.Findings, func(f *pb.Finding) bool { return strings.HasPrefix(f.Rule, c.rule) })
			if i < 0 {
				t.Fatalf("no finding %s among %v", c.rule, r.Findings)
			}
			if f := r.Findings[i]; f.File != "SKILL.md" || c.line > 0 && f.Line != c.line || f.Message == "" || (f.Severity == pb.FindingSeverity_FINDING_SEVERITY_ERROR) == c.valid {
				t.Errorf("got %v, want line %d", f, c.line)
			}
		})
	}
	// A loaded skill is looked at as skillrun validate does.
	r, err := d.about.ValidateSkill(t.Context(), &pb.ValidateSkillRequest{Subject: &pb.ValidateSkillRequest_Skill{Skill: "demo"}})
	if err != nil || !slices.ContainsFunc(r.Findings, func(f *pb.Finding) bool {
		return f.Rule == lint.RulePackageUnpinned && f.File == "SKILL.md" && f.Line == 17 && f.Severity == pb.FindingSeverity_FINDING_SEVERITY_WARNING
	}) {
		t.Errorf("no finding %s in line 17: %v, %v", lint.RulePackageUnpinned, r, err)
	}
	_, err = d.about.ValidateSkill(t.Context(), &pb.ValidateSkillRequest{})
	wantRefusal(t, err, refusal{codes.InvalidArgument, "INVALID_REQUEST", "subject"})
	_, err = d.about.ValidateSkill(t.Context(), md(good, "a/b"))
	wantRefusal(t, err, refusal{codes.InvalidArgument, "INVALID_REQUEST", "folder"})
	_, err = d.about.ValidateSkill(t.Context(), &pb.ValidateSkillRequest{Subject: &pb.ValidateSkillRequest_Skill{Skill: "nope"}})
	wantRefusal(t, err, refusal{codes.NotFound, "SKILL_NOT_FOUND", ""})
}
