// Package permission decides who may run what: a skill's allowed-tools and a
// tenant's policy become a Grant, or a refusal with one sentence that a person,
// or a model, can act on. It does no I/O and knows nothing of sandboxes.
//
// A command line is parsed, never handed to a shell. Only simple commands with
// literal words pass, joined by ; && || | and |&, with redirects beneath the
// working directory; everything else is refused by name. Every simple command
// must be covered by a rule, compared word by word after quote removal, and the
// Plan holds exactly the words that were compared.
//
// # Patterns of file names
//
// One thing is expanded: an unquoted *, ? or [...] in an argument, by the sandbox,
// when the command runs. Rules compare such a word as it is written, and what a
// rule says in front of its wildcard is matched by literal words only. A file name
// never becomes an option: one that begins with "-" gets "./" in front. Programs
// with a guard (find, sort, sed, git, awk and more) take no patterns, nor do
// runners in front of the program that they run: what can't be looked at beforehand
// can't be checked.
//
// # What a rule protects from
//
// Bash(git status:*) keeps a model to one subcommand: no other program, no
// option in front of it, no second command behind it. For programs with an
// option or a sub-language that starts other programs or writes files (find,
// sed, sort, git, tar, awk and more; see guards.go) a rule that ends in a
// wildcard doesn't cover that form. Programs whose purpose is to run others
// (env, xargs, sh, sudo and more; see runners.go) are covered only by a rule that
// names what they run.
//
// What a rule names has to be what the skill has there: see files.go. A git that a rule
// covers finds its programs set by the environment: see git_env.go.
//
// A rule does not make a program harmless. Bash(python:*) grants arbitrary code,
// and so does a rule for node, perl, ruby, php, lua, sqlite3 or psql; make, npm,
// cargo, pytest and pip run what files of the workspace say; git runs what the
// configuration and the hooks of a repository say. Rules limit accidents; the
// sandbox is the boundary.
package permission

import (
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// Bounds of what is parsed.
const (
	// MaxCommand bounds a command line, in bytes.
	MaxCommand = 10_000
	// MaxCommands bounds the simple commands of one line.
	MaxCommands = 256
	// MaxPipeline bounds the simple commands of one pipeline; the sandbox's init
	// starts no longer one.
	MaxPipeline = 64
	// MaxRedirects bounds the redirects of one simple command.
	MaxRedirects = 16
	// MaxRules bounds the entries of an allowed-tools field; those beyond it
	// match nothing.
	MaxRules = 1_000
)

// checkText refuses text that two readers could take for two different things:
// what a terminal doesn't show, and what some shells take for a separator.
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

// invisible reports blanks other than the plain one, and format characters such
// as zero-width joiners and direction overrides.
func invisible(r rune) bool {
	switch r {
	case '\u115F', '\u1160', '\u2800', '\u3164', '\uFFA0': // letters and symbols that print as a blank
		return true
	}
	return unicode.In(r, unicode.Zs, unicode.Zl, unicode.Zp, unicode.Cf)
}

// excerpt quotes s for a sentence, cut to a length that a sentence can bear.
func excerpt(s string) string {
	const most = 60
	if runes := []rune(s); len(runes) > most {
		s = string(runes[:most]) + "..."
	}
	return "'" + s + "'"
}
