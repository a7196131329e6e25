// Package permission decides which programs a principal may run. It combines a skill's
// allowed-tools with a tenant's policy. The result is a [Grant], or a refusal with one
// sentence that a person or a model can act on. Start with [Policy.Check] and, for command
// lines alone, with [ParseRules] and [Rules.Decide]. The package does no I/O and knows
// nothing of sandboxes.
//
// A command line is parsed and never passed to a shell. It may consist of simple commands
// with literal words, joined by ; && || | and |&, with redirects beneath the working
// directory. Everything else is refused, and the refusal names it. A rule must cover every
// simple command, word by word after quote removal. The [Plan] has exactly the compared words.
//
// # Patterns of file names
//
// The sandbox expands an unquoted *, ? or [...] in an argument when the command runs.
// Nothing else is expanded. Rules compare such a word as written, and only literal words
// match the words before a rule's wildcard. A file name never becomes an option: if it
// begins with "-", the sandbox prepends "./".
//
// Most programs with a guard (find, sort, sed, git, awk and more) take no patterns, because the
// matches cannot be checked in advance; takesPatterns names the exceptions. For the same reason a runner
// takes no patterns before the program that it runs.
//
// # Skills without allowed-tools
//
// The policy decides which programs these skills may run (unlisted.go): none, the skill's own scripts, or
// a list of rules. For own scripts, the package makes a rule for each command line.
//
// # What a rule restricts
//
// Bash(git status:*) restricts a model to one subcommand: no other program, no option
// before the subcommand, no second command. Some programs have an option or a sub-language
// that starts other programs or writes files (find, sed, sort, git, tar, awk and more; see
// programs.go). A rule that ends in a wildcard does not cover such options. Programs whose
// purpose is to run others (env, xargs, sh, sudo and more; see runners.go) need a rule that
// names the program to run.
//
// A file that a rule names must be the skill's file, see files.go. A git command that a
// rule covers gets an environment that overrides programs of the repository's
// configuration, see git_env.go. Settings by -c and variables that run nothing pass, see
// git_harmless.go.
//
// A rule does not make a program harmless. Bash(python:*) grants any code, and so does a
// rule for node, perl, ruby, php, lua, sqlite3 or psql. make, npm, cargo, pytest and pip
// run commands from files in the workspace. git runs commands from the configuration and
// hooks of a repository. Rules limit accidents; the sandbox is the boundary.
package permission

import (
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// Limits on parsing.
const (
	// MaxCommand is the maximum length of a command line, in bytes.
	MaxCommand = 10_000
	// MaxCommands is the maximum number of simple commands in a line.
	MaxCommands = 256
	// MaxPipeline is the maximum number of simple commands in a pipeline. The sandbox's
	// init starts no longer ones.
	MaxPipeline = 64
	// MaxRedirects is the maximum number of redirects of a simple command.
	MaxRedirects = 16
	// MaxRules is the maximum number of rules in an allowed-tools field. Further rules are
	// ignored.
	MaxRules = 1_000
)

// checkText refuses text that two readers could understand differently: characters that a
// terminal does not show, and characters that some shells treat as a separator.
func checkText(s string) error {
	if len(s) > MaxCommand {
		return fmt.Errorf("longer than %d bytes", MaxCommand)
	}
	if !utf8.ValidString(s) {
		return errors.New("not valid UTF-8")
	}
	for _, r := range s {
		switch {
		case r == '\t' || r == '\n' || r == ' ':
		case unicode.IsControl(r):
			return fmt.Errorf("contains the control character %U", r)
		case invisible(r):
			return fmt.Errorf("contains the invisible character %U; use a plain blank", r)
		}
	}
	return nil
}

// invisible reports blanks other than U+0020, and format characters such as zero-width
// joiners and direction overrides.
func invisible(r rune) bool {
	switch r {
	case '\u115F', '\u1160', '\u2800', '\u3164', '\uFFA0': // letters and symbols that print as a blank
		return true
	}
	return unicode.In(r, unicode.Zs, unicode.Zl, unicode.Zp, unicode.Cf)
}

// excerpt quotes s for a sentence, cut after 60 characters.
func excerpt(s string) string {
	const most = 60
	if runes := []rune(s); len(runes) > most {
		s = string(runes[:most]) + "..."
	}
	return "'" + s + "'"
}
