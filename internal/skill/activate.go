package skill

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Activation is what an agent needs to work with a skill.
type Activation struct {
	Name         string
	Digest       string
	Instructions string // the text after the front matter, {baseDir} resolved
	BaseDir      string
	AllowedTools []string // {baseDir} resolved
	Model        string
	Messages     []Message // in the order in which they are added
	Context      Context
}

// DefaultCommandTime is how long a command may run if the skill doesn't say: what
// the published constraints have.
const DefaultCommandTime = 300 * time.Second

// A Context is what the published flow adds to an agent's context: nothing for a
// skill without a scripts folder.
type Context struct {
	BaseDir        string       // "" without a script executor
	ScriptExecutor bool         // the skill has a scripts folder
	Constraints    *Constraints // nil without a script executor
}

// Constraints are the published bounds of a skill's commands.
type Constraints struct {
	MaxExecutionTime time.Duration
	MaxMemoryBytes   int64 // 0: none of the skill's own
	NetworkAccess    bool
	AllowedCommands  []string // the entries of allowed-tools
	WorkingDirectory string   // inside a sandbox
}

// MessageType is what a message of an activation is for.
type MessageType string

const (
	// MessageMetadata tells the user that the skill is in use.
	MessageMetadata MessageType = "metadata"
	// MessagePrompt gives the model the instructions.
	MessagePrompt MessageType = "prompt"
	// MessagePermissions tells the agent what the skill may use.
	MessagePermissions MessageType = "command_permissions"
)

// Message is one message that an agent adds to its conversation.
type Message struct {
	Role   string // "user"
	Type   MessageType
	IsMeta bool // for the model, not for the user's eyes
	// Content is text; of MessagePermissions it is the published JSON object.
	Content      string
	AllowedTools []string // of MessagePermissions
	Model        string   // likewise
}

// Activate resolves what the skill says and puts it into the published pattern: a
// visible message of metadata, a hidden one with the full prompt, and, if the
// skill names allowed tools, one with the permissions.
func (s *Skill) Activate() Activation {
	a := Activation{
		Name:         s.Name,
		Digest:       s.Digest,
		Instructions: s.Expand(s.Body),
		BaseDir:      s.BaseDir(),
		Model:        s.Manifest.Model,
	}
	for _, tool := range s.Manifest.AllowedTools {
		a.AllowedTools = append(a.AllowedTools, s.Expand(tool))
	}
	a.Messages = []Message{
		{Role: "user", Type: MessageMetadata, Content: fmt.Sprintf("Skill %q is active.", s.Name)},
		{Role: "user", Type: MessagePrompt, IsMeta: true, Content: fmt.Sprintf("The files of skill %q are in %s.\n\n%s", s.Name, a.BaseDir, a.Instructions)},
	}
	if len(a.AllowedTools) > 0 {
		a.Messages = append(a.Messages, Message{
			Role: "user", Type: MessagePermissions, IsMeta: true, Content: permissions(a.AllowedTools, a.Model),
			AllowedTools: a.AllowedTools, Model: a.Model,
		})
	}
	if s.hasScripts() {
		a.Context = Context{BaseDir: a.BaseDir, ScriptExecutor: true, Constraints: s.constraints(a.AllowedTools)}
	}
	return a
}

// permissions is the content of the published message.
func permissions(tools []string, model string) string {
	content := struct {
		Type         MessageType `json:"type"`
		AllowedTools []string    `json:"allowedTools"`
		Model        *string     `json:"model"` // null: none
	}{Type: MessagePermissions, AllowedTools: tools}
	if model != "" {
		content.Model = &model
	}
	var text strings.Builder
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(content); err != nil {
		panic("skill: " + err.Error()) // strings always encode
	}
	return strings.TrimSuffix(text.String(), "\n")
}

// hasScripts reports whether the skill has a folder scripts, or a link to one.
func (s *Skill) hasScripts() bool {
	at := s.tree.resolve("scripts")
	return at.reason == 0 && at.entry.Kind == KindDir
}

func (s *Skill) constraints(tools []string) *Constraints {
	c := &Constraints{
		MaxExecutionTime: s.Manifest.MaxExecutionTime, MaxMemoryBytes: s.Manifest.MaxMemoryBytes,
		NetworkAccess: s.Manifest.NetworkAccess, AllowedCommands: tools, WorkingDirectory: workingDirectory,
	}
	if c.MaxExecutionTime == 0 {
		c.MaxExecutionTime = DefaultCommandTime
	}
	return c
}

// workingDirectory is where programs start: the skill's folder, copied on write.
const workingDirectory = "/workspace"
