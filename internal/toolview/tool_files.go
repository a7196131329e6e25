package toolview

import (
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/skillrun/skillrun/internal/executor"
)

// Limits on the files of one call of a function tool. The schemas publish them.
const (
	MaxToolFiles = 64
	// MaxInlineBytes bounds the text and the decoded base64 of all files together. With its
	// encoding it fits into a message of 16 MiB.
	MaxInlineBytes = 8 << 20
)

// Limits on the artifacts that a result lists. The execution has all of them.
const (
	maxListedArtifacts     = 100
	maxListedArtifactBytes = 64 << 10 // of paths and URIs
)

// argsProperty is the schema of args: the command line arguments of what.
func argsProperty(what string) string {
	return fmt.Sprintf(`"args": {"type": "array", "maxItems": %d, "items": {"type": "string", "maxLength": %d}, "description": "Command line arguments of %s, such as [\"--input\", \"data.csv\"]; at most %d bytes together"}`,
		executor.MaxArgs, executor.MaxArgBytes, what, executor.MaxArgsBytes)
}

// filesProperty is the schema of files. where is the directory that their paths are relative to.
func filesProperty(where string) string {
	return fmt.Sprintf(`"files": {
      "type": "array",
      "maxItems": %d,
      "description": "Files to put into %s before the start. Each has exactly one of text, base64 and uri; text and base64 have at most %d bytes together, files by uri %d",
      "items": {
        "type": "object",
        "properties": {
          "path": {"type": "string", "maxLength": 4096, "description": "Relative path of the file, such as data/in.csv; not the path of a file of the skill"},
          "text": {"type": "string", "maxLength": %[3]d, "description": "Its content as text"},
          "base64": {"type": "string", "maxLength": %[5]d, "description": "Its content in base64, if it is not text"},
          "uri": {"type": "string", "maxLength": 16384, "description": "A resource to copy: skill://NAME/PATH, or the uri of a file in an earlier result"}
        },
        "required": ["path"],
        "additionalProperties": false
      }
    }`, MaxToolFiles, where, MaxInlineBytes, executor.MaxResourceBytes, base64.StdEncoding.EncodedLen(MaxInlineBytes))
}

// resultProperties are the schemas of the fields of toolExtras.
const resultProperties = `"artifacts": {
      "type": "array",
      "description": "Files that it wrote",
      "items": {
        "type": "object",
        "properties": {"path": {"type": "string"}, "size_bytes": {"type": "integer"}, "uri": {"type": "string", "description": "The file as a resource, and as uri in files of another call"}},
        "required": ["path", "size_bytes", "uri"],
        "additionalProperties": false
      }
    },
    "artifacts_left_out": {"type": "integer", "description": "How many more files it wrote"},
    "warnings": {"type": "array", "items": {"type": "string"}, "description": "What may make it fail although it was started, such as a package in another version than the skill declares"},
    ` + sessionResultProperty

// A fileArgument is one item of the argument files.
type fileArgument struct {
	Path   string  `json:"path"`
	Text   *string `json:"text"`
	Base64 *string `json:"base64"`
	URI    *string `json:"uri"`
}

// inputs converts the argument files. Its errors are *ArgumentsError. Models know the paths of
// earlier results, so a path may also be absolute beneath the workspace.
func (c call) inputs(list []fileArgument) (in Inputs, err error) {
	room := MaxInlineBytes
	if c.session != "" {
		in.Session = &executor.SessionUse{ID: c.session, Wait: true}
	}
	for i, f := range list {
		field := fmt.Sprintf("files[%d]", i)
		bad := func(format string, args ...any) (Inputs, error) {
			return Inputs{}, &ArgumentsError{Tool: c.Tool, Field: field, Reason: fmt.Sprintf(format, args...)}
		}
		path := strings.TrimPrefix(f.Path, runDirectory+"/")
		var content []byte
		switch {
		case f.Text != nil && f.Base64 == nil && f.URI == nil:
			content = []byte(*f.Text)
		case f.Base64 != nil && f.Text == nil && f.URI == nil:
			if content, err = base64.StdEncoding.DecodeString(*f.Base64); err != nil {
				return bad("base64 is not valid: %s", err)
			}
		case f.URI != nil && f.Text == nil && f.Base64 == nil:
			in.Resources = append(in.Resources, executor.Resource{Path: path, URI: *f.URI})
			continue
		default:
			return bad("give exactly one of text, base64 and uri")
		}
		if room -= len(content); room < 0 {
			return bad("the files have more than %d bytes of text and base64 together; an artifact of an earlier call can be given by its uri", MaxInlineBytes)
		}
		in.Files = append(in.Files, executor.Input{Path: path, Content: content})
	}
	return in, nil
}

// toolExtras are Extras in a result. Empty fields are left out.
type toolExtras struct {
	Artifacts []listedArtifact `json:"artifacts,omitempty"`
	LeftOut   int              `json:"artifacts_left_out,omitempty"`
	Warnings  []string         `json:"warnings,omitempty"`
	Session   *listedSession   `json:"session,omitempty"`
}

type listedArtifact struct {
	Path      string `json:"path"`
	SizeBytes int64  `json:"size_bytes"`
	URI       string `json:"uri"`
}

// list returns the form of e in a result. It lists artifacts as far as the bounds allow.
func (e Extras) list() toolExtras {
	out := toolExtras{Warnings: e.Warnings, Session: e.Session.list()}
	room := maxListedArtifactBytes
	for i, a := range e.Artifacts {
		line := listedArtifact{Path: a.Path, SizeBytes: a.SizeBytes, URI: a.URI(e.ExecutionID)}
		if room -= len(line.Path) + len(line.URI); room < 0 || i == maxListedArtifacts {
			out.LeftOut = len(e.Artifacts) - i
			break
		}
		out.Artifacts = append(out.Artifacts, line)
	}
	return out
}

// text returns the same as lines in brackets, for a result that is a text.
func (e toolExtras) text() string {
	var b strings.Builder
	for _, w := range e.Warnings {
		fmt.Fprintf(&b, "\n[Warning: %s]", w)
	}
	for _, a := range e.Artifacts {
		fmt.Fprintf(&b, "\n[It wrote %s, %d bytes: %s]", a.Path, a.SizeBytes, a.URI)
	}
	if e.LeftOut > 0 {
		fmt.Fprintf(&b, "\n[It wrote %d more files.]", e.LeftOut)
	}
	return b.String() + e.Session.text()
}
