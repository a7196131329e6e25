package toolview

import (
	"context"
	"fmt"
	"log/slog"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/skillrun/skillrun/internal/executor"
)

// AuditArguments selects how the log shows a script's arguments.
type AuditArguments string

// The zero AuditArguments is AuditOff.
const (
	// AuditOff leaves them out.
	AuditOff AuditArguments = "off"
	// AuditHash logs a keyed hash: equal arguments have equal hashes, and the arguments
	// cannot be guessed without the key.
	AuditHash AuditArguments = "hash"
	// AuditTruncated logs their first 256 characters, which may hold secrets.
	AuditTruncated AuditArguments = "truncated"
)

// auditCharacters is the published length of a text in the log, in characters: code
// points, as Python counts them.
const auditCharacters = 256

// auditArguments returns the arguments as the log shows them. It takes them in the
// encoding that the script reads, so equal arguments look equal however they were
// written.
func (v *View) auditArguments(arguments string) string {
	if v.auditMode != AuditHash && v.auditMode != AuditTruncated {
		return string(AuditOff)
	}
	text, err := executor.EncodeArguments(arguments)
	if err != nil {
		return "invalid" // the request was refused
	}
	if v.auditMode == AuditHash {
		return "hmac-sha256:" + v.x.KeyedHash("audit.arguments", text)
	}
	return strconv.Quote(clip(string(text)))
}

// clip truncates a text to auditCharacters and marks the cut.
func clip(s string) string {
	if first := firstCharacters(s); first != s {
		return first + "..."
	}
	return s
}

// firstCharacters returns Python's s[:256].
func firstCharacters(s string) string {
	n := 0
	for i := range s {
		// range steps by characters, so the cut is between two of them.
		if n++; n > auditCharacters {
			return s[:i]
		}
	}
	return s
}

// auditValue returns a value for a line of the log, in quotes if it could be read
// as more than one value.
func auditValue(s string) string {
	if s == "" || !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool {
		return r == ',' || r == '=' || r == '|' || r == '"' || r == '\\' || r == ' ' || !strconv.IsPrint(r)
	}) {
		return strconv.Quote(s)
	}
	return s
}

// A scriptAudit logs one execution as the contract of ScriptExecutor promises, except for the level of
// a script that fails: that is a tenant's own error, and not one of the daemon. The log
// handler quotes messages, so a line end in a name or in output starts no second line.
// Values are quoted so that none can pass for another field.
type scriptAudit struct {
	log           *slog.Logger
	run           run
	skill, script string
	arguments     string
}

// ended logs the result of a script.
func (a scriptAudit) ended(ctx context.Context, s ScriptResult) {
	name := auditValue(path.Base(a.script))
	switch limit := secondsText(a.run.timeLimit()); {
	case s.Timeout:
		a.say(ctx, slog.LevelWarn, "Script timeout: %s exceeded %ss", name, limit)
		a.say(ctx, slog.LevelWarn, "Script execution timed out: script=%s, timeout=%s", name, limit)
	case s.ExitCode == 0:
		a.say(ctx, slog.LevelInfo, "Script executed: %s | exit_code=0 | time=%.2fms", name, s.ExecutionTimeMS)
	default:
		a.say(ctx, slog.LevelInfo, "Script failed: %s | exit_code=%d | time=%.2fms | error=%s", name, s.ExitCode, s.ExecutionTimeMS, firstCharacters(s.Stderr))
	}
	a.truncation(ctx, "Stdout", name, a.run.Outcome.Stdout)
	a.truncation(ctx, "Stderr", name, a.run.Outcome.Stderr)
	signal := "None"
	if s.Signal != nil {
		signal = *s.Signal
	}
	a.line(ctx, strconv.Itoa(s.ExitCode), float64(s.ExecutionTimeMS), signal)
}

// failed logs an execution without a result.
func (a scriptAudit) failed(ctx context.Context, err error) {
	// A cancelled program has an exit code. A program that never started has none.
	name, took, code := auditValue(path.Base(a.script)), float64(milliseconds(a.run.Usage.Wall)), "None"
	if a.run.ExitCode != nil {
		code = strconv.Itoa(*a.run.ExitCode)
	}
	a.say(ctx, slog.LevelInfo, "Script failed: %s | exit_code=%s | time=%.2fms | error=%s", name, code, took, firstCharacters(err.Error()))
	a.line(ctx, code, took, "None")
}

// truncation logs a stream that the execution's output limit has cut.
func (a scriptAudit) truncation(ctx context.Context, stream, name string, t executor.Truncation) {
	if t.Truncated() {
		a.say(ctx, slog.LevelWarn, "%s truncated for %s: %d bytes -> %d bytes", stream, name, t.TotalBytes, a.run.Limits.OutputBytes)
	}
}

// line logs the audit line that every execution leaves.
func (a scriptAudit) line(ctx context.Context, code string, took float64, signal string) {
	a.say(ctx, slog.LevelInfo, "AUDIT: Script execution - timestamp=%s, skill=%s, script=%s, args=%s, exit_code=%s, execution_time_ms=%.2f, signal=%s, stdout_truncated=%s, stderr_truncated=%s",
		time.Now().UTC().Format(time.RFC3339Nano), auditValue(a.skill), auditValue(a.script), a.arguments, code, took, signal,
		pythonBool(a.run.Outcome.Stdout.Truncated()), pythonBool(a.run.Outcome.Stderr.Truncated()))
}

// say logs one line with the execution's ID as an attribute.
func (a scriptAudit) say(ctx context.Context, level slog.Level, format string, args ...any) {
	a.log.LogAttrs(ctx, level, fmt.Sprintf(format, args...), slog.String("execution", a.run.id))
}
