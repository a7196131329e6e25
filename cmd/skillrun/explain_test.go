package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/skillrun/skillrun/internal/certtest"
	"github.com/skillrun/skillrun/internal/eventtest"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A connection that fails has its cause, without the words of gRPC, and the flag that helps.
func TestUnreachable(t *testing.T) {
	a := &app{address: "host:1"}
	for message, want := range map[string]string{
		`connection error: desc = "transport: Error while dialing: dial tcp 10.0.0.1:1: connect: connection refused"`:                                                       "cannot reach it: dial tcp 10.0.0.1:1: connect: connection refused (is skillrund running? skillrun doctor says more)",
		`connection error: desc = "error reading server preface: EOF"`:                                                                                                      "cannot reach it: error reading server preface: EOF (if the daemon has TLS at this address, add --tls-ca FILE, or --tls)",
		`connection error: desc = "transport: authentication handshake failed: tls: failed to verify certificate: x509: certificate signed by unknown authority"`:           "cannot reach it: tls: failed to verify certificate: x509: certificate signed by unknown authority (--tls-ca FILE has the authority of the daemon's certificate)",
		`connection error: desc = "transport: authentication handshake failed: remote error: tls: no application protocol"`:                                                 "cannot reach it: remote error: tls: no application protocol (this address is not for gRPC; the one of listen.mcp_tcp is for skillrun mcp)",
		`connection error: desc = "transport: authentication handshake failed: tls: first record does not look like a TLS handshake"`:                                       "cannot reach it: tls: first record does not look like a TLS handshake (the daemon has no TLS at this address: leave out --tls and --tls-ca)",
		`connection error: desc = "transport: authentication handshake failed: tls: failed to verify certificate: x509: certificate is valid for a.example, not b.example"`: "cannot reach it: tls: failed to verify certificate: x509: certificate is valid for a.example, not b.example (use a name that the daemon's certificate has, as the address or as --tls-server-name)",
		`connection error: desc = "error reading server preface: http2: frame too large, note that the frame header looked like an HTTP/1.1 header"`:                        "it answers in HTTP/1.1, which gRPC does not use (is it the address for MCP or for metrics? --address takes the one for gRPC)",
		`name resolver error: produced zero addresses`: "its host is not found (check the name in the address)",
		`connection error: desc = "error reading from server: EOF", received prior goaway: code: NO_ERROR, debug data: "graceful_stop"`: "the daemon stopped, or handed over to another one, before it answered (run the command again)",
		`another form`: "another form (is skillrund running? skillrun doctor says more)",
	} {
		if got := a.explain(status.Error(codes.Unavailable, message)); got != "daemon at host:1: "+want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// TestRefusals: one line that says what, why and what to do, and the exit code.
func TestRefusals(t *testing.T) {
	meta := func(pairs ...string) protoadapt.MessageV1 {
		m := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = pairs[i+1]
		}
		return &errdetails.ErrorInfo{Metadata: m}
	}
	field := func(name string) protoadapt.MessageV1 {
		return &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: name, Description: "x"}}}
	}
	tests := []struct {
		err  error
		code int
		want string
	}{
		{refusal(codes.NotFound, "SKILL_NOT_FOUND", "resolve demo: skill not found"), 127,
			"run demo: resolve demo: skill not found (SKILL_NOT_FOUND; 'skillrun skills' lists what there is)"},
		{refusal(codes.NotFound, "SKILL_FILE_NOT_FOUND", "x.py: not found"), 127,
			"run demo: x.py: not found (SKILL_FILE_NOT_FOUND; 'skillrun skills NAME' lists the scripts of a skill)"},
		{refusal(codes.NotFound, "SESSION_NOT_FOUND", `session "s1": not found`), 127,
			`run demo: session "s1": not found (SESSION_NOT_FOUND; 'skillrun session ls' lists what there is)`},
		{refusal(codes.NotFound, "SESSION_NOT_FOUND", `path "nosuch": not found`), 127,
			`run demo: path "nosuch": not found (SESSION_NOT_FOUND; 'skillrun session show SESSION' lists the files)`},
		{refusal(codes.NotFound, "SESSION_NOT_FOUND", `session "s1": version 99: not found`), 127,
			`run demo: session "s1": version 99: not found (SESSION_NOT_FOUND; 'skillrun session versions SESSION' lists the versions)`},
		{refusal(codes.AlreadyExists, "IDEMPOTENCY_KEY_REUSED", "idempotency_key: belongs to another request (execution e1); use a new key"), 126,
			"run demo: --key: belongs to another request (execution e1); use a new key (IDEMPOTENCY_KEY_REUSED)"},
		{refusal(codes.FailedPrecondition, "INTERPRETER_MISSING", "ruby: not found"), 127, "run demo: ruby: not found (INTERPRETER_MISSING)"},
		{refusal(codes.FailedPrecondition, "UNKNOWN_EXTENSION", "x.xyz: no interpreter"), 126, "run demo: x.xyz: no interpreter (UNKNOWN_EXTENSION)"},
		{refusal(codes.PermissionDenied, "COMMAND_NOT_ALLOWED", "'rm' is not covered", meta("missingRule", "Bash(rm:*)")), 126,
			"run demo: 'rm' is not covered (COMMAND_NOT_ALLOWED; allowed-tools would need Bash(rm:*))"},
		{refusal(codes.PermissionDenied, "COMMAND_NOT_ALLOWED", "for or select is not supported", meta("instead", "code")), 126,
			"run demo: for or select is not supported (COMMAND_NOT_ALLOWED; write it as code: run --code)"},
		{refusal(codes.InvalidArgument, "LIMIT_TOO_LARGE", "601s is too much", field("limits.wall_time"), meta("asked", "10m1s", "ceiling", "10m0s", "setBy", "daemon")), 126,
			"run demo: --timeout 10m1s is too large; the daemon allows at most 10m (limits.max.wall_time in its configuration) (LIMIT_TOO_LARGE)"},
		{refusal(codes.InvalidArgument, "LIMIT_TOO_LARGE", "limits.wall_time: 601s is above 600s", field("limits.wall_time"), meta("ceiling", "600s")), 126,
			"run demo: --timeout: 601s is above 600s (LIMIT_TOO_LARGE)"},
		{refusal(codes.InvalidArgument, "LIMIT_TOO_LARGE", "limits.wall_time: 1m1s is too much", field("limits.wall_time"), meta("asked", "1m1s", "ceiling", "1m0s", "setBy", "skill")), 126,
			"run demo: --timeout 1m1s is too large; the skill allows at most 1m (max_execution_time in its SKILL.md) (LIMIT_TOO_LARGE)"},
		{refusal(codes.InvalidArgument, "LIMIT_TOO_LARGE", "limits.memory_bytes: too much", field("limits.memory_bytes"), meta("asked", "106300440576 bytes", "ceiling", "4294967296 bytes", "setBy", "daemon")), 126,
			"run demo: --memory 99 GiB is too large; the daemon allows at most 4 GiB (limits.max.memory in its configuration) (LIMIT_TOO_LARGE)"},
		{refusal(codes.InvalidArgument, "LIMIT_TOO_LARGE", "too much", field("limits.memory_bytes"), meta("asked", "4294967297 bytes", "ceiling", "4294967296 bytes", "setBy", "daemon")), 126,
			"run demo: --memory 4294967297 bytes is too large; the daemon allows at most 4 GiB (limits.max.memory in its configuration) (LIMIT_TOO_LARGE)"},
		{refusal(codes.InvalidArgument, "LIMIT_TOO_LARGE", "too much", field("limits.milli_cpus"), meta("asked", "8000", "ceiling", "1500", "setBy", "daemon")), 126,
			"run demo: --cpus 8 is too large; the daemon allows at most 1.5 (limits.max.cpus in its configuration) (LIMIT_TOO_LARGE)"},
		{refusal(codes.InvalidArgument, "LIMIT_TOO_SMALL", "limits.memory_bytes: 1", field("limits.memory_bytes"), meta("asked", "1048576 bytes", "floor", "16777216 bytes")), 126,
			"run demo: --memory 1 MiB is too small; the minimum is 16 MiB (LIMIT_TOO_SMALL)"},
		{refusal(codes.InvalidArgument, "INVALID_REQUEST", "queue_timeout: must be between 0 and 10m0s", field("queue_timeout")), 126,
			"run demo: --queue-timeout: must be between 0 and 10m0s (INVALID_REQUEST)"},
		{refusal(codes.InvalidArgument, "INVALID_TOOL_ARGUMENTS", "arguments_json: bash: timeout: must be at most 600", field("arguments_json")), 126,
			"run demo: ARGUMENTS: bash: timeout: must be at most 600 (INVALID_TOOL_ARGUMENTS)"},
		{refusal(codes.InvalidArgument, "INVALID_REQUEST", "labels: the key has 70 characters", field("labels")), 126,
			"run demo: --label: the key has 70 characters (INVALID_REQUEST)"},
		{refusal(codes.InvalidArgument, "INVALID_REQUEST", "code: empty", field("code.text")), 126,
			"run demo: --code: empty (INVALID_REQUEST)"},
		{refusal(codes.InvalidArgument, "UNKNOWN_LANGUAGE", `language "cobol": unknown, use python`, field("code.language")), 126,
			`run demo: --language "cobol": unknown, use python (UNKNOWN_LANGUAGE)`},
		{refusal(codes.InvalidArgument, "INVALID_REQUEST", "args[3]: has a NUL byte", field("args[3]")), 126,
			"run demo: argument 4: has a NUL byte (INVALID_REQUEST)"},
		{refusal(codes.InvalidArgument, "INVALID_INPUT_FILE", `input "x": the skill has something there`, field("files")), 126,
			`run demo: --file: input "x": the skill has something there (INVALID_INPUT_FILE)`},
		{refusal(codes.InvalidArgument, "INVALID_REQUEST", `files[1].path: "x" comes twice`, field("files[1].path")), 126,
			`run demo: --file: "x" comes twice (INVALID_REQUEST)`},
		{refusal(codes.InvalidArgument, "ENV_NOT_ALLOWED", "env PATH: the sandbox sets it", field("env")), 126,
			"run demo: --env PATH: the sandbox sets it (ENV_NOT_ALLOWED)"},
		{refusal(codes.InvalidArgument, "ENV_NOT_ALLOWED", "secret_env PATH: the sandbox sets it", field("secret_env")), 126,
			"run demo: --secret-env PATH: the sandbox sets it (ENV_NOT_ALLOWED)"},
		{refusal(codes.InvalidArgument, "UNKNOWN_LANGUAGE", `"cobol": no such language`, field("code.language")), 126,
			`run demo: --language: "cobol": no such language (UNKNOWN_LANGUAGE)`},
		{refusal(codes.InvalidArgument, "INVALID_SKILL_NAME", "Invalid skill name: 'A'.", field("skill")), 126,
			"run demo: Invalid skill name: 'A'. (INVALID_SKILL_NAME)"},
		{refusal(codes.FailedPrecondition, "DIGEST_MISMATCH", "mismatch", meta("currentDigest", "sha256:ab")), 126,
			"run demo: mismatch (DIGEST_MISMATCH; it is sha256:ab now)"},
		{refusal(codes.AlreadyExists, "IDEMPOTENCY_KEY_REUSED", "key is taken", meta("executionId", "e0")), 126,
			"run demo: key is taken (IDEMPOTENCY_KEY_REUSED; it belongs to execution e0)"},
		{refusal(codes.ResourceExhausted, "SATURATED", "used up; try again in 2s", &errdetails.RetryInfo{RetryDelay: durationpb.New(2 * time.Second)}), 126,
			"run demo: used up; try again in 2s (SATURATED)"},
		{refusal(codes.ResourceExhausted, "SATURATED", "full", &errdetails.RetryInfo{RetryDelay: durationpb.New(2 * time.Second)}), 126,
			"run demo: full (SATURATED; try again in 2s)"},
		{refusal(codes.ResourceExhausted, "SKILL_QUOTA_EXCEEDED", "too large"), 126, "run demo: too large (SKILL_QUOTA_EXCEEDED)"},
		{refusal(codes.ResourceExhausted, "MESSAGE_TOO_LARGE", "grpc: received message larger than max (40 vs. 30)"), 125,
			"run demo: the request has 40 bytes, the daemon accepts 30: pass large data by --file or standard input, or raise message_bytes in the daemon's configuration (MESSAGE_TOO_LARGE)"},
		{status.Error(codes.ResourceExhausted, "grpc: received message larger than max (40 vs. 30)"), 125,
			"run demo: the request has 40 bytes, the daemon accepts 30: pass large data by --file or standard input, or raise message_bytes in the daemon's configuration (ResourceExhausted)"},
		{refusal(codes.Unavailable, "DRAINING", "draining"), 125, "run demo: draining (DRAINING)"},
		{refusal(codes.Internal, "INTERNAL", "internal error (reference r1)"), 125, "run demo: internal error (reference r1) (INTERNAL)"},
		{refusal(codes.Unauthenticated, "UNIDENTIFIED", "who?"), 126, "run demo: who? (UNIDENTIFIED)"},
		{status.Error(codes.NotFound, "\x1b]0;evil\a"), 127, `run demo: \x1b]0;evil\x07 (NotFound)`},
	}
	for _, test := range tests {
		f := &fake{execute: func(*pb.ExecuteRequest, eventtest.Server) error { return test.err }}
		got := f.client(t, nil, "run", "--wait", "0", "demo", "x.py")
		if want := (result{test.code, "", "skillrun: " + test.want + "\n"}); got != want {
			t.Errorf("got %+v\nwant %+v", got, want)
		}
	}
}

// TestUnknownSignal: the answer names the argument and lists the signals.
func TestUnknownSignal(t *testing.T) {
	f := &fake{answers: map[string]any{"SignalExecution": func(r *pb.SignalExecutionRequest) (*pb.SignalExecutionResponse, error) {
		return nil, refusal(codes.InvalidArgument, "INVALID_REQUEST", `signal: "`+r.GetSignal()+`" is not a signal that can be sent; choose one of SIGHUP, SIGINT`,
			&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "signal"}}})
	}}}
	got := f.client(t, nil, "signal", "e1", "foo")
	want := result{126, "", `skillrun: signal e1: SIGNAL: "SIGFOO" is not a signal that can be sent; choose one of SIGHUP, SIGINT (INVALID_REQUEST)` + "\n"}
	if got != want {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// daemonCommands are all that need a daemon.
var daemonCommands = [][]string{
	{"run", "--wait", "0", "demo", "x.py"}, {"attach", "--wait", "0", "e1"}, {"ps"}, {"show", "e1"}, {"cancel", "e1"}, {"signal", "e1", "INT"},
	{"artifacts", "e1"}, {"skills"}, {"skills", "demo"}, {"tool", "list"}, {"activate", "demo"}, {"validate", "demo"}, {"prepare", "demo"},
	{"check", "demo", "--command", "ls"}, {"doctor"},
}

func TestNoDaemon(t *testing.T) {
	for _, args := range daemonCommands {
		f := &fake{address: "unix:///nonexistent/skillrun.sock"}
		got := f.client(t, nil, args...)
		code := codeFailed
		if args[0] == "validate" {
			code = codeNotFound // validate takes the name for a missing folder
		}
		for _, want := range []string{f.address, "no such file or directory", "skillrund"} {
			if got.code != code || got.stdout != "" || !strings.Contains(got.stderr, want) {
				t.Errorf("%q: got %+v, want code %d and %q", args, got, code, want)
			}
		}
		if lines := strings.Count(got.stderr, "\n"); args[0] != "doctor" && lines != 1 {
			t.Errorf("%q: got %d lines, want 1", args, lines)
		}
	}
}

func TestDaemonTooOld(t *testing.T) {
	for _, args := range daemonCommands {
		f := &fake{} // every method answers UNIMPLEMENTED
		got := f.client(t, nil, args...)
		if got.code != 125 || got.stdout != "" || !strings.Contains(got.stderr, "older than this client") || strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("%q: got %+v, want code 125 and one line about the daemon's age", args, got)
		}
	}
}

// A file of the user's that can't be used is named with its flag, and is no refusal of the daemon.
func TestCredentialFiles(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	gone, empty, long := filepath.Join(dir, "gone"), file("empty", "\n"), file("long", strings.Repeat("x", 9000))
	authority := certtest.NewAuthority(t, "ours")
	certificate, _ := authority.Client("a", nil).Write(dir, "a")
	_, key := authority.Client("b", nil).Write(dir, "b")
	contexts(t)
	if got := local(t, "context", "set", "a", "--address", "unix://"+gone, "--", gone); got.code != 0 {
		t.Fatal(got)
	}
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--token-file", gone, "skills"}, "--token-file " + gone + ": no such file or directory"},
		{[]string{"--token-file", gone, "run", "demo", "x.py"}, "--token-file " + gone + ": no such file or directory"},
		{[]string{"--token-file", empty, "skills"}, "--token-file " + empty + ": it is empty"},
		{[]string{"--token-file", long, "skills"}, "--token-file " + long + ": it has 9000 bytes; a token has at most 8192"},
		{[]string{"--tls-ca", gone, "skills"}, "--tls-ca " + gone + ": no such file or directory"},
		{[]string{"--tls-ca", empty, "skills"}, "--tls-ca: " + empty + " has no certificate in PEM"},
		{[]string{"--tls-cert", certificate, "--tls-key", gone, "skills"}, "--tls-key " + gone + ": no such file or directory"},
		{[]string{"--tls-cert", gone, "--tls-key", key, "skills"}, "--tls-cert " + gone + ": no such file or directory"},
		{[]string{"--tls-cert", certificate, "--tls-key", key, "skills"}, "--tls-cert and --tls-key: private key does not match public key"},
	} {
		if got := newRecord().fake().client(t, nil, test.args...); got != (result{codeFailed, "", "skillrun: " + test.want + "\n"}) {
			t.Errorf("%q: got %+v, want %s", test.args, got, test.want)
		}
	}
	f := newRecord().fake()
	f.serve(t, "unix")
	got := local(t, "--context", "a", "--address", f.address, "skills")
	if want := "skillrun: the context's token: command " + gone + ": fork/exec " + gone + ": no such file or directory\n"; got.code != codeFailed || got.stderr != want {
		t.Errorf("got %+v, want %s", got, want)
	}
}

// A run that has waited for its session is not told to wait.
func TestSessionBusy(t *testing.T) {
	const busy = "session s1 is in use by another execution"
	f := &fake{execute: func(r *pb.ExecuteRequest, _ eventtest.Server) error {
		if r.GetSession().GetWait() {
			return refusal(codes.FailedPrecondition, "SESSION_BUSY", busy+", also at the end of the queue timeout")
		}
		return refusal(codes.FailedPrecondition, "SESSION_BUSY", busy+"; try again when it has ended")
	}}
	for flags, want := range map[string]string{
		"":                                  busy + "; try again when it has ended (SESSION_BUSY)",
		"--session-wait --queue-timeout 1s": busy + ", also at the end of the queue timeout (SESSION_BUSY; waited for --queue-timeout 1s; a longer one waits longer)",
	} {
		args := append([]string{"session", "run"}, strings.Fields(flags+" s1 demo x.py")...)
		if got := f.client(t, nil, args...); got.code != codeRefused || !strings.HasSuffix(got.stderr, want+"\n") {
			t.Errorf("%q: got %+v, want %s", flags, got, want)
		}
	}
}

func TestBadAddress(t *testing.T) {
	f := &fake{address: "nonsense"}
	if got := f.client(t, nil, "ps"); got.code != 125 || !strings.Contains(got.stderr, `address "nonsense"`) {
		t.Errorf("got %+v, want code 125 and the address", got)
	}
	if got := local(t, "--address", "localhost:99999", "ps"); got != (result{125, "", "skillrun: address \"localhost:99999\": the port must be 1 to 65535\n"}) {
		t.Errorf("got %+v, want code 125 and the port", got)
	}
	metrics := httptest.NewServer(http.NotFoundHandler())
	defer metrics.Close()
	if got := local(t, "--address", metrics.Listener.Addr().String(), "--wait", "0", "ps"); got.code != 125 || !strings.Contains(got.stderr, ": it answers in HTTP/1.1, which gRPC does not use (is it the address for MCP or for metrics?") {
		t.Errorf("got %+v, want code 125 and the other addresses", got)
	}
}

func TestAddressFromTheEnvironmentAndTCP(t *testing.T) {
	f := newRecord().stdout("x").exit(0).fake()
	f.serve(t, "tcp")
	t.Setenv(addressVariable, f.address)
	var stdout, stderr strings.Builder
	if got := run(t.Context(), []string{"run", "demo", "x.py"}, nil, &stdout, &stderr); got != 0 || stdout.String() != "x" {
		t.Errorf("got %d, %q, %q, want 0, %q", got, stdout.String(), stderr.String(), "x")
	}
}

func TestUsageErrors(t *testing.T) {
	tests := []struct {
		args []string
		want string
	}{
		{[]string{"nonsense"}, "unknown command"},
		{[]string{"attach"}, "skillrun: attach needs ID (see 'skillrun attach --help')"},
		{[]string{"show", "e1", "e2"}, `skillrun: show takes only ID, but got "e2" as well (see`},
		{[]string{"cancel"}, "cancel needs ID (see"},
		{[]string{"tool", "call"}, "tool call needs TOOL (see"},
		{[]string{"tool", "call", "a", "{}", "b"}, `tool call takes only TOOL and [ARGUMENTS], but got "b" as well`},
		{[]string{"completion", "foo"}, `no completion for "foo"; there is one for bash, zsh, fish and powershell`},
		{[]string{"ps", "--wait", "-1s"}, "--wait -1s: want a time such as 250ms, 30s or 1m30s, or 0"},
		{[]string{"ps", "-n", "-1"}, "--limit -1: must not be less than 0"},
		{[]string{"session", "create", "--ttl", "0"}, "--ttl 0s: must be more than 0"},
		{[]string{"session", "create", "--idle-ttl", "-1h"}, "--idle-ttl -1h0m0s: must be more than 0"},
		{[]string{"ps", "x"}, `skillrun ps takes no arguments, but got "x"`},
		{[]string{"ps", "--end", "well"}, "--end well: want exited"},
		{[]string{"ps", "--label", "x"}, "want key=value"},
		{[]string{"signal", "e1"}, "skillrun: signal needs ID and SIGNAL (see"},
		{[]string{"check", "demo"}, "no command"},
		{[]string{"check", "--command", "ls"}, "give --allowed-tools or one SKILL"},
		{[]string{"check", "demo", "--allowed-tools", "Bash", "--command", "ls"}, "give --allowed-tools or one SKILL"},
		{[]string{"check", "demo", "--command", "ls", "--", "ls"}, "give the command once"},
		{[]string{"check", "demo", "--"}, "give the command once"},
		{[]string{"session", "cp", "f", "s1:x", "--max-size", "5"}, "--max-size is for copies out of a session"},
	}
	for _, test := range tests {
		got := (&fake{}).client(t, nil, test.args...)
		if got.code != 125 || got.stdout != "" || !strings.Contains(got.stderr, test.want) || strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("%q: got %+v, want code 125 and one line with %q", test.args, got, test.want)
		}
	}
}
