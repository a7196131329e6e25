package skill

import "fmt"

// Activation is what an agent needs to work with a skill.
type Activation struct {
	Name         string
	Digest       string
	Instructions string // the text after the front matter, {baseDir} resolved
	BaseDir      string
	AllowedTools []string // {baseDir} resolved
	Model        string
	Messages     []Message // in the order in which they are added
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
	Role         string // "user"
	Type         MessageType
	IsMeta       bool // for the model, not for the user's eyes
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
			Role: "user", Type: MessagePermissions, IsMeta: true,
			AllowedTools: a.AllowedTools, Model: a.Model,
		})
	}
	return a
}
