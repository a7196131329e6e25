package server

import (
	"context"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// skillProblems returns the folders of skills that did not load. An operator gets all of them with their paths.
// Other callers get those of their view.
func (c systemCalls) skillProblems(ctx context.Context, operator bool) (list []*pb.SkillProblem) {
	problems := c.skills.Problems
	if !operator {
		problems = c.skills.For(caller(ctx).Tenant).Problems
	}
	all := problems()
	for _, p := range all[:min(len(all), maxSkillProblems)] {
		m := &pb.SkillProblem{Folder: text(p.Folder), Reason: clip(p.Err.Error(), maxStatusText), KeptSkill: text(p.Kept)}
		if operator {
			m.Tenant = text(p.Tenant)
		}
		list = append(list, m)
	}
	return list
}
