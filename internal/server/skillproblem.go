package server

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/skill"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// skillProblems returns the folders of skills that did not load. An operator gets all of them with their paths.
// Other callers get the folders of their tenant and the shared skills that they may see, without paths of the
// daemon's machine.
func (c systemCalls) skillProblems(ctx context.Context, operator bool) (list []*pb.SkillProblem) {
	problems := c.skills.Problems()
	if !operator {
		problems = c.visibleProblems(ctx, problems)
	}
	for _, p := range problems[:min(len(problems), maxSkillProblems)] {
		m := &pb.SkillProblem{Folder: text(p.Folder), Reason: clip(p.Err.Error(), maxStatusText), KeptSkill: text(p.Kept)}
		if operator {
			m.Tenant = text(p.Tenant)
		} else {
			m.Folder, m.Reason = text(filepath.Base(p.Folder)), clip(withoutPaths(p), maxStatusText)
		}
		list = append(list, m)
	}
	return list
}

func (c systemCalls) visibleProblems(ctx context.Context, all []skill.Problem) []skill.Problem {
	who := caller(ctx)
	t, err := c.x.Tenant(who)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(all, func(p skill.Problem) bool {
		if p.Tenant != "" {
			return p.Tenant != who.Tenant
		}
		// A shared folder that did not load has no skill's name yet, so its own name stands for it.
		return !t.SeesShared(filepath.Base(p.Folder)) && (p.Kept == "" || !t.SeesShared(p.Kept))
	})
}

// withoutPaths returns the reason of a problem with names in place of the paths of folders.
func withoutPaths(p skill.Problem) string {
	if e, ok := errors.AsType[*skill.DuplicateError](p.Err); ok {
		return (&skill.DuplicateError{Name: e.Name, Kept: filepath.Base(e.Kept), Folder: filepath.Base(e.Folder)}).Error()
	}
	return strings.ReplaceAll(p.Err.Error(), strings.TrimSuffix(filepath.Dir(p.Folder), "/")+"/", "")
}
