package main

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/skillrun/skillrun/internal/skill"
)

// A venvSkill is a skill with a venv. hold finds the skill and keeps its snapshot on disk.
type venvSkill struct {
	venvKey
	hold func() (sk *skill.Skill, release func(), err error)
}

// A venvKey names a skill with a venv. Two tenants may push equal files: each skill is compiled, as if it were the only
// one, so that no tenant learns of the other's.
type venvKey struct{ tenant, digest string } // tenant is "" for skills of the roots

// compileVenvs compiles the modules of skills with a venv when they are imported, one skill after the other, until ctx
// ends: first skills of the roots, then pushed skills, the next one of the tenant that had the fewest.
func (d *daemon) compileVenvs(ctx context.Context) {
	tried := map[venvKey]bool{}
	turns := map[string]int{}               // by tenant: its pushed skills that were tried
	for unread := true; ctx.Err() == nil; { // unread: also pushed skills of tenants that have made no call since the start
		changed := d.skills.Changed()
		venvs := d.untriedVenvs(tried, unread)
		if len(venvs) == 0 {
			unread = false
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
			continue
		}
		tenant := slices.MinFunc(slices.Sorted(maps.Keys(venvs)), func(a, b string) int { return cmp.Compare(turns[a], turns[b]) })
		next := venvs[tenant][0]
		tried[next.venvKey] = true
		if tenant != "" {
			turns[tenant]++
		}
		sk, release, err := next.hold()
		if err != nil {
			continue // it was removed, or the registry has logged that it is damaged
		}
		room := d.executor.CompileVenv(ctx, sk)
		release()
		if !room {
			d.log.Warn("environments.bytes is full, so venvs of the tenant are compiled after the first execution of their skill",
				"tenant", tenant, "skill", sk.Name)
			for _, v := range venvs[tenant] {
				tried[v.venvKey] = true
			}
		}
	}
}

// untriedVenvs returns the skills with a venv that were not tried, by tenant. The key "" has the skills of the roots.
// It drops from tried the skills that are gone.
func (d *daemon) untriedVenvs(tried map[venvKey]bool, unread bool) map[string][]venvSkill {
	venvs, now := map[string][]venvSkill{}, map[venvKey]bool{}
	add := func(key venvKey, hold func() (*skill.Skill, func(), error)) {
		if now[key] = true; !tried[key] {
			venvs[key.tenant] = append(venvs[key.tenant], venvSkill{key, hold})
		}
	}
	for _, sk := range d.skills.OfRoots() {
		if sk.HasVenv() {
			add(venvKey{"", sk.Digest}, func() (*skill.Skill, func(), error) { return sk, func() {}, nil })
		}
	}
	for tenant, pushed := range d.skills.PushedVenvs(unread) {
		for _, v := range pushed {
			add(venvKey{tenant, v.Digest}, func() (*skill.Skill, func(), error) {
				return d.skills.For(tenant).Hold(v.Name + "@" + v.Digest)
			})
		}
	}
	maps.DeleteFunc(tried, func(key venvKey, _ bool) bool { return !now[key] })
	return venvs
}
