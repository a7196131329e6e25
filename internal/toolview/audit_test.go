package toolview

import (
	"encoding/json"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/skillrun/skillrun/internal/hosttest"
)

// The contract's logging section, line by line.
func TestContractScriptLog(t *testing.T) {
	t.Parallel()
	b := newScripts(t, hosttest.Host(t))
	one := func(level string, parts ...string) string {
		t.Helper()
		lines := b.logs.With(append(parts, "level="+level)...)
		if len(lines) != 1 {
			t.Fatalf("%s %q: got %q", level, parts, lines)
		}
		return lines[0]
	}
	matches := func(line, pattern string) {
		t.Helper()
		if !regexp.MustCompile(pattern).MatchString(line) {
			t.Errorf("got  %s\nwant %s", line, pattern)
		}
	}
	r := b.script(ScriptRequest{ScriptPath: "scripts/echo.py"})
	matches(one("INFO", r.ExecutionID, "Script executed"), `"Script executed: echo\.py \| exit_code=0 \| time=\d+\.\d\dms"`)
	if lines := b.logs.With(r.ExecutionID, "level=WARN"); len(lines) != 0 {
		t.Errorf("a script that succeeded logs a warning: %q", lines)
	}

	r = b.script(ScriptRequest{ScriptPath: "scripts/fail.py"})
	matches(one("INFO", r.ExecutionID, "Script failed"), `"Script failed: fail\.py \| exit_code=1 \| time=\d+\.\d\dms \| error=bad"`)

	r = b.script(ScriptRequest{ScriptPath: "scripts/segv.py"})
	matches(one("INFO", r.ExecutionID, "Script failed"), `segv\.py \| exit_code=-11 \|`)
	matches(one("INFO", r.ExecutionID, "AUDIT:"), `signal=SIGSEGV,`)

	r = b.script(ScriptRequest{ScriptPath: "scripts/slow.py", Timeout: 100 * time.Millisecond})
	matches(one("WARN", r.ExecutionID, "Script timeout"), `"Script timeout: slow\.py exceeded 0\.1s"`)
	matches(one("WARN", r.ExecutionID, "timed out"), `script=slow\.py, timeout=0\.1"`)
	if lines := b.logs.With(r.ExecutionID, "level=ERROR"); len(lines) != 0 {
		t.Errorf("a timeout is logged as an error too: %q", lines)
	}

	r = b.script(ScriptRequest{ScriptPath: "scripts/big.py", MaxOutputSize: 1000})
	matches(one("WARN", r.ExecutionID, "Stdout truncated"), `"Stdout truncated for big\.py: 10485761 bytes -> 1000 bytes"`)
	matches(one("WARN", r.ExecutionID, "Stderr truncated"), `"Stderr truncated for big\.py: 10485762 bytes -> 1000 bytes"`)
	failed := one("INFO", r.ExecutionID, "Script failed")
	if n := strings.Count(failed, "y"); n != 256+1 { // and the y of big.py
		t.Errorf("%d characters of stderr, want 256: %s", n-1, failed)
	}
	matches(one("INFO", r.ExecutionID, "AUDIT:"), `stdout_truncated=True, stderr_truncated=True"`)
}

// The audit line has all its fields in order, whatever the end of the script.
func TestContractScriptAuditLine(t *testing.T) {
	t.Parallel()
	b := newScripts(t, hosttest.Host(t))
	for script, want := range map[string]string{
		"echo.py": `exit_code=0, execution_time_ms=\d+\.\d\d, signal=None,`,
		"fail.py": `exit_code=1, execution_time_ms=\d+\.\d\d, signal=None,`,
		"kill.py": `exit_code=-9, execution_time_ms=\d+\.\d\d, signal=SIGKILL,`,
	} {
		r := b.script(ScriptRequest{ScriptPath: "/skills/pdf/scripts/" + script, Arguments: `{"password": "hunter2"}`})
		lines := b.logs.With("AUDIT:", r.ExecutionID)
		pattern := `level=INFO msg="AUDIT: Script execution - timestamp=\d{4}-\d\d-\d\dT[0-9:.]+Z, skill=pdf, script=scripts/` + regexp.QuoteMeta(script) +
			`, args=off, ` + want + ` stdout_truncated=False, stderr_truncated=False" execution=` + r.ExecutionID + "\n$"
		if len(lines) != 1 || !regexp.MustCompile(pattern).MatchString(lines[0]) {
			t.Errorf("got  %q\nwant %s", lines, pattern)
		}
	}
	if lines := b.logs.With("hunter2"); len(lines) != 0 {
		t.Errorf("arguments are logged: %q", lines)
	}
}

func TestContractSecurityViolationIsLogged(t *testing.T) {
	t.Parallel()
	b := newScripts(t, nil)
	b.ExecuteScript(t.Context(), b.who, ScriptRequest{Skill: "pdf", ScriptPath: "../../etc/passwd"}, nil)
	if lines := b.logs.With("level=WARN", `msg="Security violation: Path traversal attempt: skill=pdf, script=../../etc/passwd"`); len(lines) != 1 {
		t.Errorf("got %q", lines)
	}
	b.ExecuteScript(t.Context(), b.who, ScriptRequest{Skill: "pdf", ScriptPath: "scripts/no.py"}, nil)
	if lines := b.logs.With("Security violation"); len(lines) != 1 {
		t.Errorf("a missing file is logged as a security violation: %q", lines)
	}
	b.ValidateScriptPath(t.Context(), b.who, "pdf", "../../etc/passwd")
	if lines := b.logs.With("level=WARN", `msg="Path traversal attack detected: skill=pdf, script=../../etc/passwd"`); len(lines) != 1 {
		t.Errorf("got %q", lines)
	}
}

func TestAuditArguments(t *testing.T) {
	t.Parallel()
	b := newScripts(t, hosttest.Host(t))
	args := func(mode AuditArguments, arguments string) string {
		t.Helper()
		b.auditMode = mode
		r := b.script(ScriptRequest{ScriptPath: "scripts/extract.py", Arguments: arguments})
		line := strings.Join(b.logs.With("AUDIT:", r.ExecutionID), "")
		_, line, _ = strings.Cut(line, "args=")
		line, _, _ = strings.Cut(line, ", exit_code=")
		return line
	}
	const secret = `{"file": "hunter2"}`
	for _, off := range []AuditArguments{"", AuditOff} {
		if got := args(off, secret); got != "off" {
			t.Errorf("%q: got %s", off, got)
		}
	}
	one, same, other := args(AuditHash, secret), args(AuditHash, `{ "file":"hunter2" }`), args(AuditHash, `{"file": "hunter3"}`)
	if !regexp.MustCompile(`^hmac-sha256:[0-9a-f]{64}$`).MatchString(one) || one != same || one == other {
		t.Errorf("hashes %s, %s, %s", one, same, other)
	}
	// The hash needs the daemon's key, so another daemon's hash differs.
	b2 := newScripts(t, hosttest.Host(t))
	if b2.auditMode = AuditHash; b2.auditArguments(secret) == one {
		t.Error("two daemons have the same hash")
	}
	// The inner quotes are from the value, the outer ones from the log's format.
	if got, want := args(AuditTruncated, secret), `\"{\\\"file\\\": \\\"hunter2\\\"}\"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	long := `{"file": "` + strings.Repeat("é", 400) + `"}`
	if got, want := args(AuditTruncated, long), string([]rune(long)[:256])+"..."; strings.ReplaceAll(got, `\`, "") != `"`+want+`"` {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if got := b.auditArguments("{"); got != "invalid" {
		t.Errorf("got %s", got)
	}
	exact := `{"file": "` + strings.Repeat("x", 256-len(`{"file": ""}`)) + `"}`
	if got := args(AuditTruncated, exact); strings.Contains(got, "...") {
		t.Errorf("a text of 256 characters is cut: %s", got)
	}
}

// No name, argument or output can forge a log line or a field.
func TestAuditCannotBeForged(t *testing.T) {
	t.Parallel()
	const forged = "AUDIT: Script execution - timestamp=0, skill=root"
	dir := "a, exit_code=0, signal=None"
	b := newBench(t, nil, skillText{name: "pdf", files: map[string]string{
		dir + "/x | exit_code=0.sh": "printf 'line\\n" + forged + "\\n' >&2\nexit 3\n",
	}})
	for name, log := range map[string]*slog.Logger{
		"text": slog.New(slog.NewTextHandler(b.logs, nil)),
		"json": slog.New(slog.NewJSONHandler(b.logs, nil)),
	} {
		t.Run(name, func(t *testing.T) {
			b.t = t
			b.log, b.auditMode = log, AuditTruncated
			r := b.script(ScriptRequest{ScriptPath: dir + "/x | exit_code=0.sh", Arguments: "{\"a\": \"b\", \n\"x\": \"c, exit_code=0\"}"})
			lines := b.logs.With(r.ExecutionID)
			for _, line := range lines {
				if strings.HasPrefix(line, "AUDIT") || strings.HasPrefix(line, forged) {
					t.Errorf("forged line: %s", line)
				}
			}
			if len(b.logs.With("AUDIT:", r.ExecutionID, "exit_code=3, execution_time_ms=")) != 1 {
				t.Errorf("got %q", lines)
			}
			if name == "json" {
				for _, line := range lines {
					if strings.Contains(line, "msg=execution") {
						continue // a line of the executor, not of the view
					}
					var v struct{ Msg string }
					if err := json.Unmarshal([]byte(line), &v); err != nil {
						t.Errorf("%s: %v", line, err)
					}
					if strings.HasPrefix(v.Msg, "AUDIT") && !strings.Contains(v.Msg, `script="a, exit_code=0, signal=None/x | exit_code=0.sh", args="`) {
						t.Errorf("the path forges fields: %s", v.Msg)
					}
				}
			}
		})
	}
}

func TestAuditValue(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"scripts/a.py": "scripts/a.py", "é.py": "é.py", "": `""`, "a b": `"a b"`, "a,b": `"a,b"`, "a=b": `"a=b"`,
		"a|b": `"a|b"`, "a\nb": `"a\nb"`, `a"b`: `"a\"b"`, "a\xff": `"a\xff"`, "a\u202eb": `"a\u202eb"`, `a\b`: `"a\\b"`,
	} {
		if got := auditValue(in); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
}

// A view without a configured log uses slog.Default.
func TestViewLogsByDefault(t *testing.T) {
	t.Parallel()
	if New(Config{}).log != slog.Default() {
		t.Error("a view without a log does not use slog.Default")
	}
}
