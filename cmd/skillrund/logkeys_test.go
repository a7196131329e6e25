package main

import (
	"context"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

var (
	snakeCase = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	// unitOfTime ends the key of every duration in the log.
	unitOfTime = "_ms"
	// aTime matches words that are only keys of durations and points in time.
	aTime = regexp.MustCompile(`^(took|at_most|wait|wall|queue|setup|age|grace|timeout|duration|elapsed|uptime|.*_(time|timeout|took))$`)
)

// TestLogKeysOfABusyLife checks every key of all lines that a daemon logs from its start to
// its end.
func TestLogKeysOfABusyLife(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeSkill(t, dir, "changing", "", map[string]string{"scripts/v.py": "print(1)"})
	d := startDaemonIn(t, dir, "drain: 100ms\nlog: {format: json, level: debug, arguments: truncated}\n")
	d.run(code("calculator", "print(1)")).wantExit(t, 0)
	d.run(code("calculator", "open('/usr/x', 'w')")).wantExit(t, 1)
	d.run(shell("calculator", "kill -9 $$"))
	if _, err := d.try(command("calculator", "rm -rf /")); err == nil {
		t.Error("a command that no rule allows ran")
	}
	if _, err := d.try(code("no-such-skill", "print(1)")); err == nil {
		t.Error("a skill that does not exist ran")
	}
	if _, err := d.runs.SignalExecution(t.Context(), &pb.SignalExecutionRequest{ExecutionId: "none", Signal: "SIGFOO"}); err == nil {
		t.Error("a signal that does not exist was sent")
	}
	if stream, err := d.skills.PrepareSkill(t.Context(), &pb.PrepareSkillRequest{Skill: "changing"}); err != nil {
		t.Error(err)
	} else if _, err := stream.Recv(); err != nil {
		t.Errorf("prepare: %v", err)
	}
	ready, s := d.untilOutput(t.Context(), shell("calculator", "echo ready; sleep 3600"))
	if _, err := d.runs.CancelExecution(t.Context(), &pb.CancelExecutionRequest{ExecutionId: ready.ExecutionId, Reason: "enough"}); err != nil {
		t.Error(err)
	}
	if r, err := collect(t, s, ready.Sequence, nil); err != nil && r.outcome == nil {
		t.Error(err)
	}
	writeSkill(t, dir, "changing", "name: [", nil)
	d.cmd.Process.Signal(syscall.SIGHUP)
	d.awaitLog(`"skills reloaded"`)
	ready, s = d.untilOutput(t.Context(), shell("calculator", "echo ready; sleep 3600"))
	d.cmd.Process.Signal(syscall.SIGTERM)
	if r, err := collect(t, s, ready.Sequence, nil); err != nil && r.outcome == nil {
		t.Error(err)
	}
	if err := d.wait(); err != nil {
		t.Errorf("the daemon exited with %v", err)
	}

	messages := map[string]bool{}
	for line := range strings.Lines(d.log.String()) {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Errorf("not JSON: %s", line)
			continue
		}
		messages[entry["msg"].(string)] = true
		checkKeys(t, line, entry)
	}
	for _, want := range []string{"serving", "boundaries tried", "execution", "call", "skills reloaded", "skill not loaded", "draining"} {
		if !messages[want] {
			t.Errorf("the life was not busy enough: no line says %q", want)
		}
	}
}

// awaitLog waits until the log contains a text.
func (d *running) awaitLog(text string) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), patience)
	defer cancel()
	for !strings.Contains(d.log.String(), text) {
		// The call slows the loop down and fails if the daemon has exited.
		if _, err := d.system.GetCapabilities(ctx, &pb.GetCapabilitiesRequest{}); err != nil {
			d.t.Fatalf("no line with %s: %v", text, err)
		}
	}
}

func checkKeys(t *testing.T, line string, entry map[string]any) {
	t.Helper()
	for key, value := range entry {
		if !snakeCase.MatchString(key) {
			t.Errorf("key %q is not snake_case: %s", key, line)
		}
		switch value := value.(type) {
		case map[string]any:
			checkKeys(t, line, value)
		case float64:
			if aTime.MatchString(key) {
				t.Errorf("key %q has no unit: %s", key, line)
			}
		}
	}
}

// TestLogKeysInTheSources checks the keys in the source code, also of lines that are rarely
// logged.
func TestLogKeysInTheSources(t *testing.T) {
	calls := 0
	for _, root := range []string{"../../internal", "../../sandbox", "../../cmd/skillrund"} {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					calls += checkLogCall(t, files.Position(n.Pos()).String(), call)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if calls < 50 {
		t.Errorf("found %d calls of a logger, which are too few to be all", calls)
	}
}

// otherKeys maps keys that the log does not use to the keys that it uses instead.
var otherKeys = map[string]string{"error": "err", "id": "execution", "execution_id": "execution", "slot": "sandbox"}

// keysBegin maps methods of a logger to the index of their first key.
var keysBegin = map[string]int{"Debug": 1, "Info": 1, "Warn": 1, "Error": 1, "With": 0, "Log": 3}

// checkLogCall checks the keys of one call. It returns 1 if it is a call of a logger, else 0.
func checkLogCall(t *testing.T, at string, call *ast.CallExpr) int {
	t.Helper()
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return 0
	}
	begin, ok := keysBegin[method.Sel.Name]
	if !ok || !isLogger(method.X) || len(call.Args) < begin {
		return 0
	}
	for i := begin; i < len(call.Args); i++ {
		key, err := stringOf(call.Args[i])
		if err != nil {
			continue // slog.String and similar: one argument has both key and value
		}
		if !snakeCase.MatchString(key) {
			t.Errorf("%s: key %q is not snake_case", at, key)
		}
		if want, ok := otherKeys[key]; ok {
			t.Errorf("%s: key %q, want %q", at, key, want)
		}
		i++
		if i < len(call.Args) && isDuration(call.Args[i]) && !strings.HasSuffix(key, unitOfTime) {
			t.Errorf("%s: the duration %q has no unit in its key", at, key)
		}
	}
	return 1
}

// isLogger decides by the name: log, Log, logger, x.Log, h.log().
func isLogger(x ast.Expr) bool {
	if call, ok := x.(*ast.CallExpr); ok {
		x = call.Fun
	}
	name := ""
	switch x := x.(type) {
	case *ast.Ident:
		name = x.Name
	case *ast.SelectorExpr:
		name = x.Sel.Name
	}
	return slices.Contains([]string{"log", "logger"}, strings.ToLower(name))
}

func stringOf(x ast.Expr) (string, error) {
	literal, ok := x.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return "", errors.New("not a text")
	}
	return strconv.Unquote(literal.Value)
}

// isDuration recognizes the usual expressions: time.Since, a conversion, Round.
func isDuration(x ast.Expr) bool {
	call, ok := x.(*ast.CallExpr)
	if !ok {
		return false
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	from, _ := f.X.(*ast.Ident)
	return from != nil && from.Name == "time" && slices.Contains([]string{"Since", "Until", "Duration"}, f.Sel.Name) || f.Sel.Name == "Round"
}
