package skill

import (
	"cmp"
	"slices"

	"github.com/skillrun/skillrun/internal/skill/manifest"
)

// Rules say which shared skills a tenant sees, and how much it may push.
type Rules struct {
	// Shared reports whether the tenant sees a shared skill. Nil: it sees all of them.
	Shared func(name string) bool
	// MaxBytes bounds all kept versions of the tenant's pushed skills together, MaxVersions the kept
	// versions of each skill. 0: no bound.
	MaxBytes    int64
	MaxVersions int
	// NoPush: the tenant may push nothing, because it is not configured any longer.
	NoPush bool
	// Source reports whether the tenant may push a skill that comes from a host. Nil: from every host.
	Source func(host string) bool
}

func (r *Registry) rules(tenant string) Rules {
	if r.config.Rules == nil {
		return Rules{}
	}
	return r.config.Rules(tenant)
}

// A View shows a Registry to one tenant: the skills that the tenant pushed, the skills of its private roots, and
// the shared skills that its rules allow. The View never reads the skills of another tenant.
type View struct {
	registry *Registry
	tenant   string
}

// For returns the view of a tenant. The tenant without a name sees the shared skills only.
func (r *Registry) For(tenant string) View { return View{r, tenant} }

// Resolve finds a skill as Registry.Resolve does. A pushed skill hides one of a private root with the same
// name, and both hide a shared skill. A pin finds every kept version of a pushed skill.
func (v View) Resolve(ref string) (*Skill, error) {
	name, digest, err := ParseRef(ref)
	if err != nil {
		return nil, err
	}
	own, ownErr := v.own(name, digest)
	if own != nil || ownErr != nil && !isMismatch(ownErr) {
		return own, ownErr
	}
	mine, mineErr := v.private(name, digest)
	if mine != nil || mineErr != nil && !isMismatch(mineErr) {
		return mine, mineErr
	}
	if ownErr == nil {
		ownErr = mineErr
	}
	shared, err := v.registry.resolve(name, digest, v.visible())
	if err != nil && ownErr != nil {
		return nil, ownErr // a mismatch names the caller's own digest
	}
	if missing, ok := err.(*NotFoundError); ok {
		missing.Why = v.whyMissing(name)
	}
	return shared, err
}

// own returns a pushed skill. It returns nil if the tenant has pushed no skill with this name.
func (v View) own(name, digest string) (*Skill, error) {
	o := v.registry.owner(v.tenant)
	if o == nil {
		return nil, nil
	}
	return o.resolve(name, digest)
}

// private returns a skill of the tenant's private roots. It returns nil if none has the name.
func (v View) private(name, digest string) (*Skill, error) {
	p := v.registry.mine()
	s, err := p.of(v.tenant).find(name, nil)
	if _, no := err.(*NotFoundError); no {
		namespace, _ := manifest.SplitName(name)
		if !hasNamespace(p.roots[v.tenant], namespace) || v.registry.showsNamespace(v.registry.now.Load(), namespace, v.visible()) {
			err = nil // it may be a shared skill
		}
		return nil, err
	}
	if err == nil && digest != "" && digest != s.Digest {
		return nil, &DigestMismatch{Name: name, Want: digest, Have: s.Digest}
	}
	return s, err
}

func isMismatch(err error) bool {
	_, ok := err.(*DigestMismatch)
	return ok
}

// Hold is like Resolve, and the snapshot stays on disk until release is called, even after the skill is
// deleted or replaced. Each execution holds its skill until its end.
func (v View) Hold(ref string) (sk *Skill, release func(), err error) {
	for {
		if sk, err = v.Resolve(ref); err != nil {
			return nil, nil, err
		}
		hold := v.registry.copies.hold
		if sk.pushedBy != "" {
			hold = v.registry.owner(v.tenant).hold
		}
		if release, ok := hold(sk.Digest); ok {
			return sk, release, nil
		}
		// It was deleted or replaced in this moment: resolve it again.
	}
}

// visible returns sees, or nil if the tenant sees all shared skills.
func (v View) visible() func(name string) bool {
	if v.registry.rules(v.tenant).Shared == nil {
		return nil
	}
	return v.sees
}

// sees reports whether the tenant sees a shared skill.
func (v View) sees(name string) bool {
	if slices.Contains(v.registry.config.Reserved, name) {
		return true
	}
	shared := v.registry.rules(v.tenant).Shared
	return shared == nil || shared(name)
}

// List returns all skills that the tenant sees, sorted by full name.
func (v View) List() []*Skill {
	all := slices.DeleteFunc(v.registry.List(), func(s *Skill) bool { return !v.sees(s.Name) })
	all = hide(all, v.registry.mine().of(v.tenant).list)
	if o := v.registry.owner(v.tenant); o != nil {
		all = hide(all, o.list())
	}
	return all
}

// hide returns the skills of both lists. If two have the same name, it takes the one of own.
func hide(list, own []*Skill) []*Skill {
	if len(own) == 0 {
		return list
	}
	hidden := make(map[string]bool, len(own))
	for _, s := range own {
		hidden[s.Name] = true
	}
	all := append(slices.DeleteFunc(list, func(s *Skill) bool { return hidden[s.Name] }), own...)
	slices.SortFunc(all, func(a, b *Skill) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// HasNamespace reports whether a root that the tenant sees has the namespace.
func (v View) HasNamespace(namespace string) bool {
	return v.registry.showsNamespace(v.registry.now.Load(), namespace, v.visible()) || v.ownsNamespace(namespace)
}

func (v View) ownsNamespace(namespace string) bool {
	return hasNamespace(v.registry.mine().roots[v.tenant], namespace)
}

// Versions returns the kept versions of a skill, the newest first. A shared skill has one, without
// the time of a push.
func (v View) Versions(name string) ([]Version, error) {
	if _, digest, err := ParseRef(name); err != nil {
		return nil, err
	} else if digest != "" {
		return nil, &manifest.InvalidNameError{Name: name, Reason: "must come without '" + manifest.PinMark + "' here"}
	}
	if o := v.registry.owner(v.tenant); o != nil {
		if list, err := o.versionsOf(name); err != nil || len(list) > 0 {
			return list, err
		}
	}
	sk, err := v.Resolve(name)
	if err != nil {
		return nil, err
	}
	return []Version{{Name: sk.Name, Digest: sk.Digest}}, nil
}
