package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/manifest"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

// One read returns up to maxPiece bytes of a resource, from ?offset=N on, and the _meta of the
// answer has the URI of the next piece. Without an offset, a skill's file of up to maxWhole bytes
// comes in one piece. Package executor has the form of the URIs.

// addResources registers templates, so that every file and every execution is a resource without
// being listed. The second template is for names that can't be the authority of a URI.
func (s *Server) addResources(to *sdk.Server) {
	for _, template := range []string{executor.SkillScheme + "{name}/{+path}", executor.SkillScheme + "/{name}/{+path}"} {
		to.AddResourceTemplate(&sdk.ResourceTemplate{
			URITemplate: template, Name: "skill file", Description: "A file of a skill, by its path in the skill.",
		}, s.readSkill)
	}
	to.AddResourceTemplate(&sdk.ResourceTemplate{
		URITemplate: executor.ExecutionScheme + "{id}/{+path}", Name: "execution output",
		Description: "Output (stdout, stderr) or a file (artifacts/PATH) of an execution.",
	}, s.readExecution)
	to.AddResourceTemplate(&sdk.ResourceTemplate{
		URITemplate: executor.SessionScheme + "{id}/{+path}", Name: "session file", Description: "A file in the newest version of a session.",
	}, s.readSession)
}

// readSkill reads a file of a skill. A hidden skill can be read by its name.
func (s *Server) readSkill(ctx context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	skills := s.skills.For(callerOf(ctx, req.Extra).Tenant)
	t, ok := executor.ParseSkillURI(skills, req.Params.URI)
	if !ok {
		return nil, sdk.ResourceNotFoundError(req.Params.URI)
	}
	sk, err := skills.Resolve(t.Owner)
	if err != nil {
		return nil, s.unreadable(req, err)
	}
	f, e, err := sk.Open(t.Path)
	if err != nil {
		return nil, s.unreadable(req, err)
	}
	defer f.Close()
	return s.piece(req, t, f, e.Size, pieceSize(t, e.Size))
}

// pieceSize returns how many bytes of a skill's file one read returns.
func pieceSize(t executor.URI, size int64) int64 {
	if !t.Asked && size <= maxWhole {
		return size
	}
	return maxPiece
}

// answerBytes returns how many bytes of memory the answer to a message needs in addition to a
// usual answer: the encoded size of a skill's file that is larger than a piece. JSON escapes at
// most double such a file, see jsonBytes; base64 adds a third.
func (s *Server) answerBytes(tenant string, e envelope) int64 {
	skills := s.skills.For(tenant)
	t, ok := executor.ParseSkillURI(skills, e.uri)
	if !ok {
		return 0
	}
	sk, err := skills.Resolve(t.Owner)
	if err != nil {
		return 0
	}
	f, err := sk.Lookup(t.Path)
	if err != nil || pieceSize(t, f.Size) <= maxPiece {
		return 0
	}
	return 2 * f.Size
}

// readExecution reads an output stream or artifact of the caller's execution. An execution of
// another tenant is not found. Output can be read while the program runs.
func (s *Server) readExecution(ctx context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	t, ok := executor.ParseURI(req.Params.URI, executor.ExecutionScheme)
	if !ok {
		return nil, sdk.ResourceNotFoundError(req.Params.URI)
	}
	c := callerOf(ctx, req.Extra)
	ctx, stop := c.while(ctx)
	defer stop()
	if path, ok := t.ArtifactPath(); ok {
		f, a, err := s.x.OpenArtifact(ctx, c.Principal, t.Owner, path)
		if err != nil {
			return nil, s.unreadable(req, err)
		}
		defer f.Close()
		return s.piece(req, t, f, a.SizeBytes, maxPiece)
	}
	stream, ok := map[string]executor.Stream{"stdout": executor.Stdout, "stderr": executor.Stderr}[t.Path]
	if !ok {
		return nil, sdk.ResourceNotFoundError(req.Params.URI)
	}
	data, more, err := s.output(ctx, c.Principal, t, stream)
	if err != nil {
		return nil, s.unreadable(req, err)
	}
	return pieceOf(req.Params.URI, t, data, more, "text/plain"), nil
}

// readSession reads a file of a session of the caller's tenant. A session of another tenant is not found.
func (s *Server) readSession(ctx context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	t, ok := executor.ParseURI(req.Params.URI, executor.SessionScheme)
	if !ok {
		return nil, sdk.ResourceNotFoundError(req.Params.URI)
	}
	f, file, err := s.x.OpenSessionFile(callerOf(ctx, req.Extra).Principal, t.Owner, t.Path)
	if err != nil {
		return nil, s.unreadable(req, err)
	}
	defer f.Close()
	return s.piece(req, t, f, file.SizeBytes, maxPiece)
}

// unreadable converts the error of a read.
func (s *Server) unreadable(req *sdk.ReadResourceRequest, err error) error {
	if wire := (*jsonrpc.Error)(nil); errors.As(err, &wire) {
		return wire
	}
	path := (*snapshot.PathError)(nil)
	switch {
	case errors.As(err, &path) && path.Reason != snapshot.ReasonNotFound,
		errors.As(err, new(*manifest.InvalidNameError)), errors.As(err, new(*skill.InvalidPinError)), errors.As(err, new(*skill.DigestMismatch)),
		errors.As(err, new(*skill.AmbiguousError)):
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: err.Error()}
	case path != nil, errors.Is(err, skill.ErrNotFound), errors.Is(err, executor.ErrNotFound), errors.Is(err, executor.ErrNoArtifact),
		errors.Is(err, executor.ErrNoSessionFile):
		return sdk.ResourceNotFoundError(req.Params.URI)
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: s.explain(err)}
}

// piece reads the part of a file that the URI asks for, up to most bytes. size is the
// file's size in the snapshot or in the record.
func (s *Server) piece(req *sdk.ReadResourceRequest, t executor.URI, f *os.File, size, most int64) (*sdk.ReadResourceResult, error) {
	if t.Offset > size {
		return nil, pastEnd(t, size)
	}
	data := make([]byte, min(most, size-t.Offset))
	if _, err := f.ReadAt(data, t.Offset); err != nil && !(errors.Is(err, io.EOF) && len(data) == 0) {
		return nil, s.unreadable(req, err)
	}
	return pieceOf(req.Params.URI, t, data, t.Offset+int64(len(data)) < size, mimeType(t.Path)), nil
}

// pastEnd refuses an offset beyond a resource's end. An offset at the end is an empty piece.
func pastEnd(t executor.URI, size int64) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("offset %d is past the end, %d", t.Offset, size)}
}

// pieceOf returns a piece of a resource: as text in whole characters if it is UTF-8 without
// NUL, else as a blob.
func pieceOf(uri string, t executor.URI, data []byte, more bool, mime string) *sdk.ReadResourceResult {
	c := &sdk.ResourceContents{URI: uri, MIMEType: mime}
	if more {
		if whole := wholeRunes(data); whole > 0 {
			data = data[:whole]
		}
	}
	if utf8.Valid(data) && !bytes.ContainsRune(data, 0) && (len(data) <= maxPiece || jsonBytes(data) <= 2*len(data)) {
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
		c.Meta = sdk.Meta{"next": t.Base + "?offset=" + strconv.FormatInt(t.Offset+int64(len(data)), 10)}
	}
	return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{c}}
}

// jsonBytes returns how many bytes of JSON a text takes, or a few more. The SDK's JSON has six bytes for each "<", ">" and
// "&". A large file that would more than double comes as a blob, which bounds its answer.
func jsonBytes(text []byte) int {
	n := len(text)
	for _, b := range text {
		switch {
		case b == '\n' || b == '\r' || b == '\t' || b == '"' || b == '\\':
			n++
		case b < ' ' || b == '<' || b == '>' || b == '&':
			n += 5
		case b == 0xe2: // U+2028 and U+2029 begin with it
			n += 3
		}
	}
	return n
}

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
func (s *Server) output(ctx context.Context, who permission.Principal, t executor.URI, stream executor.Stream) (data []byte, more bool, err error) {
	data, end, err := s.x.ReadOutput(ctx, who, t.Owner, stream, t.Offset, maxPiece+1)
	if err != nil {
		return nil, false, err
	}
	if t.Offset > end {
		return nil, false, pastEnd(t, end)
	}
	return data[:min(len(data), maxPiece)], len(data) > maxPiece, nil
}
