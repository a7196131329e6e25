package mcp

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/skill"
)

// MCP's Skills extension: skills/list and skills/get here, resources/directory/read in
// directory.go. Hosts read the files with resources/read (resource.go) and compare them with the
// sizes and digests of the entry.
const (
	skillsExtension = "io.modelcontextprotocol/skills"
	methodList      = "skills/list"
	methodGet       = "skills/get"
	methodDirectory = "resources/directory/read"
)

// metaPrefix begins the keys of our own metadata. The extension reserves its own prefix.
const metaPrefix = "io.github.skillrun/"

// addSkills registers the methods of the extension.
// The SDK has no types for the extension, so its methods are custom ones.
func (s *Server) addSkills(to *sdk.Server) {
	for _, err := range []error{
		sdk.AddReceivingCustomMethod(to, methodList, s.listSkills),
		sdk.AddReceivingCustomMethod(to, methodGet, s.getSkill),
		sdk.AddReceivingCustomMethod(to, methodDirectory, s.readDirectory),
	} {
		if err != nil {
			panic(err) // a name of the SDK's own methods
		}
	}
}

// Reasons of errors, in the field reason of their data.
const (
	reasonCursor       = "invalid_cursor"
	reasonNoSkill      = "skill_not_found"
	reasonUnlisted     = "skill_not_conforming"
	reasonNoDirectory  = "directory_not_found"
	reasonNotDirectory = "not_a_directory"
)

// invalid returns an error about a request's parameters. uri is the URI in question, or empty.
func invalid(reason, uri, format string, args ...any) error {
	data, err := json.Marshal(struct {
		Reason string `json:"reason"`
		URI    string `json:"uri,omitempty"`
	}{reason, uri})
	if err != nil {
		panic(err) // cannot happen: texts
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf(format, args...), Data: data}
}

// A cursor is the name after which the next page begins, so a page that follows a change of the
// skills neither repeats an entry nor leaves one out that was there before.
func cursorAfter(listing, name string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(listing + "\n" + name))
}

// listing is the method: a cursor of one list must not select a page of another.
func readCursor(listing, cursor string) (after string, err error) {
	if cursor == "" {
		return "", nil
	}
	data, err := base64.RawURLEncoding.DecodeString(cursor)
	of, after, ok := strings.Cut(string(data), "\n")
	if err != nil || !ok || of != listing || after == "" {
		return "", invalid(reasonCursor, "", "cursor %.80q is not from an answer to %s; begin again without a cursor", cursor, listing)
	}
	return after, nil
}

// complete is the resultType of every result here.
const complete = "complete"

type listSkillsParams struct {
	sdk.ParamsBase
	Cursor string `json:"cursor,omitempty"`
}

type listSkillsResult struct {
	sdk.ResultBase
	sdk.Cacheable
	ResultType string            `json:"resultType"`
	Skills     []json.RawMessage `json:"skills"` // each is a skillEntry
	NextCursor string            `json:"nextCursor,omitempty"`
}

type getSkillParams struct {
	sdk.ParamsBase
	URI string `json:"uri"`
}

type getSkillResult struct {
	sdk.ResultBase
	sdk.Cacheable
	ResultType string     `json:"resultType"`
	Skill      skillEntry `json:"skill"`
}

// A skillEntry is the extension's Skill.
type skillEntry struct {
	URI         string          `json:"uri"`
	FrontMatter json.RawMessage `json:"frontmatter"`
	Resources   []skillResource `json:"resources"`
	Meta        map[string]any  `json:"_meta"`
}

// Digest is "sha256:" and hex digits, Size is in bytes.
type skillResource struct {
	URI    string `json:"uri"`
	Digest string `json:"digest"`
	Size   int64  `json:"size"`
}

// cacheable says how long a host may use an answer. The answer is private, because _meta depends
// on the caller.
func cacheable() sdk.Cacheable { return sdk.Cacheable{TTLMs: skillsTTL, CacheScope: "private"} }

// listSkills answers skills/list with a page of the skills that are not hidden.
// The page ends after the entry that exceeds maxListedBytes, so even a very large entry comes,
// alone.
func (s *Server) listSkills(ctx context.Context, _ *sdk.ServerSession, p *listSkillsParams) (*listSkillsResult, error) {
	cursor := ""
	if p != nil {
		cursor = p.Cursor
	}
	after, err := readCursor(methodList, cursor)
	if err != nil {
		return nil, err
	}
	who := callerOf(ctx, nil).Principal
	r := &listSkillsResult{Cacheable: cacheable(), ResultType: complete, Skills: []json.RawMessage{}}
	last, bytes := "", 0
	for _, sk := range s.skills.For(who.Tenant).List() {
		listing, err := sk.Listing()
		if err != nil || sk.Name <= after || sk.Manifest.DisableModelInvocation {
			continue
		}
		if len(r.Skills) == maxListedSkills || bytes > maxListedBytes {
			r.NextCursor = cursorAfter(methodList, last)
			break
		}
		entry, err := json.Marshal(s.entryOf(who, sk, listing))
		if err != nil {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: s.explain(err)}
		}
		r.Skills = append(r.Skills, entry)
		last, bytes = sk.Name, bytes+len(entry)
	}
	return r, nil
}

// getSkill answers skills/get for every skill that conforms, hidden or not.
// A URI with another case or another path of the same file is refused: hosts compare URIs as texts.
func (s *Server) getSkill(ctx context.Context, _ *sdk.ServerSession, p *getSkillParams) (*getSkillResult, error) {
	uri := ""
	if p != nil {
		uri = p.URI
	}
	skills := s.skills.For(callerOf(ctx, nil).Tenant)
	t, ok := executor.ParseSkillURI(skills, uri)
	if !ok {
		return nil, invalid(reasonNoSkill, uri, "No skill is served at %.300q; give the URI of a SKILL.md, such as skill://NAME/SKILL.md", uri)
	}
	sk, err := skills.Resolve(t.Owner)
	if err != nil {
		return nil, invalid(reasonNoSkill, uri, "No skill is served at %.300s: %v; %s has the skills that are", uri, err, methodList)
	}
	listing, err := sk.Listing()
	if err != nil {
		return nil, invalid(reasonUnlisted, uri, "No skill is served at %.300s: %v", uri, err)
	}
	if own := executor.SkillURI(sk.Name, manifestName); uri != own {
		return nil, invalid(reasonNoSkill, uri, "No skill is served at %.300s; the skill %s is at %s", uri, sk.Name, own)
	}
	return &getSkillResult{Cacheable: cacheable(), ResultType: complete, Skill: s.entryOf(callerOf(ctx, nil).Principal, sk, listing)}, nil
}

// manifestName is the name that the extension requires.
const manifestName = "SKILL.md"

// entryOf returns the entry of a skill for a caller.
func (s *Server) entryOf(who permission.Principal, sk *skill.Skill, l skill.Listing) skillEntry {
	e := skillEntry{URI: executor.SkillURI(sk.Name, manifestName), FrontMatter: l.FrontMatter, Meta: s.metaOf(who, sk)}
	for _, f := range sk.Files() {
		e.Resources = append(e.Resources, skillResource{
			URI: executor.SkillURI(sk.Name, f.Path), Digest: "sha256:" + f.Entry.SHA256, Size: f.Entry.Size,
		})
	}
	return e
}

// metaOf returns skillrun's metadata of a skill: its digest, its scripts, its permitted commands, and
// whether its packages are installed.
// Hosts that do not know these keys ignore them, as MCP demands of _meta.
func (s *Server) metaOf(who permission.Principal, sk *skill.Skill) map[string]any {
	scripts := []string{}
	for _, sc := range sk.Scripts {
		if sc.Runnable() {
			scripts = append(scripts, sc.Path)
		}
	}
	commands := []string{}
	if t, err := s.x.Tenant(who); err == nil {
		commands = t.Policy.Commands(sk)
	}
	return map[string]any{
		metaPrefix + "digest":   sk.Digest,
		metaPrefix + "scripts":  scripts,
		metaPrefix + "commands": commands,
		metaPrefix + "prepared": s.x.HasPackages(who, sk),
	}
}
