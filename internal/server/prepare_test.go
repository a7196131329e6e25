package server

import (
	"testing"

	"google.golang.org/grpc/codes"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// What can't be prepared is refused with its reason. (Builds are tested through the
// daemon.)
func TestPrepareSkill(t *testing.T) {
	d := startIdle(t, nil)
	for skill, want := range map[string]refusal{
		"demo":   {codes.FailedPrecondition, "NO_PACKAGE_SOURCE", ""},
		"nobody": {codes.NotFound, "SKILL_NOT_FOUND", ""},
		"a/b":    {codes.InvalidArgument, "INVALID_SKILL_NAME", "skill"},
	} {
		stream, err := d.about.PrepareSkill(t.Context(), &pb.PrepareSkillRequest{Skill: skill})
		if err != nil {
			t.Fatal(err)
		}
		_, err = stream.Recv()
		wantRefusal(t, err, want)
	}
}

// GetSkill lists each requirement with the place that states it.
func TestGetSkillRequirements(t *testing.T) {
	d := startIdle(t, nil)
	s, err := d.about.GetSkill(t.Context(), &pb.GetSkillRequest{Skill: "demo"})
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Requirements) != 1 || s.Requirements[0].Text != "pandas" || s.Requirements[0].System || s.Requirements[0].File != "SKILL.md" || s.Requirements[0].Line == 0 {
		t.Errorf("got %v, want pandas of SKILL.md", s.Requirements)
	}
}
