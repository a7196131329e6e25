package manifest

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestParseNodeLaunch(t *testing.T) {
	for _, c := range []struct {
		line string // words without quotes
		runs string
		tool string
		err  string // part of the error
	}{
		{line: "npx eslint .", runs: "eslint .", tool: "eslint"},
		{line: "npx -y eslint@9.1.0 -y", runs: "eslint -y", tool: "eslint@9.1.0"},
		{line: "npx --yes eslint@latest", runs: "eslint", tool: "eslint"},
		{line: "npx @scope/tool@^1 a", runs: "tool a", tool: "@scope/tool@^1"},
		{line: "npx @scope/tool", runs: "tool", tool: "@scope/tool"},
		{line: "npx -p typescript@5 tsc --init", runs: "tsc --init", tool: "typescript@5"},
		{line: "npx --package=@scope/x -- y z", runs: "y z", tool: "@scope/x"},
		{line: "npm exec -y -- tool a", runs: "tool a", tool: "tool"},
		{line: "npm x tool", runs: "tool", tool: "tool"},
		{line: "pnpm dlx tool@1", runs: "tool", tool: "tool@1"},
		{line: "yarn dlx -q tool", runs: "tool", tool: "tool"},
		{line: "bunx --bun tool", runs: "tool", tool: "tool"},
		{line: "bun x tool", runs: "tool", tool: "tool"},
		{line: "npx", err: "names no program"},
		{line: "npx -y", err: "names no program"},
		{line: "npx -p", err: "needs a value"},
		{line: "npx -p a -p b c", err: "only one package"},
		{line: "npx -c id", err: "option -c can't be met"},
		{line: "npx --registry=https://evil.example x", err: "option --registry can't be met"},
		{line: "npx --node-options=-r x", err: "option --node-options"},
		{line: "npx ./scripts/x.js", err: "not a valid name"},
		{line: "npx github:user/x", err: "not a valid name"},
		{line: "npx user/x", err: "not a valid name"},
		{line: "npx https://evil.example/x.tgz", err: "not a valid name"},
		{line: "npx x@git+https://evil.example/x", err: "is no version"},
		{line: "npx x@file:..", err: "is no version"},
		{line: "npx x@..", err: "is no version"},
		{line: "npx ../x", err: "not a valid name"},
		{line: "npx -p x ../../bin/sh", err: "not the name of a program"},
		{line: "npx -p x -- -c", err: "not the name of a program"},
	} {
		words := strings.Fields(c.line)
		l, ok, err := ParseLaunch(words)
		if c.err != "" {
			if !ok || err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: got %+v, %t, %v; want an error with %q", c.line, l, ok, err, c.err)
			}
			continue
		}
		if got := strings.Join(l.Args(words), " "); !ok || err != nil || got != c.runs || l.Tool != c.tool || !l.Node {
			t.Errorf("%s: got %q, %+v, %t, %v; want %q of %q", c.line, got, l, ok, err, c.runs, c.tool)
		}
	}
	for _, line := range []string{"npm install x", "npm run x", "npm", "pnpm install", "yarn add x", "bun run x.ts", "node x.js"} {
		if l, ok, err := ParseLaunch(strings.Fields(line)); ok {
			t.Errorf("%s: got %+v, %v; want no launch", line, l, err)
		}
	}
}

// The command lines of SKILL.md name the tools, each once with its first line.
func TestNodeToolsOfCommandLines(t *testing.T) {
	needs, found := readSkill(t, files{"SKILL.md": nodeFront + "Run `npx -y eslint@9 .` or `npx ./x`.\n```bash\nnpm install\ncd x && npx @s/tool@1 \\\n  a\nbunx eslint@9\nnpx -p typescript tsc | cat\nnpx PKG@VERSION\n```\nnpx prose\n"})
	want := []Requirement{{Text: "eslint@9", File: "SKILL.md", Line: 5}, {Text: "@s/tool@1", File: "SKILL.md", Line: 9}, {Text: "typescript", File: "SKILL.md", Line: 11}}
	if !reflect.DeepEqual(needs.NodeTools, want) || len(needs.Tools) > 0 || !slices.Equal(rulesOf(found), []string{"tool-placeholder SKILL.md"}) {
		t.Errorf("got %+v, %+v, %v\nwant %+v", needs.NodeTools, needs.Tools, found, want)
	}
}
