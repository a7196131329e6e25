package permission

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// parse turns a command line into a plan. It accepts simple commands with redirects, joined
// by ; && || | |& or newlines. It refuses all other constructs of a shell, because no shell runs the
// plan: its words are final, except patterns of file names, which the sandbox expands. The text of an
// error is the reason for the refusal: the first mistake.
// Three readers see the same text: this parser, the person who approved the rule, and the program
// that gets the words. So a text with more than one reading is refused rather than guessed
// (checkText, doubtfulContinuation).
func parse(line, baseDir string) (Plan, error) {
	if err := checkText(line); err != nil {
		return nil, fmt.Errorf("the command line is refused: %w", err)
	}
	// Bash's grammar is a superset of the others, so the parser names a construct that it refuses.
	// Comments are kept because doubtfulContinuation looks into them.
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash), syntax.KeepComments(true)).Parse(strings.NewReader(line), "")
	if err != nil {
		return nil, fmt.Errorf("the command line does not parse: %w", err)
	}
	if doubtfulContinuation(line, file) {
		return nil, errors.New("a backslash at the end of a line is ambiguous: put the command on one line")
	}
	p := planner{reader: reader{source: line, baseDir: baseDir}}
	for _, stmt := range file.Stmts {
		if err := p.list(stmt, Always); err != nil {
			return nil, err
		}
	}
	if len(p.plan) == 0 {
		return nil, errors.New("the command line is empty")
	}
	return p.plan, nil
}

// doubtfulContinuation reports a backslash at the end of a line, or of the text, in places
// where the parser and bash differ: after another backslash or a $, and in a comment. The
// plan would still have the checked words, but the author may have meant other words.
func doubtfulContinuation(line string, file *syntax.File) bool {
	end := strings.TrimRight(line, " \t\n")
	doubt := strings.Contains(line, "\\\\\n") || strings.Contains(line, "$\\\n") ||
		(len(end)-len(strings.TrimRight(end, `\`)))%2 == 1
	syntax.Walk(file, func(node syntax.Node) bool {
		if c, ok := node.(*syntax.Comment); ok && (strings.HasSuffix(c.Text, `\`) || strings.Contains(c.Text, "\\\n")) {
			doubt = true
		}
		return !doubt
	})
	return doubt
}

// A planner builds the plan of one command line.
type planner struct {
	reader
	plan  Plan
	count int // simple commands so far
}

// list adds the pipelines of a list joined by && and ||. The two have the same precedence
// and there are no brackets, so a flat list in their order is enough.
// Each step runs or not by the state of the last step that ran, as in a shell (bash(1), Lists).
func (p *planner) list(s *syntax.Stmt, when When) error {
	b, ok := s.Cmd.(*syntax.BinaryCmd)
	if !ok || b.Op != syntax.AndStmt && b.Op != syntax.OrStmt {
		pipeline, err := p.pipeline(nil, s)
		p.plan = append(p.plan, Step{When: when, Pipeline: pipeline})
		return err
	}
	if err := checkStmt(s, true); err != nil {
		return err
	}
	if err := p.list(b.X, when); err != nil {
		return err
	}
	if b.Op == syntax.AndStmt {
		return p.list(b.Y, IfSucceeded)
	}
	return p.list(b.Y, IfFailed)
}

// pipeline appends the simple commands of s to before. |& sets PipeStderr of the command on its
// left.
// The parser nests pipelines to the left or to the right; both give the same list.
func (p *planner) pipeline(before []SimpleCommand, s *syntax.Stmt) ([]SimpleCommand, error) {
	b, joined := s.Cmd.(*syntax.BinaryCmd)
	if err := checkStmt(s, joined); err != nil {
		return nil, err
	}
	if joined {
		if b.Op != syntax.Pipe && b.Op != syntax.PipeAll {
			return nil, needsCode{fmt.Errorf("%s inside a pipeline is not supported", b.Op)}
		}
		left, err := p.pipeline(before, b.X)
		if err != nil {
			return nil, err
		}
		left[len(left)-1].PipeStderr = b.Op == syntax.PipeAll
		return p.pipeline(left, b.Y)
	}
	c, err := p.simple(s)
	if err != nil {
		return nil, err
	}
	if p.count++; p.count > MaxCommands {
		return nil, fmt.Errorf("the command line has more than %d commands", MaxCommands)
	}
	if len(before) == MaxPipeline {
		return nil, fmt.Errorf("a pipeline has more than %d commands", MaxPipeline)
	}
	return append(before, c), nil
}

// checkStmt refuses constructs around a command, such as &. joined says that s is two commands and
// their connector, which can have no redirect.
func checkStmt(s *syntax.Stmt, joined bool) error {
	switch {
	case s.Negated:
		return needsCode{errors.New("! in front of a command is not supported")}
	case s.Background, s.Disown:
		return needsCode{errors.New("& is not supported: a command runs to its end")}
	case s.Coprocess:
		return needsCode{errors.New("coprocesses are not supported")}
	case s.Cmd == nil:
		return errors.New("a redirect without a command is not supported")
	case joined && len(s.Redirs) > 0:
		return errors.New("a redirect of several commands is not supported")
	}
	return nil
}

// simple converts a simple command: assignments, words and redirects.
// The bounds on commands and redirects keep the work of the checks small: each command is compared
// with each rule.
func (p *planner) simple(s *syntax.Stmt) (SimpleCommand, error) {
	var c SimpleCommand
	call, ok := s.Cmd.(*syntax.CallExpr)
	if !ok {
		return c, needsCode{fmt.Errorf("%s is not supported: only simple commands joined by ; && || | may run", construct(s.Cmd))}
	}
	for _, a := range call.Assigns {
		env, err := p.assignment(a)
		if err != nil {
			return c, err
		}
		c.Env = append(c.Env, env)
	}
	if len(call.Args) == 0 {
		return c, needsCode{errors.New("an assignment without a command has no effect: put it in front of the command")}
	}
	for _, w := range call.Args {
		arg, pattern, err := p.argument(w)
		if err != nil {
			return c, err
		}
		if pattern != "" {
			c.Globs = append(c.Globs, Glob{Arg: len(c.Args), Pattern: pattern})
		}
		c.Args = append(c.Args, arg)
	}
	if c.Args[0] == "" {
		return c, errors.New("the name of the command is empty")
	}
	// The program must be known before it runs.
	if len(c.Globs) > 0 && c.Globs[0].Arg == 0 {
		return c, fmt.Errorf("the name of the command, %s, is a pattern: name the program", excerpt(c.Args[0]))
	}
	var err error
	c.Redirects, err = p.redirects(s.Redirs)
	return c, err
}

// assignment returns an assignment in front of a command as NAME=value. Many variables change
// which code a program runs, such as LD_PRELOAD, so only harmless ones are allowed.
func (p *planner) assignment(a *syntax.Assign) (string, error) {
	if a.Name == nil || a.Append || a.Naked || a.Index != nil || a.Array != nil {
		return "", needsCode{errors.New("only a plain NAME=value may stand in front of a command")}
	}
	name, value := a.Name.Value, ""
	if a.Value != nil {
		var err error
		if value, err = p.word(a.Value); err != nil {
			return "", err
		}
	}
	if !commandMaySet(name) && !slices.Contains(harmlessAssignments, name+"="+value) {
		return "", needsCode{fmt.Errorf("the assignment of %s is refused: in front of a command only %s may be set", excerpt(name), commandEnvironment)}
	}
	return name + "=" + value, nil
}

// construct names a shell construct in a refusal, in the words of shell users.
func construct(c syntax.Command) string {
	switch c := c.(type) {
	case *syntax.Subshell:
		return "( ... )"
	case *syntax.Block:
		return "{ ...; }"
	case *syntax.IfClause:
		return "if"
	case *syntax.WhileClause:
		return "while or until"
	case *syntax.ForClause:
		return "for or select"
	case *syntax.CaseClause:
		return "case"
	case *syntax.FuncDecl:
		return "a function"
	case *syntax.TestClause:
		return "[[ ... ]]"
	case *syntax.ArithmCmd:
		return "(( ... ))"
	case *syntax.DeclClause:
		return c.Variant.Value
	case *syntax.LetClause:
		return "let"
	case *syntax.TimeClause:
		return "time"
	case *syntax.CoprocClause:
		return "coproc"
	}
	return "this construct"
}
