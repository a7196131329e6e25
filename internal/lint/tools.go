package lint

import (
	"context"
	"path"
	"strings"

	"github.com/skillrun/skillrun/internal/permission"
)

// tools looks at the rules of allowed-tools.
// permission.RulesOf judges the rules; this only turns its answers into findings. The
// first case that applies decides.
func (c *check) tools() {
	rules := permission.RulesOf(c.skill)
	for _, e := range rules.Entries() {
		line := c.toolLine(e.Text)
		switch {
		case e.Problem != "":
			c.warn(c.manifest.file, line, RuleToolRule, "the rule %s never matches: %s", e.Text, e.Problem)
		case e.Shadow != "":
			c.warn(c.manifest.file, line, RuleToolShadowed, "the rule %s adds nothing to %s: remove one of them", e.Text, e.Shadow)
		default:
			if e.Program != "" {
				c.toolProgram(line, e)
			}
			c.toolCode(line, e)
		}
	}
}

// toolProgram looks for the program of a rule, in the sandbox or in the skill.
func (c *check) toolProgram(line int, e permission.Entry) {
	name, ofSkill := strings.CutPrefix(e.Program, c.skill.BaseDir()+"/")
	switch {
	case !ofSkill && !strings.Contains(name, "/"):
		if !c.program(name) {
			c.warn(c.manifest.file, line, RuleToolProgram,
				"the rule %s allows %s, which is not on this machine: install it, or remove the rule", e.Text, name)
		}
	case !ofSkill && path.IsAbs(name):
		if dir := path.Dir(name); c.machine != nil && (!isProgramDir(dir) || !c.program(path.Base(name))) {
			c.warn(c.manifest.file, line, RuleToolProgram,
				"the rule %s allows %s, which is in no sandbox: name a program without its directory, or a file of the skill beneath {baseDir}", e.Text, name)
		}
	// A relative path with a slash, or a file beneath {baseDir}.
	default:
		if _, err := c.skill.Lookup(name); isMissing(err) {
			c.warn(c.manifest.file, line, RuleToolProgram, "the rule %s allows %s, which the skill doesn't have", e.Text, name)
		}
	}
}

// toolCode looks for the script of a rule in the skill: a request may bring one that
// the skill doesn't have.
func (c *check) toolCode(line int, e permission.Entry) {
	name := strings.TrimPrefix(e.Code, c.skill.BaseDir()+"/")
	if name == "" || path.IsAbs(name) {
		return
	}
	if _, err := c.skill.Lookup(name); isMissing(err) {
		c.warn(c.manifest.file, line, RuleToolProgram, "the rule %s runs %s, which the skill doesn't have: add it, or a request may bring its own", e.Text, name)
	}
}

// toolLine is the line of a rule: the first in the field that has its text, else
// the field's.
// The manifest doesn't keep the lines of the entries, so the text is searched for.
func (c *check) toolLine(text string) int {
	field := 0
	for i, line := range c.manifest.lines[:c.manifest.body] {
		if field == 0 && !strings.HasPrefix(strings.TrimLeft(line, `"'`), "allowed-tools") {
			continue
		}
		if field == 0 {
			field = i + 1
		}
		if holdsRule(line, text) {
			return i + 1
		}
	}
	return field
}

// holdsRule reports whether a line has a rule that is not the beginning of a longer one.
func holdsRule(line, text string) bool {
	for rest := line; ; {
		_, after, ok := strings.Cut(rest, text)
		if !ok {
			return false
		}
		if after == "" || strings.ContainsAny(after[:1], ", \t\"'])") {
			return true
		}
		rest = after
	}
}

// commands looks at the command lines in the blocks of SKILL.md: an agent will run them as they
// stand. The function that judges executions judges them here. Without allowed-tools the daemon's
// policy decides; if it is not known, no line is judged. A reason is reported once, at the first command
// that it refuses. The error is that of ctx.
func (c *check) commands(ctx context.Context) error {
	decide, who := c.decider()
	if decide == nil {
		return nil
	}
	said := map[string]bool{}
	count := 0
	for _, b := range c.manifest.blocks {
		if !shells[b.language] {
			continue
		}
		for _, cmd := range b.commands() {
			if count++; count > maxCommands {
				return nil
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			d := decide(cmd.Text)
			if d.Allowed || said[d.Reason] {
				continue
			}
			said[d.Reason] = true
			add := ""
			if d.Missing != "" {
				add = ": add " + d.Missing + " to allowed-tools, or change the command"
			}
			c.warn(c.manifest.file, cmd.Line, RuleCommandRefused, "%s refuses this command: %s%s", who, d.Reason, add)
		}
	}
	return nil
}

// decider returns the function that decides about the skill's command lines, or nil, and the source of
// its rules.
func (c *check) decider() (decide func(string) permission.Decision, who string) {
	if !c.skill.Manifest.HasAllowedTools {
		if c.machine == nil || c.machine.Policy == nil {
			return nil, ""
		}
		return func(line string) permission.Decision { return c.machine.Policy.DecideFor(c.skill, line) }, "the daemon"
	}
	return permission.RulesOf(c.skill).Decide, "allowed-tools"
}
