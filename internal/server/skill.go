package server

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/skillrun/skillrun/internal/lint"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/manifest"
	"github.com/skillrun/skillrun/internal/toolview"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// rulesBaseDir replaces {baseDir} in rules that come without a skill. It has the form of every
// skill's directory in a sandbox.
const rulesBaseDir = "/skills/skill"

// skillCalls answers the calls of SkillService.
type skillCalls struct {
	pb.UnsafeSkillServiceServer
	*Server
}

// skillsOf returns the skills that the caller sees.
func (c skillCalls) skillsOf(ctx context.Context) skill.View { return c.skills.For(caller(ctx).Tenant) }

// A page token of ListSkills has the name after which the page begins, so that it stays good when
// the registry changes, and the tenant whose list it is.
func (c skillCalls) ListSkills(ctx context.Context, m *pb.ListSkillsRequest) (*pb.ListSkillsResponse, error) {
	size, list := pageSize(m.GetPageSize(), maxPage), caller(ctx).Tenant
	after, err := parsePageToken(list, m.GetPageToken())
	if err != nil {
		return nil, err
	}
	// List is sorted by name and makes a new slice for each call.
	shown := slices.DeleteFunc(c.skillsOf(ctx).List(), func(sk *skill.Skill) bool {
		return sk.Name <= after || sk.Name == toolview.BuiltInSkill || sk.Manifest.DisableModelInvocation && !m.GetIncludeHidden()
	})
	return fittingPage(size, func(size int) (*pb.ListSkillsResponse, error) {
		page := &pb.ListSkillsResponse{}
		for _, sk := range shown[:min(size, len(shown))] {
			page.Skills = append(page.Skills, &pb.SkillSummary{
				Name: text(sk.Name), Description: text(sk.Manifest.Description), Digest: sk.Digest, McpUnlisted: text(sk.Unlisted()),
			})
		}
		if size < len(shown) {
			page.NextPageToken = pageToken(list, shown[size-1].Name)
		}
		return page, nil
	})
}

// GetSkill takes a name, or name@digest for one version of the skill (skill.View.Resolve).
func (c skillCalls) GetSkill(ctx context.Context, m *pb.GetSkillRequest) (*pb.GetSkillResponse, error) {
	sk, err := c.skillsOf(ctx).Resolve(m.GetSkill())
	if err != nil {
		return nil, err
	}
	found, err := fromSkill(sk)
	if err != nil {
		return nil, err
	}
	return &pb.GetSkillResponse{Skill: found}, nil
}

// ActivateSkill returns the instructions and the messages that an agent adds to its conversation,
// with the limits that an execution would have. It runs nothing and records nothing.
func (c skillCalls) ActivateSkill(ctx context.Context, m *pb.ActivateSkillRequest) (*pb.ActivateSkillResponse, error) {
	sk, err := c.skillsOf(ctx).Resolve(m.GetSkill())
	if err != nil {
		return nil, err
	}
	asked, err := newLimits(m.GetLimits())
	if err != nil {
		return nil, err
	}
	// Of a script: the kinds differ only in the default wall time of commands.
	limits, err := c.x.EffectiveLimits(caller(ctx), asked, permission.Script, sk)
	if err != nil {
		return nil, err
	}
	a := sk.Activate()
	out := &pb.ActivateSkillResponse{
		Name:          text(a.Name),
		Digest:        a.Digest,
		Instructions:  text(a.Instructions),
		BaseDir:       text(a.BaseDir),
		AllowedTools:  texts(a.AllowedTools),
		Limits:        fromLimits(limits),
		NetworkAccess: sk.Manifest.NetworkAccess,
		Model:         text(a.Model),
		Context:       fromContext(a.Context),
	}
	for _, msg := range a.Messages {
		out.Messages = append(out.Messages, &pb.ActivationMessage{
			Role: msg.Role, Type: string(msg.Type), IsMeta: msg.IsMeta, Content: text(msg.Content),
			AllowedTools: texts(msg.AllowedTools), Model: text(msg.Model),
		})
	}
	return out, nil
}

// fromContext rounds up the time and down the memory: a limit of less than a second must not
// become 0.
func fromContext(c skill.Context) *pb.ActivationContext {
	out := &pb.ActivationContext{BaseDir: text(c.BaseDir), ScriptExecutor: c.ScriptExecutor}
	if k := c.Constraints; k != nil {
		// The published contract counts time in whole seconds and memory in MiB.
		out.Constraints = &pb.ExecutionConstraints{
			MaxExecutionTime: new(int32(math.Ceil(k.MaxExecutionTime.Seconds()))), NetworkAccess: &k.NetworkAccess,
			AllowedCommands: texts(k.AllowedCommands), WorkingDirectory: &k.WorkingDirectory,
		}
		if k.MaxMemoryBytes > 0 {
			mb := int32(k.MaxMemoryBytes >> 20)
			out.Constraints.MaxMemory = &mb
		}
	}
	return out
}

// ReadSkillFile sends a file of a snapshot, from an offset. The file can't change while it
// is sent: a snapshot is immutable.
func (c skillCalls) ReadSkillFile(m *pb.ReadSkillFileRequest, stream grpc.ServerStreamingServer[pb.ReadSkillFileResponse]) error {
	sk, err := c.skillsOf(stream.Context()).Resolve(m.GetSkill())
	if err != nil {
		return err
	}
	file, e, err := sk.Open(sk.Within(m.GetPath()))
	if err != nil {
		return &fieldError{"path", err}
	}
	defer file.Close()
	head := &pb.ReadSkillFileResponse{SizeBytes: uint64(e.Size), Sha256: e.SHA256}
	return sendChunks(file, e.Size, m.GetOffsetBytes(), func(offset uint64, data []byte) error {
		r := head
		head = &pb.ReadSkillFileResponse{} // only in the first message
		r.OffsetBytes, r.Data = offset, data
		return stream.Send(r)
	})
}

// CheckCommand runs nothing. Without a skill it applies the rules of the request; with one, the
// skill's own rules, as Execute would.
func (c skillCalls) CheckCommand(ctx context.Context, m *pb.CheckCommandRequest) (*pb.CheckCommandResponse, error) {
	if m.GetSkill() == "" {
		rules := permission.ParseRules([]string{m.GetAllowedTools()}, rulesBaseDir)
		t, err := c.x.Tenant(caller(ctx))
		if err != nil {
			return nil, err
		}
		return fromDecision(t.Policy.Decide(rules, m.GetCommand())), nil
	}
	sk, err := c.skillsOf(ctx).Resolve(m.GetSkill())
	if err != nil {
		return nil, err
	}
	source := permission.Source{Kind: permission.Command, Command: m.GetCommand()}
	// Check finds more reasons to refuse than the rules: a network that the tenant does not
	// get, say. If it allows the line, DecideFor has the rule.
	_, err = c.x.Check(caller(ctx), sk, source, nil)
	if refused, ok := errors.AsType[*permission.NetworkRefused](err); ok {
		return fromDecision(permission.Decision{Reason: refused.Error()}), nil
	}
	if denied, ok := errors.AsType[*permission.Denied](err); ok {
		return fromDecision(permission.Decision{Reason: denied.Reason, Missing: denied.Rule, Instead: denied.Instead}), nil
	}
	if err != nil {
		return nil, err
	}
	t, err := c.x.Tenant(caller(ctx))
	if err != nil {
		return nil, err
	}
	return fromDecision(t.Policy.DecideFor(sk, m.GetCommand())), nil
}

// fromDecision has the commands only if the line is allowed: a refused line has no plan.
func fromDecision(d permission.Decision) *pb.CheckCommandResponse {
	return &pb.CheckCommandResponse{
		Allowed: proto.Bool(d.Allowed), Reason: text(d.Reason), Rule: text(d.Rule), Commands: fromCommands(d.Plan.Commands()),
		MissingRule: text(d.Missing), Instead: string(d.Instead),
	}
}

// ValidateSkill reports findings as `skillrun validate` does. A loaded skill is checked with all of
// its files; a text of SKILL.md is checked alone.
func (c skillCalls) ValidateSkill(ctx context.Context, m *pb.ValidateSkillRequest) (*pb.ValidateSkillResponse, error) {
	var findings []manifest.Finding
	switch subject := m.GetSubject().(type) {
	case *pb.ValidateSkillRequest_Skill:
		sk, err := c.skillsOf(ctx).Resolve(subject.Skill)
		if err != nil {
			return nil, err
		}
		// With this daemon's runtimes, packages and policy, as an execution would find them.
		who := caller(ctx)
		t, err := c.x.Tenant(who)
		if err != nil {
			return nil, err
		}
		if findings, err = lint.Skill(ctx, sk, &lint.Machine{
			Runtimes: c.x.Runtimes, HasPackages: c.x.HasPythonPackages(who, sk), HasNodePackages: c.x.HasNodePackages(who, sk), Daemon: true, Policy: &t.Policy,
		}); err != nil {
			return nil, err
		}
	case *pb.ValidateSkillRequest_SkillMd:
		if strings.ContainsAny(m.GetFolder(), "/\x00") {
			return nil, invalid("folder", "must be a name, not a path")
		}
		findings = manifest.Validate(subject.SkillMd, m.GetFolder())
	default:
		return nil, invalid("subject", "set one of skill and skill_md")
	}
	valid := !slices.ContainsFunc(findings, func(f manifest.Finding) bool { return f.Severity == manifest.SeverityError })
	return &pb.ValidateSkillResponse{Valid: proto.Bool(valid), Findings: fromFindings(findings)}, nil
}

// fromFindings keeps the order. A line of 0 means the whole file.
func fromFindings(list []manifest.Finding) []*pb.Finding {
	out := make([]*pb.Finding, len(list))
	for i, f := range list {
		out[i] = fromFinding(f)
	}
	return out
}

func fromFinding(f manifest.Finding) *pb.Finding {
	return &pb.Finding{
		Severity: severityNumbers[f.Severity], File: text(f.File), Line: uint32(f.Line), Rule: f.Rule, Message: text(f.Message),
	}
}
