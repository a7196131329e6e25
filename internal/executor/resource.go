package executor

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/skillrun/skillrun/internal/lazyregexp"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/session"
	"github.com/skillrun/skillrun/internal/skill"
)

// URIs of resources:
//
//	skill://NAME/PATH                a file of a skill
//	execution://ID/stdout, /stderr   output of an execution, so far
//	execution://ID/artifacts/PATH    an artifact of an execution
//	session://ID/PATH                a file in the newest version of a session
//
// PATH is percent-encoded. ?offset=N asks for the rest of a resource. If a skill's name cannot be
// the authority of a URI, its resources are skill:///NAME/PATH.
//
// NAME is a skill's full name: if its root has a namespace, skill://NAMESPACE/NAME/PATH, as in MCP's
// Skills extension. SkillURI writes such a URI and ParseSkillURI reads it; nothing else knows its form.
const (
	SkillScheme     = "skill://"
	ExecutionScheme = "execution://"
	SessionScheme   = "session://"
)

// artifactPrefix begins the path of an artifact in its URI.
const artifactPrefix = "artifacts/"

// MaxResourceBytes bounds the resources that one request copies into its workspace, together.
const MaxResourceBytes = 64 << 20

// authority matches names that need no escaping in a URI's authority.
var authority = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._~-]*$`)

// SkillURI is the URI of a skill's file. name is the skill's full name.
func SkillURI(name, path string) string {
	uri := EscapePath(name) + "/" + EscapePath(path)
	if first, _, _ := strings.Cut(name, "/"); authority.MatchString(first) {
		return SkillScheme + uri
	}
	return SkillScheme + "/" + uri
}

// StreamURI is the URI of a stream of an execution: stdout or stderr.
func StreamURI(id, stream string) string { return ExecutionScheme + id + "/" + stream }

// URI is the URI of an artifact of the execution id.
func (a Artifact) URI(id string) string {
	path := a.Path
	if a.Raw != nil {
		path = string(a.Raw)
	}
	return ExecutionScheme + id + "/" + artifactPrefix + EscapePath(path)
}

// EscapePath escapes the components of a path, which need not be UTF-8.
func EscapePath(path string) string {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return strings.Join(parts, "/")
}

// A URI is a parsed URI of a resource.
type URI struct {
	Owner  string // full name of the skill, or id of the execution or the session
	Path   string
	Offset int64  // bytes
	Asked  bool   // the URI has an offset
	Base   string // the URI without its offset
}

// ParseURI parses a URI. It returns false if the URI cannot belong to a resource of this scheme.
func ParseURI(uri, scheme string) (u URI, ok bool) {
	rest, ok := strings.CutPrefix(uri, scheme)
	if !ok {
		return u, false
	}
	rest, query, asked := strings.Cut(rest, "?")
	u.Base, u.Asked = scheme+rest, asked
	if asked {
		digits, ok := strings.CutPrefix(query, "offset=")
		var err error
		if u.Offset, err = strconv.ParseInt(digits, 10, 64); !ok || err != nil || u.Offset < 0 {
			return u, false
		}
	}
	owner, path, ok := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
	if !ok || owner == "" || path == "" {
		return u, false
	}
	var errs [2]error
	u.Owner, errs[0] = url.PathUnescape(owner)
	u.Path, errs[1] = url.PathUnescape(path)
	return u, errors.Join(errs[:]...) == nil
}

// ParseSkillURI parses the URI of a skill's file. The first segment is a namespace if a root has it:
// no skill without a namespace has the same name.
func ParseSkillURI(skills skill.View, uri string) (u URI, ok bool) {
	u, ok = ParseURI(uri, SkillScheme)
	if !ok || !skills.HasNamespace(u.Owner) {
		return u, ok
	}
	name, path, _ := strings.Cut(u.Path, "/")
	u.Owner, u.Path = u.Owner+"/"+name, path
	return u, path != ""
}

// ArtifactPath returns the path of the artifact that u names. ok is false if u names none.
func (u URI) ArtifactPath() (path string, ok bool) { return strings.CutPrefix(u.Path, artifactPrefix) }

// A Resource is a file of a skill, or an artifact of an execution or a file of a session of the same
// tenant, that is put into /workspace.
type Resource struct {
	Path       string // as of an Input
	URI        string // skill://NAME/PATH, execution://ID/artifacts/PATH or session://ID/PATH
	Executable bool
}

// resources returns the resources of a request as inputs, which workspace.Stage opens one after the other. A
// resource that does not exist is then an *InputError. Files of one session are neighbours in the list, so that
// the session is read once.
func (x *Executor) resources(ctx context.Context, req Request) []Input {
	o := resourceOpener{x: x, ctx: ctx, who: req.Principal, room: MaxResourceBytes}
	list := slices.Clone(req.Resources)
	slices.SortStableFunc(list, func(a, b Resource) int { return strings.Compare(a.session(), b.session()) })
	inputs := make([]Input, len(list))
	for i, r := range list {
		inputs[i] = Input{Path: r.Path, Open: func() (*os.File, error) { return o.open(r) }, Executable: r.Executable}
	}
	return inputs
}

// session returns the id of the session whose file r is, or "".
func (r Resource) session() string {
	u, _ := ParseURI(r.URI, SessionScheme)
	return u.Owner
}

// A resourceOpener opens the resources of one request.
type resourceOpener struct {
	x    *Executor
	ctx  context.Context
	who  permission.Principal
	room int64 // bytes

	id   string // of the session of view
	view *session.View
}

// open opens a resource if there is room for it.
func (o *resourceOpener) open(r Resource) (*os.File, error) {
	if o.ctx.Err() != nil {
		return nil, context.Cause(o.ctx)
	}
	f, size, err := o.find(r)
	if err != nil {
		return nil, err
	}
	if o.room -= size; o.room < 0 {
		f.Close()
		return nil, &InputError{Path: r.Path, Reason: fmt.Sprintf("the resources of the request have more than %d bytes together", MaxResourceBytes)}
	}
	return f, nil
}

// sessionFile is Executor.OpenSessionFile. It keeps the list of the last session, and reads it again if a file is gone
// with its version.
func (o *resourceOpener) sessionFile(id, path string) (*os.File, session.File, error) {
	if o.view != nil && o.id == id {
		if f, file, err := openIn(o.view, path); !errors.Is(err, session.ErrNotFound) {
			return f, file, err
		}
	}
	view, err := o.x.ReadSession(o.who, id)
	if err != nil {
		return nil, session.File{}, err
	}
	o.id, o.view = id, view
	return openIn(view, path)
}

// find opens one resource and returns its size. The errors of a request are *InputError; every other error
// is the daemon's.
func (o *resourceOpener) find(r Resource) (*os.File, int64, error) {
	skills := o.x.skillsOf(o.who)
	bad := func(reason string) error {
		return &InputError{Path: r.Path, Reason: fmt.Sprintf("%.300s: %s", r.URI, reason)}
	}
	if u, ok := ParseSkillURI(skills, r.URI); ok && !u.Asked {
		sk, err := skills.Resolve(u.Owner)
		if err != nil {
			return nil, 0, bad(err.Error())
		}
		if _, err := sk.Lookup(u.Path); err != nil {
			return nil, 0, bad(err.Error())
		}
		f, e, err := sk.Open(u.Path)
		return f, e.Size, err
	}
	if u, ok := ParseURI(r.URI, SessionScheme); ok && !u.Asked {
		f, file, err := o.sessionFile(u.Owner, u.Path)
		if errors.Is(err, session.ErrNotFound) {
			return nil, 0, bad(err.Error())
		}
		return f, file.SizeBytes, err
	}
	u, ok := ParseURI(r.URI, ExecutionScheme)
	path, artifact := u.ArtifactPath()
	if !ok || !artifact || u.Asked {
		return nil, 0, bad("want skill://NAME/PATH, session://ID/PATH or execution://ID/artifacts/PATH")
	}
	f, a, err := o.x.OpenArtifact(o.ctx, o.who, u.Owner, path)
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrNoArtifact) {
		return nil, 0, bad(err.Error())
	}
	return f, a.SizeBytes, err
}
