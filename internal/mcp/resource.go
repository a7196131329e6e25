package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/manifest"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

// URIs of resources:
//
//	skill://NAME/PATH                a file of a skill
//	execution://ID/stdout, /stderr   output of an execution, so far
//	execution://ID/artifacts/PATH    an artifact of an execution
//
// PATH is percent-encoded. One read returns up to maxPiece bytes, from ?offset=N on, and
// the _meta of the answer has the URI of the next piece. Without an offset, a skill's file of up
// to maxWhole bytes comes in one piece. If a skill's name cannot be the authority of a URI, its
// resources are skill:///NAME/PATH.
//
// In MCP's Skills extension a skill's path may have several segments, of which the last is its
// name. Roots have no namespaces yet, so NAME is the whole path. skillURI writes the path and
// parseTarget reads it; nothing else knows its form.
const (
	skillScheme     = "skill://"
	executionScheme = "execution://"
)

// authority matches names that need no escaping in a URI's authority.
var authority = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._~-]*$`)

// addResources registers templates, so that every file and every execution is a resource without
// being listed. The second template is for names that can't be the authority of a URI.
func (s *Server) addResources() {
	for _, template := range []string{skillScheme + "{name}/{+path}", skillScheme + "/{name}/{+path}"} {
		s.sdk.AddResourceTemplate(&sdk.ResourceTemplate{
			URITemplate: template, Name: "skill file", Description: "A file of a skill, by its path in the skill.",
		}, s.readSkill)
	}
	s.sdk.AddResourceTemplate(&sdk.ResourceTemplate{
		URITemplate: executionScheme + "{id}/{+path}", Name: "execution output",
		Description: "Output (stdout, stderr) or a file (artifacts/PATH) of an execution.",
	}, s.readExecution)
	s.syncSkills()
}

// skillURI is the URI of a skill's file.
func skillURI(name, path string) string {
	if authority.MatchString(name) {
		return skillScheme + name + "/" + escapePath(path)
	}
	return skillScheme + "/" + url.PathEscape(name) + "/" + escapePath(path)
}

// escapePath escapes the components of a path, which need not be UTF-8.
func escapePath(path string) string {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return strings.Join(parts, "/")
}

// A target is a parsed URI.
type target struct {
	owner  string // name of the skill, or id of the execution
	path   string
	offset int64
	asked  bool   // the URI has an offset
	base   string // the URI without its offset
}

// parseTarget parses a URI. It returns false if the URI cannot belong to a resource.
func parseTarget(uri, scheme string) (t target, ok bool) {
	rest, ok := strings.CutPrefix(uri, scheme)
	if !ok {
		return t, false
	}
	rest, query, asked := strings.Cut(rest, "?")
	t.base, t.asked = scheme+rest, asked
	if asked {
		digits, ok := strings.CutPrefix(query, "offset=")
		var err error
		if t.offset, err = strconv.ParseInt(digits, 10, 64); !ok || err != nil || t.offset < 0 {
			return t, false
		}
	}
	owner, path, ok := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
	if !ok || owner == "" || path == "" {
		return t, false
	}
	var errs [2]error
	t.owner, errs[0] = url.PathUnescape(owner)
	t.path, errs[1] = url.PathUnescape(path)
	return t, errors.Join(errs[:]...) == nil
}

// readSkill reads a file of a skill. A hidden skill can be read by its name.
func (s *Server) readSkill(_ context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	t, ok := parseTarget(req.Params.URI, skillScheme)
	if !ok {
		return nil, sdk.ResourceNotFoundError(req.Params.URI)
	}
	sk, err := s.skills.Resolve(t.owner)
	if err != nil {
		return nil, s.unreadable(req, err)
	}
	f, e, err := sk.Open(t.path)
	if err != nil {
		return nil, s.unreadable(req, err)
	}
	defer f.Close()
	return s.piece(req, t, f, e.Size, pieceSize(t, e.Size))
}

// pieceSize returns how many bytes of a skill's file one read returns.
func pieceSize(t target, size int64) int64 {
	if !t.asked && size <= maxWhole {
		return size
	}
	return maxPiece
}

// answerBytes returns how many bytes of memory the answer to a message needs beyond those of a
// usual answer: the encoded size of a skill's file that is larger than a piece. JSON escapes at
// most double such a file, see escapes; base64 adds a third.
func (s *Server) answerBytes(e envelope) int64 {
	t, ok := parseTarget(e.uri, skillScheme)
	if !ok {
		return 0
	}
	sk, err := s.skills.Resolve(t.owner)
	if err != nil {
		return 0
	}
	f, err := sk.Lookup(t.path)
	if err != nil || pieceSize(t, f.Size) <= maxPiece {
		return 0
	}
	return 2 * f.Size
}

// readExecution reads an output stream or artifact of the caller's execution. An execution of
// another tenant is not found. Output can be read while the program runs.
func (s *Server) readExecution(ctx context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	t, ok := parseTarget(req.Params.URI, executionScheme)
	if !ok {
		return nil, sdk.ResourceNotFoundError(req.Params.URI)
	}
	c := callerOf(ctx, req.Extra)
	ctx, stop := c.while(ctx)
	defer stop()
	if path, ok := strings.CutPrefix(t.path, "artifacts/"); ok {
		f, a, err := s.x.OpenArtifact(ctx, c.who, t.owner, path)
		if err != nil {
			return nil, s.unreadable(req, err)
		}
		defer f.Close()
		return s.piece(req, t, f, a.SizeBytes, maxPiece)
	}
	stream, ok := map[string]executor.Stream{"stdout": executor.Stdout, "stderr": executor.Stderr}[t.path]
	if !ok {
		return nil, sdk.ResourceNotFoundError(req.Params.URI)
	}
	data, more, err := s.output(ctx, c.who, t, stream)
	if err != nil {
		return nil, s.unreadable(req, err)
	}
	return pieceOf(req.Params.URI, t, data, more, "text/plain"), nil
}

// unreadable converts the error of a read.
func (s *Server) unreadable(req *sdk.ReadResourceRequest, err error) error {
	if wire := (*jsonrpc.Error)(nil); errors.As(err, &wire) {
		return wire
	}
	path := (*snapshot.PathError)(nil)
	switch {
	case errors.As(err, &path) && path.Reason != snapshot.ReasonNotFound,
		errors.As(err, new(*manifest.InvalidNameError)), errors.As(err, new(*skill.InvalidPinError)), errors.As(err, new(*skill.DigestMismatch)):
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: err.Error()}
	case path != nil, errors.Is(err, skill.ErrNotFound), errors.Is(err, executor.ErrNotFound), errors.Is(err, executor.ErrNoArtifact):
		return sdk.ResourceNotFoundError(req.Params.URI)
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: s.explain(err)}
}

// piece reads the part of a file that the URI asks for, up to most bytes. size is the
// file's size in the snapshot or in the record.
func (s *Server) piece(req *sdk.ReadResourceRequest, t target, f *os.File, size, most int64) (*sdk.ReadResourceResult, error) {
	if t.offset > size {
		return nil, pastEnd(t, size)
	}
	data := make([]byte, min(most, size-t.offset))
	if _, err := f.ReadAt(data, t.offset); err != nil && !(errors.Is(err, io.EOF) && len(data) == 0) {
		return nil, s.unreadable(req, err)
	}
	return pieceOf(req.Params.URI, t, data, t.offset+int64(len(data)) < size, mimeType(t.path)), nil
}

// pastEnd refuses an offset beyond a resource's end. An offset at the end is an empty piece.
func pastEnd(t target, size int64) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("offset %d is past the end, %d", t.offset, size)}
}

// pieceOf returns a piece of a resource: as text in whole characters if it is UTF-8 without
// NUL, else as a blob.
func pieceOf(uri string, t target, data []byte, more bool, mime string) *sdk.ReadResourceResult {
	c := &sdk.ResourceContents{URI: uri, MIMEType: mime}
	if more {
		if whole := wholeRunes(data); whole > 0 {
			data = data[:whole]
		}
	}
	if utf8.Valid(data) && !bytes.ContainsRune(data, 0) && (len(data) <= maxPiece || !bytes.ContainsFunc(data, escapes)) {
		c.Text = string(data)
		if mime == "" {
			c.MIMEType = "text/plain"
		}
	} else {
		c.Blob = data
		if mime == "" || mime == "text/plain" {
			c.MIMEType = "application/octet-stream"
		}
	}
	if more {
		c.Meta = sdk.Meta{"next": t.base + "?offset=" + strconv.FormatInt(t.offset+int64(len(data)), 10)}
	}
	return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{c}}
}

// escapes reports whether JSON writes a character in six bytes. A large file with such characters
// comes as a blob, which bounds its answer.
func escapes(r rune) bool { return r < ' ' && r != '\n' && r != '\r' && r != '\t' }

// An emptyText is a result with empty texts. The protocol requires a text or a blob in each
// content, and the SDK would omit an empty text.
type emptyText struct{ *sdk.ReadResourceResult }

// hasEmptyText reports whether the SDK would send a content with neither text nor blob.
func hasEmptyText(r *sdk.ReadResourceResult) bool {
	return slices.ContainsFunc(r.Contents, func(c *sdk.ResourceContents) bool { return c.Text == "" && c.Blob == nil })
}

// MarshalJSON encodes the result as the SDK does, with the empty texts added.
func (r emptyText) MarshalJSON() ([]byte, error) {
	data, err := json.Marshal(r.ReadResourceResult)
	if err != nil {
		return nil, err
	}
	result := object(data)
	var contents []map[string]json.RawMessage
	if err := json.Unmarshal(result["contents"], &contents); err != nil {
		return nil, err
	}
	for _, c := range contents {
		if c["text"] == nil && c["blob"] == nil {
			c["text"] = json.RawMessage(`""`)
		}
	}
	if result["contents"], err = json.Marshal(contents); err != nil {
		return nil, err
	}
	return json.Marshal(result)
}

// output reads a piece of a stream's output so far. more says that the stream already has
// further output.
func (s *Server) output(ctx context.Context, who permission.Principal, t target, stream executor.Stream) (data []byte, more bool, err error) {
	x, err := s.x.Get(ctx, who, t.owner)
	if err != nil {
		return nil, false, err
	}
	events, err := s.x.Follow(ctx, who, t.owner, 0)
	if err != nil {
		return nil, false, err
	}
	defer events.Close()
	var end int64
	for seq := uint64(0); seq < x.LastSeq && len(data) <= maxPiece; {
		e, err := events.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, false, err
		}
		seq = e.Seq
		if e.Output == nil || e.Output.Stream != stream {
			continue
		}
		end = int64(e.Output.Offset) + int64(len(e.Output.Data))
		if end > t.offset {
			data = append(data, e.Output.Data[max(0, t.offset-int64(e.Output.Offset)):]...)
		}
	}
	if t.offset > end {
		return nil, false, pastEnd(t, end)
	}
	return data[:min(len(data), maxPiece)], len(data) > maxPiece, nil
}
