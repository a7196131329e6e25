package mcp

import (
	"context"
	"errors"
	"path"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

// directoryType is the extension's media type of a directory.
const directoryType = "inode/directory"

// readDirectoryParams and readDirectoryResult are the extension's messages, which the SDK does not
// have.
type readDirectoryParams struct {
	sdk.ParamsBase
	URI    string `json:"uri"`
	Cursor string `json:"cursor,omitempty"`
}

type readDirectoryResult struct {
	sdk.ResultBase
	sdk.Cacheable                 // the official client requires its fields
	ResultType    string          `json:"resultType"`
	Resources     []*sdk.Resource `json:"resources"`
	NextCursor    string          `json:"nextCursor,omitempty"`
}

// readDirectory answers resources/directory/read for a directory of any skill.
// A page has at most maxChildren entries. Hidden skills have directories, too: hiding concerns
// lists of skills only.
func (s *Server) readDirectory(ctx context.Context, _ *sdk.ServerSession, p *readDirectoryParams) (*readDirectoryResult, error) {
	if p == nil {
		p = &readDirectoryParams{}
	}
	sk, dir, err := s.directory(s.skills.For(callerOf(ctx, nil).Tenant), p.URI)
	if err != nil {
		return nil, err
	}
	after, err := readCursor(methodDirectory, p.Cursor)
	if err != nil {
		return nil, err
	}
	children, next, err := sk.Children(dir, after, maxChildren)
	if err != nil {
		return nil, notDirectory(p.URI, sk, err)
	}
	r := &readDirectoryResult{Cacheable: cacheable(), ResultType: complete, Resources: []*sdk.Resource{}}
	for _, c := range children {
		r.Resources = append(r.Resources, childResource(sk, path.Join(dir, c.Name), c))
	}
	if next != "" {
		r.NextCursor = cursorAfter(methodDirectory, next)
	}
	return r, nil
}

// directory finds the skill and the directory of a URI, which has no slash at its end. dir is ""
// for the skill's own directory.
func (s *Server) directory(skills skill.View, uri string) (sk *skill.Skill, dir string, err error) {
	// A skill's own directory has no path, which ParseSkillURI requires.
	t, ok := executor.ParseSkillURI(skills, uri+"/"+manifestName)
	if !ok || strings.Contains(uri, "?") || strings.HasSuffix(uri, "/") {
		return nil, "", invalid(reasonNoDirectory, uri, "No directory is served at %.300q; give the URI of a skill without /SKILL.md, or of a directory in it, without a slash at its end", uri)
	}
	if sk, err = skills.Resolve(t.Owner); err != nil {
		return nil, "", invalid(reasonNoSkill, uri, "No directory is served at %.300s: %v; %s has the skills that are", uri, err, methodList)
	}
	return sk, strings.TrimSuffix(strings.TrimSuffix(t.Path, manifestName), "/"), nil
}

// notDirectory converts an error of Children.
// The answer is the same for a directory that does not exist and for one that is refused.
func notDirectory(uri string, sk *skill.Skill, err error) error {
	if at := (*snapshot.PathError)(nil); errors.As(err, &at) && at.Reason == snapshot.ReasonNotDirectory {
		return invalid(reasonNotDirectory, uri, "%.300s is not a directory resource; read it with resources/read", uri)
	}
	return invalid(reasonNoDirectory, uri, "No directory is served at %.300s; %s of %s has those that are", uri, methodDirectory, strings.TrimSuffix(executor.SkillURI(sk.Name, ""), "/"))
}

// childResource describes an entry of a directory.
func childResource(sk *skill.Skill, at string, c snapshot.Child) *sdk.Resource {
	switch {
	case c.Entry.Kind == snapshot.KindDir:
		return &sdk.Resource{URI: executor.SkillURI(sk.Name, at), Name: c.Name, MIMEType: directoryType}
	case at == manifestName:
		return manifestResource(sk, at, c.Entry.Size)
	}
	return &sdk.Resource{URI: executor.SkillURI(sk.Name, at), Name: c.Name, MIMEType: mimeType(c.Name), Size: c.Entry.Size}
}
