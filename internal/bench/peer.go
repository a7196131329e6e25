package bench

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

// A Peer is another system that runs a program. In its command line the word {} stands for
// the program and its arguments. Without {}, the program is appended.
type Peer struct {
	Name string
	argv []string
}

// ParsePeer parses "[NAME=]COMMAND". Words are separated by blanks and may be quoted as in
// a shell; no shell is involved. Without NAME, the peer has the name of its command.
func ParsePeer(text string) (Peer, error) {
	words, err := splitWords(text)
	if err != nil {
		return Peer{}, fmt.Errorf("peer %q: %w", text, err)
	}
	if len(words) == 0 {
		return Peer{}, fmt.Errorf("peer %q: want a command", text)
	}
	p := Peer{Name: filepath.Base(words[0])}
	if name, command, ok := strings.Cut(words[0], "="); ok && name != "" && !strings.Contains(name, "/") {
		p.Name, words[0] = name, command
	}
	if words[0], err = exec.LookPath(words[0]); err != nil {
		return Peer{}, fmt.Errorf("peer %q: %w", text, err)
	}
	if !slices.Contains(words, "{}") {
		words = append(words, "{}")
	}
	p.argv = words
	return p, nil
}

// command returns the peer's command line for a program, whose words replace {}. Each word stays
// one word, since no shell reads the line.
func (p Peer) command(program []string) []string {
	at := slices.Index(p.argv, "{}")
	return slices.Concat(p.argv[:at], program, p.argv[at+1:])
}

// run runs a program through the peer and checks its output. A peer gets the benchmark's own
// environment, because it may need HOME or PATH.
func (p Peer) run(of program) error {
	out, err := output(p.command(of.bare), os.Environ(), of.want != "")
	if err != nil {
		return err
	}
	return of.check(p.Name, out)
}

// splitWords splits a line into words like a shell, without expanding anything. A backslash makes
// the next character literal, except in single quotes. In sh it does less in double quotes.
func splitWords(text string) ([]string, error) {
	var words []string
	var word strings.Builder
	begun, quote, escaped := false, rune(0), false
	for _, c := range text {
		switch {
		case escaped:
			word.WriteRune(c)
			escaped = false
		case c == '\\' && quote != '\'':
			escaped, begun = true, true
		case quote != 0:
			if c == quote {
				quote = 0
			} else {
				word.WriteRune(c)
			}
		case c == '\'' || c == '"':
			quote, begun = c, true
		case unicode.IsSpace(c):
			if begun {
				words = append(words, word.String())
			}
			word.Reset()
			begun = false
		default:
			word.WriteRune(c)
			begun = true
		}
	}
	if quote != 0 || escaped {
		return nil, errors.New("a quote is not closed")
	}
	if begun {
		words = append(words, word.String())
	}
	return words, nil
}
