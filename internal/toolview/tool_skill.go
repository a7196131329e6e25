package toolview

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/skill"
)

// Bounds of one answer, in bytes of text.
const (
	// MaxListedText bounds the names and descriptions in a page of list_skills.
	MaxListedText = 64 << 10
	// DefaultListedSkills and MaxListedSkills bound the skills in a page of list_skills.
	DefaultListedSkills = 50
	MaxListedSkills     = 200
	maxQuery            = 1000 // characters
	// DefaultReadBytes and MaxReadBytes bound one read_skill_file.
	DefaultReadBytes = 64 << 10
	MaxReadBytes     = 1 << 20
)

// say returns the result of a failed call. The text is for a model.
// It is no Go error: the call has worked, and the model can try again with better arguments.
func say(format string, args ...any) Result {
	return Result{Content: fmt.Sprintf(format, args...), IsError: true}
}

// listSkillsTool leaves out skills with disable-model-invocation. Calls with their names still
// work. A page begins after the last name of the page before it, so it is right even if skills change
// between two pages.
var listSkillsTool = row{
	reads: true,
	Tool: Tool{
		Name: "list_skills",
		Description: "List the skills that can be used: the name and the description of each. Activate one to read its instructions. " +
			"A long list comes in pages: go on with next_cursor, or search with query.",
		Parameters: json.RawMessage(fmt.Sprintf(`{
  "type": "object",
  "properties": {
    "query": {"type": "string", "maxLength": %d, "description": "Words, all of which the name or the description has; all skills if it is left out"},
    "cursor": {"type": "string", "maxLength": 256, "description": "next_cursor of the page before; the first page if it is left out"},
    "limit": {"type": "integer", "minimum": 1, "maximum": %d, "description": "Skills in a page at most; %d if it is left out"}
  },
  "additionalProperties": false
}`, maxQuery, MaxListedSkills, DefaultListedSkills)),
		Output: json.RawMessage(`{
  "type": "object",
  "properties": {
    "skills": {
      "type": "array",
      "items": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "description": {"type": "string"}},
        "required": ["name", "description"],
        "additionalProperties": false
      }
    },
    "left_out": {"type": "integer", "description": "How many more there are after this page; they can also be activated by name"},
    "next_cursor": {"type": "string", "description": "The cursor of the next page, if there is one"}
  },
  "required": ["skills"],
  "additionalProperties": false
}`),
		ReadOnly: true,
	},
	call: listSkills,
}

// A skillSummary is a skill in the answer of list_skills.
type skillSummary struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

// listSkills returns a page of the skills that match the query. A page ends at the limit of skills, or
// before a skill that would exceed the limit of bytes. It has at least one skill.
// The bound counts text, not tokens, which depend on the model.
func listSkills(_ context.Context, v *View, c call) (Result, error) {
	a, err := decode[struct {
		Query  string  `json:"query"`
		Cursor string  `json:"cursor"`
		Limit  float64 `json:"limit"`
	}](c)
	if err != nil {
		return Result{}, err
	}
	out := struct {
		Skills  []skillSummary `json:"skills"`
		LeftOut int            `json:"left_out,omitempty"`
		Next    string         `json:"next_cursor,omitempty"`
	}{Skills: []skillSummary{}}
	words := strings.Fields(strings.ToLower(a.Query))
	limit, room := cmp.Or(int(a.Limit), DefaultListedSkills), MaxListedText
	for _, sk := range v.skills.For(c.Who.Tenant).List() {
		if sk.Manifest.DisableModelInvocation || sk.Name <= a.Cursor || !hasWords(sk, words) {
			continue
		}
		room -= len(sk.Name) + len(sk.Manifest.Description)
		// Once a skill does not fit, later ones are left out too, even small ones.
		if n := len(out.Skills); n == limit || n > 0 && room < 0 {
			limit = n
			out.LeftOut++
			out.Next = out.Skills[n-1].Name
			continue
		}
		out.Skills = append(out.Skills, skillSummary{sk.Name, sk.Manifest.Description})
	}
	object := dumps(out)
	return Result{Content: string(object), Structured: object}, nil
}

// hasWords reports whether each of the words, in lower case, is in the name or the description.
func hasWords(sk *skill.Skill, words []string) bool {
	text := strings.ToLower(sk.Name + "\n" + sk.Manifest.Description)
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
}

// activateSkillTool returns the text that an agent would add to its conversation, and the same
// facts as an object. It runs nothing.
var activateSkillTool = row{
	reads: true,
	Tool: Tool{
		Name:        "activate_skill",
		Description: "Read the instructions of a skill before working with it. They name its scripts, references and rules.",
		Parameters: json.RawMessage(`{
  "type": "object",
  "properties": {
    "skill": {"type": "string", "description": "Name of the skill"}
  },
  "required": ["skill"],
  "additionalProperties": false
}`),
		Output: json.RawMessage(`{
  "type": "object",
  "properties": {
    "name": {"type": "string"},
    "digest": {"type": "string", "description": "Of the version that was activated"},
    "base_dir": {"type": "string", "description": "The skill's folder inside a sandbox"},
    "instructions": {"type": "string"},
    "allowed_tools": {"type": "array", "items": {"type": "string"}},
    "scripts": {"type": "array", "items": {"type": "string"}, "description": "Paths for run_skill_script"}
  },
  "required": ["name", "digest", "base_dir", "instructions", "allowed_tools", "scripts"],
  "additionalProperties": false
}`),
		ReadOnly: true,
	},
	call: func(_ context.Context, v *View, c call) (Result, error) {
		a, err := decode[struct {
			Skill string `json:"skill"`
		}](c)
		if err != nil {
			return Result{}, err
		}
		sk, refusal := v.resolve(c.Who, a.Skill)
		if sk == nil {
			return refusal, nil
		}
		activation := sk.Activate()
		out := struct {
			Name         string   `json:"name"`
			Digest       string   `json:"digest"`
			BaseDir      string   `json:"base_dir"`
			Instructions string   `json:"instructions"`
			AllowedTools []string `json:"allowed_tools"`
			Scripts      []string `json:"scripts"`
		}{activation.Name, activation.Digest, activation.BaseDir, activation.Instructions, []string{}, []string{}}
		out.AllowedTools = append(out.AllowedTools, activation.AllowedTools...)
		for _, s := range sk.Scripts {
			out.Scripts = append(out.Scripts, s.Path)
		}
		r := Result{Structured: dumps(out)}
		for _, m := range activation.Messages {
			if m.Type == skill.MessagePrompt {
				r.Content = m.Content
			}
		}
		return r, nil
	},
}

// resolve finds a skill, or returns a result that says why it can't.
// The skill is nil if there is a result.
func (v *View) resolve(who permission.Principal, ref string) (*skill.Skill, Result) {
	sk, err := v.skills.For(who.Tenant).Resolve(ref)
	if missing, ok := errors.AsType[*skill.NotFoundError](err); ok {
		why := ""
		if missing.Why != "" {
			why = " Its folder did not load: " + missing.Why + "."
		}
		return nil, say("There is no skill %q.%s list_skills has the names of all skills.", ref, why)
	}
	if err != nil {
		return nil, say("%s", err)
	}
	return sk, Result{}
}

// readSkillFileTool reads from the snapshot, not from a sandbox. A model gets text only; other
// files are for scripts. minimum 4 of limit: the longest character has four bytes in UTF-8.
var readSkillFileTool = row{
	reads: true,
	Tool: Tool{
		Name: "read_skill_file",
		Description: "Read a text file of a skill, such as a reference or an asset. " +
			"A long file comes in parts: go on at next_offset.",
		Parameters: json.RawMessage(fmt.Sprintf(`{
  "type": "object",
  "properties": {
    "skill": {"type": "string", "description": "Name of the skill"},
    "path": {"type": "string", "description": "Relative to the skill's folder, such as references/REFERENCE.md, or absolute beneath its base_dir"},
    "offset": {"type": "integer", "minimum": 0, "description": "Byte to begin at; 0 if it is left out"},
    "limit": {"type": "integer", "minimum": 4, "maximum": %d, "description": "Bytes to read at most; %d if it is left out"}
  },
  "required": ["skill", "path"],
  "additionalProperties": false
}`, MaxReadBytes, DefaultReadBytes)),
		Output: json.RawMessage(`{
  "type": "object",
  "properties": {
    "path": {"type": "string", "description": "Where the file lies, links followed"},
    "text": {"type": "string"},
    "size": {"type": "integer", "description": "Bytes of the whole file"},
    "next_offset": {"type": "integer", "description": "Where the rest begins, if there is more"}
  },
  "required": ["path", "text", "size"],
  "additionalProperties": false
}`),
		ReadOnly: true,
	},
	call: readSkillFile,
}

// readSkillFile returns a part of a text file. It ends the part at a whole character, and
// offers next_offset if the file goes on.
func readSkillFile(_ context.Context, v *View, c call) (Result, error) {
	a, err := decode[struct {
		Skill  string  `json:"skill"`
		Path   string  `json:"path"`
		Offset float64 `json:"offset"`
		Limit  float64 `json:"limit"`
	}](c)
	if err != nil {
		return Result{}, err
	}
	offset, limit := int64(a.Offset), int64(a.Limit)
	if limit == 0 {
		limit = DefaultReadBytes
	}
	sk, refusal := v.resolve(c.Who, a.Skill)
	if sk == nil {
		return refusal, nil
	}
	file, entry, err := sk.Open(sk.Within(a.Path))
	if refused(err) {
		return say("%s", err), nil
	}
	if err != nil {
		return Result{}, err
	}
	defer file.Close()
	if offset > entry.Size {
		return say("%s has %d bytes; offset %d is past its end", entry.Path, entry.Size, offset), nil
	}
	data := make([]byte, min(limit, entry.Size-offset))
	if _, err := file.ReadAt(data, offset); err != nil && !errors.Is(err, io.EOF) {
		return Result{}, fmt.Errorf("skill %s: %s: %w", sk.Name, entry.Path, err)
	}
	next := offset + int64(len(data))
	if next < entry.Size {
		data = data[:wholeRunes(data)]
		next = offset + int64(len(data))
	}
	if !isText(data) {
		return say("%s is not UTF-8 text at byte %d (the file has %d bytes); let a script of the skill read it", entry.Path, offset, entry.Size), nil
	}
	out := struct {
		Path string `json:"path"`
		Text string `json:"text"`
		Size int64  `json:"size"`
		Next int64  `json:"next_offset,omitempty"`
	}{Path: entry.Path, Text: string(data), Size: entry.Size}
	content := out.Text
	if next < entry.Size {
		out.Next = next
		content += fmt.Sprintf("\n[%d of %d bytes; continue with offset %d]", next-offset, entry.Size, next)
	}
	return Result{Content: content, Structured: dumps(out)}, nil
}

// wholeRunes returns the length of text without an incomplete character at its end.
// Bytes that are no UTF-8 at all are not incomplete: isText refuses them.
func wholeRunes(text []byte) int {
	for i := 1; i <= utf8.UTFMax-1 && i <= len(text); i++ {
		if b := text[len(text)-i]; utf8.RuneStart(b) {
			if !utf8.FullRune(text[len(text)-i:]) {
				return len(text) - i
			}
			break
		}
	}
	return len(text)
}

// isText reports whether data is text that a model can read. A NUL is valid UTF-8, but a file
// with one is hardly text.
func isText(data []byte) bool {
	for _, b := range data {
		if b == 0 {
			return false
		}
	}
	return utf8.Valid(data)
}
