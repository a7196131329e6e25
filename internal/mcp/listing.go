package mcp

import (
	"maps"
	"slices"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

// instructions tell a model how to use the tools.
const instructions = `skillrun runs the scripts of agent skills in sandboxes.

1. list_skills shows which skills there are, and what each is for.
2. activate_skill gives a skill's instructions. Read them before you use it.
3. Do what they say: run_skill_script runs a script of the skill with command line arguments (args) and with JSON arguments on its standard input, bash runs a command line that the skill allows (what it does not allow is refused, and the refusal says what is missing or what to do instead; check_command says it without running anything), run_python_script runs your own Python code in the skill's environment. read_skill_file reads a file that the instructions refer to.

Every run starts in a fresh copy of the skill, with the files of your session beside it: those that write_file and earlier runs have left there. It has no network, unless the skill's SKILL.md has network_access: true or the tenant's network.skills names the skill; then it reaches what the configured rules allow. Write input files with write_file, or give them to one run in files: as text, as base64, or by the uri of a resource. What a successful run writes to the working directory stays in the session for the next runs, whatever skill they use, and comes back as links to resources; list_files and read_file show it. If the result of a run has no session, there is none: write_file begins one, and later calls name its id in session. A failed run is a result that says why: read it, correct the call, try again.`

// An audience is the agents of one tenant. Each has a server of the SDK, whose list of resources has
// the skills that the tenant sees. So a change of one tenant's skills notifies its own agents only.
type audience struct {
	sdk    *sdk.Server
	skills skill.View
	read   sdk.ResourceHandler
	ending bool // DropTenants waits for its sessions; guarded by Server.agents

	mu    sync.Mutex
	shown map[string]string // URI -> digest of the skill, of resources/list
}

// maxAudiences bounds the kept servers without configured tenants: a JSON Web Token can name any tenant then.
const maxAudiences = 256

// audienceOf returns the agents of a tenant. It makes the tenant's server at the first call, and keeps it while
// the tenant is configured. Without configured tenants, the number of servers is bounded: a new server replaces one
// without sessions. If all have sessions, the new server is not kept, and its agents get no notifications.
// Tenants that are not configured share a server, which refuses their messages.
func (s *Server) audienceOf(tenant string) *audience {
	s.agents.Lock()
	defer s.agents.Unlock()
	if a := s.audiences[tenant]; a != nil {
		return a
	}
	if !s.knows(tenant) {
		return s.strangers
	}
	a := s.newAudience(s.skills.For(tenant))
	a.syncSkills()
	if s.makeRoom() {
		s.audiences[tenant] = a
	}
	return a
}

// newAudience makes a server of the SDK. It shows no skills until syncSkills.
func (s *Server) newAudience(skills skill.View) *audience {
	a := &audience{
		sdk:    sdk.NewServer(&sdk.Implementation{Name: "skillrun", Title: "skillrun", Version: s.version}, s.options),
		skills: skills, read: s.readSkill,
	}
	a.sdk.AddReceivingMiddleware(s.receive)
	s.addTools(a.sdk)
	s.addResources(a.sdk)
	s.addSkills(a.sdk)
	return a
}

// makeRoom drops a server without sessions if there are too many servers, and reports whether another one can be kept.
// s.agents is held.
func (s *Server) makeRoom() bool {
	if !s.x.Tenants.IsSingle() || len(s.audiences) < maxAudiences {
		return true
	}
	for tenant, a := range s.audiences {
		open := false
		for range a.sdk.Sessions() {
			open = true
			break
		}
		if !open {
			delete(s.audiences, tenant)
			return true
		}
	}
	return false
}

func (s *Server) knows(tenant string) bool {
	_, err := s.x.Tenant(permission.Principal{Tenant: tenant})
	return err == nil
}

// DropTenants frees the servers of tenants that are not configured any longer, when their sessions have ended.
// Messages of these sessions are refused; their running calls go on. Call it after a change of the tenants.
func (s *Server) DropTenants() {
	s.agents.Lock()
	defer s.agents.Unlock()
	for tenant, a := range s.audiences {
		if s.knows(tenant) || a.ending {
			continue
		}
		a.ending = true
		s.background.Go(func() { s.drop(tenant, a) })
	}
}

// drop waits for the end of the sessions. It keeps the server if the tenant has come back.
func (s *Server) drop(tenant string, a *audience) {
	for {
		s.agents.Lock()
		open := slices.Collect(a.sdk.Sessions())
		if len(open) == 0 || s.knows(tenant) {
			a.ending = false
			if !s.knows(tenant) {
				delete(s.audiences, tenant)
			}
			s.agents.Unlock()
			return
		}
		s.agents.Unlock()
		open[0].Wait()
	}
}

func (s *Server) allAudiences() []*audience {
	s.agents.Lock()
	defer s.agents.Unlock()
	return slices.Collect(maps.Values(s.audiences))
}

// syncSkills updates the answer to resources/list: the SKILL.md of each skill that is not hidden. The
// SDK notifies the sessions of a change. Only changed entries are added again, because each
// AddResource notifies every session.
// It may be called by several goroutines; mu makes each call see the result of the one before.
func (a *audience) syncSkills() {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := map[string]string{}
	for _, sk := range a.skills.List() {
		if sk.Manifest.DisableModelInvocation {
			continue
		}
		e, ok := manifestOf(sk)
		if !ok {
			continue
		}
		uri := executor.SkillURI(sk.Name, e.Path)
		now[uri] = sk.Digest
		if a.shown[uri] == sk.Digest {
			continue
		}
		a.sdk.AddResource(manifestResource(sk, e.Path, e.Size), a.read)
	}
	for uri := range a.shown {
		if _, still := now[uri]; !still {
			a.sdk.RemoveResources(uri)
		}
	}
	a.shown = now
}

// manifestResource describes the manifest of a skill.
func manifestResource(sk *skill.Skill, path string, size int64) *sdk.Resource {
	description := sk.Manifest.Description
	if listing, err := sk.Listing(); err == nil {
		description = listing.Description
	}
	return &sdk.Resource{
		URI: executor.SkillURI(sk.Name, path), Name: sk.BareName(), Title: sk.Name + ": instructions", Description: description,
		MIMEType: "text/markdown", Size: size,
	}
}

// manifestOf finds a skill's manifest, which may have a lowercase name.
func manifestOf(sk *skill.Skill) (snapshot.Entry, bool) {
	for _, name := range []string{"SKILL.md", "skill.md"} {
		if e, err := sk.Lookup(name); err == nil {
			return e, true
		}
	}
	return snapshot.Entry{}, false
}

// watchSkills updates the lists after every change of the registry, so that sessions are notified
// without asking.
func (s *Server) watchSkills() {
	for {
		// Taken before the lists are updated, so that a change during the update is not missed.
		changed := s.skills.Changed()
		for _, a := range s.allAudiences() {
			a.syncSkills()
		}
		select {
		case <-changed:
		case <-s.stopping.Done():
			return
		}
	}
}
