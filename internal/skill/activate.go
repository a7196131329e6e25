package skill

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

// Activation holds everything that an agent needs to start working with a skill.
type Activation struct {
	Name         string
	Digest       string
	Instructions string // the text after the front matter, with {baseDir} replaced
	BaseDir      string
	AllowedTools []string // with {baseDir} replaced
	Model        string
	Messages     []Message // in the order in which the agent adds them
	Context      Context
}

// defaultCommandTime limits a command of a skill that sets no max_execution_time. The
// published tool contract says 300 seconds.
const defaultCommandTime = 300 * time.Second

// A Context holds the additions of the published activation flow to an agent's context. It
// is the zero Context for a skill without a scripts folder.
type Context struct {
	BaseDir        string       // "" without a script executor
	ScriptExecutor bool         // the skill has a scripts folder
	Constraints    *Constraints // nil without a script executor
}

// Constraints are the published limits of a skill's commands.
type Constraints struct {
	MaxExecutionTime time.Duration
	MaxMemoryBytes   int64 // 0: the skill sets no max_memory
	NetworkAccess    bool
	AllowedCommands  []string // the entries of allowed-tools
	WorkingDirectory string   // a path inside the sandbox
}

// MessageType is the purpose of a message of an activation.
type MessageType string

const (
	// MessageMetadata tells the user that the skill is in use.
	MessageMetadata MessageType = "metadata"
	// MessagePrompt gives the model the instructions.
	MessagePrompt MessageType = "prompt"
	// MessagePermissions tells the agent which tools the skill may use.
	MessagePermissions MessageType = "command_permissions"
)

// Message is one message that an agent adds to its conversation.
type Message struct {
	Role   string // "user"
	Type   MessageType
	IsMeta bool // shown to the model only
	// Content is text. In a MessagePermissions it is the published JSON object.
	Content      string
	AllowedTools []string // only in MessagePermissions
	Model        string   // only in MessagePermissions; "": the skill names none
}

// Activate builds the messages of the published activation flow: a visible message that
// the skill is active, a hidden one with the full instructions, and, if the skill has
// allowed-tools, a hidden one with the permissions. Every {baseDir} is replaced.
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

// permissions returns the JSON content of a MessagePermissions. allowedTools and model are the
// published names. The text ends without a newline.
func permissions(tools []string, model string) string {
	content := struct {
		Type         MessageType `json:"type"`
		AllowedTools []string    `json:"allowedTools"`
		Model        *string     `json:"model"` // null: the skill names none
	}{Type: MessagePermissions, AllowedTools: tools}
	if model != "" {
		content.Model = &model
	}
	var text strings.Builder
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(content); err != nil {
		panic("skill: " + err.Error()) // cannot happen: strings always encode
	}
	return strings.TrimSuffix(text.String(), "\n")
}

// hasScripts reports whether the skill has a folder scripts, or a link to one.
func (s *Skill) hasScripts() bool {
	at := s.tree.Resolve("scripts")
	return at.Reason == 0 && at.Entry.Kind == snapshot.KindDir
}

// constraints are for the agent's prompt only. The executor derives the limits of an execution
// from the same fields of the manifest (executor.Bounds).
func (s *Skill) constraints(tools []string) *Constraints {
	c := &Constraints{
		MaxExecutionTime: s.Manifest.MaxExecutionTime, MaxMemoryBytes: s.Manifest.MaxMemoryBytes,
		NetworkAccess: s.Manifest.NetworkAccess, AllowedCommands: tools, WorkingDirectory: WorkspaceDir,
	}
	if c.MaxExecutionTime == 0 {
		c.MaxExecutionTime = defaultCommandTime
	}
	return c
}
