package manifest

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/lazyregexp"
)

// nodeLaunchers are the words that begin a Launch of a Node package's program. Sources: npm's "npx"
// and "npm-exec" (docs.npmjs.com/cli/commands/npx), "pnpm dlx", "yarn dlx", "bunx".
var nodeLaunchers = [][]string{{"npx"}, {"npm", "exec"}, {"npm", "x"}, {"pnpm", "dlx"}, {"yarn", "dlx"}, {"bunx"}, {"bun", "x"}}

// npxFlags are their options that change nothing here: nothing is asked and nothing is downloaded.
var npxFlags = strings.Fields(`
	--yes -y --no --no-install --quiet -q --silent -s --offline --prefer-offline --ignore-existing --bun --no-audit --no-fund`)

// programName matches the name of a program that a package brings.
var programName = lazyregexp.New(`^[A-Za-z0-9_][A-Za-z0-9._-]*$`)

// parseNode is ParseLaunch for npx and its like.
func parseNode(line []string) (l Launch, ok bool, err error) {
	for _, words := range nodeLaunchers {
		if len(line) < len(words) || !slices.Equal(line[:len(words)], words) {
			continue
		}
		l, err := readNPX(line, len(words))
		if err != nil {
			return Launch{}, true, fmt.Errorf("%s: %w", strings.Join(words, " "), err)
		}
		return l, true, nil
	}
	return Launch{}, false, nil
}

// readNPX reads the options and the program of a line, from the word at on.
// The last part of a package's name is taken for the program's name: @scope/tool has tool. If the
// package calls its program otherwise, the author names both: npx --package @scope/x tool.
func readNPX(line []string, at int) (Launch, error) {
	l := Launch{Node: true}
	for ; at < len(line) && strings.HasPrefix(line[at], "-"); at++ {
		name, value, given := strings.Cut(line[at], "=")
		if line[at] == "--" {
			at++
			break
		}
		switch {
		case name == "--package" || name == "-p":
			if !given {
				if at++; at >= len(line) {
					return l, fmt.Errorf("option %s needs a value", name)
				}
				value = line[at]
			}
			if l.Tool != "" {
				return l, fmt.Errorf("%s %.80s: only one package can be named", name, value)
			}
			var err error
			if l.Tool, err = nodeTool(value); err != nil {
				return l, err
			}
		case !slices.Contains(npxFlags, line[at]):
			return l, fmt.Errorf("option %s can't be met in a sandbox; leave it out", name)
		}
	}
	if at >= len(line) || line[at] == "" {
		return l, fmt.Errorf("names no program")
	}
	word := line[at]
	if l.Tool == "" {
		var err error
		if l.Tool, err = nodeTool(word); err != nil {
			return l, err
		}
		name, _ := SplitNodeTool(l.Tool)
		word = path.Base(name)
	}
	if !programName.MatchString(word) {
		return l, fmt.Errorf("%.80q is not the name of a program", word)
	}
	l.Program, l.Rest = []string{word}, at+1
	return l, nil
}

// nodeTool is a package as a command line writes it: eslint, eslint@9, @scope/tool@latest. The
// newest version is written without a version.
func nodeTool(word string) (string, error) {
	name, version := SplitNodeTool(word)
	if version == "latest" {
		version = ""
	}
	if err := CheckNodePackage(name, version); err != nil {
		return "", err
	}
	if version == "" {
		return name, nil
	}
	return name + "@" + version, nil
}

// SplitNodeTool splits a package as a command line writes it. An empty version is the newest one.
func SplitNodeTool(text string) (name, version string) {
	// An @ at the beginning belongs to a scope, not to a version.
	at := strings.LastIndexByte(text, '@')
	if at <= 0 {
		return text, ""
	}
	return text[:at], text[at+1:]
}
