package toolview

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/session"
)

// The tools for the files of a session. They run no program, and so need no skill.

// Limits on a page of list_files. MaxListedText bounds its paths and URIs, too.
const (
	DefaultListedFiles = 200
	MaxListedFiles     = 1000
)

// sessionPath is the schema of a path in a session.
const sessionPath = `"path": {"type": "string", "maxLength": 4096, "description": "Relative path of the file in the session, such as data/in.csv"}`

// inSessionPath returns the path in the session. Models know the directory where programs find the files.
func inSessionPath(path string) string { return strings.TrimPrefix(path, runDirectory+"/") }

// writeFileTool writes one file with one version of the session.
var writeFileTool = row{
	session: writesSession,
	Tool: Tool{
		Name: "write_file",
		Description: "Write a file that later calls find in their working directory, whatever skill they use. " +
			"It replaces a file with the same path. Without a session the call makes one, whose id is in the result.",
		Parameters: json.RawMessage(fmt.Sprintf(`{
  "type": "object",
  "properties": {
    %s,
    "text": {"type": "string", "maxLength": %d, "description": "Its content as text, at most %[2]d bytes; either text or base64 is required"},
    "base64": {"type": "string", "maxLength": %[3]d, "description": "Its content in base64, if it is not text, at most %[2]d bytes decoded"},
    "session": {"type": "string", "maxLength": 64, "description": "The id of a session in an earlier result, or new for another one; left out: the session of this conversation"}
  },
  "required": ["path"],
  "additionalProperties": false
}`, sessionPath, MaxInlineBytes, base64.StdEncoding.EncodedLen(MaxInlineBytes))),
		Output: json.RawMessage(`{
  "type": "object",
  "properties": {
    "path": {"type": "string"},
    "size_bytes": {"type": "integer"},
    "uri": {"type": "string", "description": "The file as a resource, and as uri in files of another call"},
    "session": {"type": "string", "description": "The id of the session"},
    "version": {"type": "integer", "description": "Of its files"},
    "warnings": {"type": "array", "items": {"type": "string"}}
  },
  "required": ["path", "size_bytes", "uri", "session", "version"],
  "additionalProperties": false
}`),
		NoProgram: true,
	},
	call: writeFile,
}

// writeFile writes one file as one new version of the session. A refusal that a model can correct, such as a bad path or a
// full quota, is a result; the error is for arguments of the wrong form and for failures of the daemon.
func writeFile(ctx context.Context, v *View, c call) (Result, error) {
	a, err := decode[struct {
		Path   string  `json:"path"`
		Text   *string `json:"text"`
		Base64 *string `json:"base64"`
	}](c)
	if err != nil {
		return Result{}, err
	}
	if (a.Text == nil) == (a.Base64 == nil) {
		return Result{}, &ArgumentsError{Tool: c.Tool, Reason: "give exactly one of text and base64"}
	}
	var content []byte
	if a.Text != nil {
		content = []byte(*a.Text)
	} else if content, err = base64.StdEncoding.DecodeString(*a.Base64); err != nil {
		return Result{}, &ArgumentsError{Tool: c.Tool, Field: "base64", Reason: fmt.Sprintf("is not valid: %s", err)}
	}
	if len(content) > MaxInlineBytes {
		return Result{}, &ArgumentsError{Tool: c.Tool, Reason: fmt.Sprintf("the file has %d bytes; at most %d are allowed", len(content), MaxInlineBytes)}
	}
	path := inSessionPath(a.Path)
	version, err := v.x.PutSessionFile(ctx, c.Who, c.session, path, content)
	if refused(err) {
		return say("%s", err), nil
	}
	if err != nil {
		return Result{}, err
	}
	// Whether the file is new, the store knows and the tool does not need: it lists the file either way.
	change := executor.NewSessionChange(session.File{Path: path, SizeBytes: int64(len(content))}, session.Added)
	object := dumps(struct {
		Path      string   `json:"path"`
		SizeBytes int64    `json:"size_bytes"`
		URI       string   `json:"uri"`
		Session   string   `json:"session"`
		Version   int      `json:"version"`
		Warnings  []string `json:"warnings,omitempty"`
	}{path, change.SizeBytes, change.URI(c.session), c.session, version.Number, c.notes})
	used := &SessionEnd{ID: c.session, Version: version.Number, Changes: []executor.SessionChange{change}}
	return Result{Content: string(object), Structured: object, Extras: Extras{Warnings: c.notes, Session: used}}, nil
}

// readFileTool reads a part of a file, as text or in base64.
var readFileTool = row{
	reads:   true,
	session: readsSession,
	Tool: Tool{
		Name: "read_file",
		Description: "Read a file that an earlier call wrote, in a session. " +
			"A long file comes in parts: go on at next_offset. Its uri in the result of that call is the same file as a resource.",
		Parameters: json.RawMessage(fmt.Sprintf(`{
  "type": "object",
  "properties": {
    %s,
    "encoding": {"type": "string", "maxLength": 6, "description": "text, or base64 for a file that is not text; text if it is left out"},
    "offset": {"type": "integer", "minimum": 0, "description": "Byte to start at; 0 if it is left out"},
    "limit": {"type": "integer", "minimum": 4, "maximum": %d, "description": "Bytes to read at most; %d if it is left out"},
    %s
  },
  "required": ["path"],
  "additionalProperties": false
}`, sessionPath, MaxReadBytes, DefaultReadBytes, sessionReadProperty)),
		Output: json.RawMessage(`{
  "type": "object",
  "properties": {
    "path": {"type": "string"},
    "text": {"type": "string"},
    "base64": {"type": "string"},
    "size": {"type": "integer", "description": "Bytes of the whole file"},
    "next_offset": {"type": "integer", "description": "Where the rest begins, if there is more"}
  },
  "required": ["path", "size"],
  "additionalProperties": false
}`),
		ReadOnly: true,
	},
	call: readFile,
}

// readFile reads from the newest version. offset and limit are numbers of JSON, which the schema has checked to be whole.
func readFile(_ context.Context, v *View, c call) (Result, error) {
	a, err := decode[struct {
		Path     string  `json:"path"`
		Encoding string  `json:"encoding"`
		Offset   float64 `json:"offset"`
		Limit    float64 `json:"limit"`
	}](c)
	if err != nil {
		return Result{}, err
	}
	if !slices.Contains([]string{"", "text", "base64"}, a.Encoding) {
		return Result{}, &ArgumentsError{Tool: c.Tool, Field: "encoding", Reason: "must be text or base64"}
	}
	path := inSessionPath(a.Path)
	if c.session == "" {
		return say("There is no file %q: nothing was written yet in this conversation. Or give the id of a session.", path), nil
	}
	file, f, err := v.x.OpenSessionFile(c.Who, c.session, path)
	if errors.Is(err, session.ErrNotFound) {
		return say("There is no file %q in the session %s. list_files names those that there are.", path, c.session), nil
	}
	if err != nil {
		return Result{}, err
	}
	defer file.Close()
	return readPart(file, f, a.Encoding == "base64", int64(a.Offset), int64(a.Limit))
}

// readPart returns a part of a file. A text ends at a whole character.
func readPart(file io.ReaderAt, f session.File, binary bool, offset, limit int64) (Result, error) {
	if limit == 0 {
		limit = DefaultReadBytes
	}
	if offset > f.SizeBytes {
		return say("%s has %d bytes; offset %d is past its end", f.Path, f.SizeBytes, offset), nil
	}
	data := make([]byte, min(limit, f.SizeBytes-offset))
	if _, err := file.ReadAt(data, offset); err != nil && !errors.Is(err, io.EOF) {
		return Result{}, fmt.Errorf("file of a session: %w", err)
	}
	if next := offset + int64(len(data)); next < f.SizeBytes && !binary {
		data = data[:wholeRunes(data)]
	}
	if !binary && !isText(data) {
		return say("%s is not UTF-8 text at byte %d (the file has %d bytes); read it with encoding base64, or as a resource", f.Path, offset, f.SizeBytes), nil
	}
	out := struct {
		Path   string  `json:"path"`
		Text   *string `json:"text,omitempty"`
		Base64 *string `json:"base64,omitempty"`
		Size   int64   `json:"size"`
		Next   int64   `json:"next_offset,omitempty"`
	}{Path: f.Path, Size: f.SizeBytes}
	content := string(data)
	if binary {
		content = base64.StdEncoding.EncodeToString(data)
		out.Base64 = &content
	} else {
		out.Text = &content
	}
	if next := offset + int64(len(data)); next < f.SizeBytes {
		out.Next = next
		return Result{
			Content: content + fmt.Sprintf("\n[%d of %d bytes; continue with offset %d]", len(data), f.SizeBytes, next), Structured: dumps(out),
		}, nil
	}
	return Result{Content: content, Structured: dumps(out)}, nil
}

// listFilesTool lists the newest version. A page begins after the last path of the page before it.
var listFilesTool = row{
	reads:   true,
	session: readsSession,
	Tool: Tool{
		Name:        "list_files",
		Description: "List the files of a session: those that write_file and programs of earlier calls have left. A long list comes in pages: go on with next_cursor.",
		Parameters: json.RawMessage(fmt.Sprintf(`{
  "type": "object",
  "properties": {
    "cursor": {"type": "string", "maxLength": 16384, "description": "next_cursor of the page before; the first page if it is left out"},
    "limit": {"type": "integer", "minimum": 1, "maximum": %d, "description": "Files in a page at most; %d if it is left out"},
    %s
  },
  "additionalProperties": false
}`, MaxListedFiles, DefaultListedFiles, sessionReadProperty)),
		Output: json.RawMessage(`{
  "type": "object",
  "properties": {
    "session": {"type": "string", "description": "The id of the session, if there is one"},
    "version": {"type": "integer", "description": "Of its files"},
    "files": {
      "type": "array",
      "items": {
        "type": "object",
        "properties": {"path": {"type": "string"}, "size_bytes": {"type": "integer"}, "uri": {"type": "string", "description": "The file as a resource, and as uri in files of another call"}},
        "required": ["path", "size_bytes", "uri"],
        "additionalProperties": false
      }
    },
    "left_out": {"type": "integer", "description": "How many more there are after this page"},
    "next_cursor": {"type": "string", "description": "The cursor of the next page, if there is one"}
  },
  "required": ["files"],
  "additionalProperties": false
}`),
		ReadOnly: true,
	},
	call: listFiles,
}

// A filePage is a page of list_files.
type filePage struct {
	Session string           `json:"session,omitempty"`
	Version int              `json:"version,omitempty"`
	Files   []listedArtifact `json:"files"`
	LeftOut int              `json:"left_out,omitempty"`
	Next    string           `json:"next_cursor,omitempty"`
}

// listFiles lists the newest version. A conversation that has written nothing has no session, and an empty list.
func listFiles(_ context.Context, v *View, c call) (Result, error) {
	a, err := decode[struct {
		Cursor string  `json:"cursor"`
		Limit  float64 `json:"limit"`
	}](c)
	if err != nil {
		return Result{}, err
	}
	page := filePage{Session: c.session, Files: []listedArtifact{}}
	if c.session != "" {
		view, err := v.x.ReadSession(c.Who, c.session)
		if refused(err) {
			return say("%s", err), nil
		}
		if err != nil {
			return Result{}, err
		}
		page.Version = view.Version.Number
		page.fill(view.Files, a.Cursor, int(a.Limit))
	}
	object := dumps(page)
	return Result{Content: string(object), Structured: object}, nil
}

// fill adds the files after a cursor, which is the escaped path of a file: a path may be no UTF-8.
func (p *filePage) fill(files []session.File, cursor string, limit int) {
	if limit == 0 {
		limit = DefaultListedFiles
	}
	room := MaxListedText
	after, err := url.PathUnescape(cursor)
	if err != nil {
		after = cursor // no list had such a cursor
	}
	for _, f := range files {
		if f.Path <= after {
			continue
		}
		line := listedArtifact{Path: f.Path, SizeBytes: f.SizeBytes, URI: executor.SessionURI(p.Session, f.Path)}
		room -= len(line.Path) + len(line.URI)
		if n := len(p.Files); n == limit || n > 0 && room < 0 {
			limit = n // once a file does not fit, later ones are left out, too
			p.LeftOut++
			continue
		}
		p.Files = append(p.Files, line)
		p.Next = executor.EscapePath(f.Path)
	}
	if p.LeftOut == 0 {
		p.Next = ""
	}
}
