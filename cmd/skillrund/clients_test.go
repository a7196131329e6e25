package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// cli returns a command that runs the real client against the daemon.
func (d *running) cli(args ...string) *exec.Cmd {
	cmd := exec.Command(binary(d.t, "skillrun"), args...)
	cmd.Env = append(os.Environ(), "SKILLRUN_ADDRESS=unix://"+d.dir+"/s.sock")
	return cmd
}

func exitCode(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit == nil {
		return 0
	}
	return exit.ExitCode()
}

func TestClientExitCodes(t *testing.T) {
	t.Parallel()
	d := startShared(t)
	d.addSkill("cli", `allowed-tools: "Bash(printf:*)"`, map[string]string{"scripts/x.ps1": "", "scripts/sh.sh": "exit $1"})
	for _, tt := range []struct {
		name   string
		args   []string
		stdin  string
		code   int
		stdout string
		stderr string
	}{
		{"the program's", []string{"run", "cli", "scripts/sh.sh", "7"}, "", 7, "", ""},
		{"code", []string{"run", "cli", "-c", "print(6*7)"}, "", 0, "42\n", ""},
		{"command", []string{"run", "cli", "--", "printf", "%s-", "a b", "$HOME"}, "", 0, "a b-$HOME-", ""},
		{"stdin", []string{"run", "cli", "-c", "import sys; print(sys.stdin.read().upper())"}, "abc", 0, "ABC\n", ""},
		{"stderr is its own", []string{"run", "cli", "-c", "import sys; print('out'); print('err', file=sys.stderr)"}, "", 0, "out\n", "err"},
		{"a signal", []string{"run", "cli", "-c", "import os; os.kill(os.getpid(), 9)"}, "", 137, "", "SIGKILL"},
		{"time is up", []string{"run", "--timeout", "500ms", "cli", "-c", "import time; time.sleep(60)"}, "", 124, "", "raise --timeout"},
		{"refused", []string{"run", "cli", "--", "rm", "x"}, "", 126, "", "not"},
		{"skill not found", []string{"run", "nobody", "-c", "print(1)"}, "", 127, "", "nobody"},
		{"script not found", []string{"run", "cli", "scripts/none.sh"}, "", 127, "", "none.sh"},
		{"interpreter not found", []string{"run", "cli", "scripts/x.ps1"}, "", 127, "", "powershell"},
		{"bad usage", []string{"run"}, "", 125, "", "skillrun"},
		{"validate", []string{"validate", "../../skills/calculator"}, "", 0, "", ""},
		{"skills", []string{"skills"}, "", 0, "data-analysis", ""},
		{"doctor", []string{"doctor"}, "", 0, "seccomp", ""},
		{"check", []string{"check", "--allowed-tools", "Bash(git status:*)", "--command", "git status; id", "--json"}, "", 0, `"allowed":false`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d.t = t
			cmd := d.cli(tt.args...)
			cmd.Stdin = strings.NewReader(tt.stdin)
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			code := exitCode(t, cmd.Run())
			if code != tt.code || !strings.Contains(strings.ReplaceAll(stdout.String(), `": `, `":`), tt.stdout) || !strings.Contains(stderr.String(), tt.stderr) {
				t.Errorf("%v: exit code %d, stdout %q, stderr %q\nwant %d, %q, %q", tt.args, code, stdout.String(), stderr.String(), tt.code, tt.stdout, tt.stderr)
			}
		})
	}
	t.Run("no daemon", func(t *testing.T) {
		cmd := exec.Command(binary(t, "skillrun"), "--address", "unix://"+d.dir+"/none.sock", "run", "cli", "-c", "1")
		out, err := cmd.CombinedOutput()
		if code := exitCode(t, err); code != 125 || !strings.Contains(string(out), "none.sock") {
			t.Errorf("exit code %d, %s; want 125 and the address", code, out)
		}
	})
}

func TestClientFilesAndArtifacts(t *testing.T) {
	t.Parallel()
	d := startShared(t)
	in := filepath.Join(t.TempDir(), "people.csv")
	if err := os.WriteFile(in, []byte("name,age\nAda,36\nLinus,12\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out")
	cmd := d.cli("run", "--file", in+":data/people.csv", "--artifacts", out, "csv-processor", "scripts/process.py", "data/people.csv", "--filter", "age > 30", "--output", "adults.csv")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	got, err := os.ReadFile(filepath.Join(out, "adults.csv"))
	if err != nil || string(got) != "name,age\nAda,36\n" {
		t.Errorf("got %q, %v", got, err)
	}
}

// --json prints the proto's JSON form, one event a line; the last line is the outcome.
func TestClientJSON(t *testing.T) {
	t.Parallel()
	d := startShared(t)
	out, err := d.cli("run", "--json", "calculator", "-c", "print('hi')").Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	var last map[string]any
	for i, line := range lines {
		last = nil
		if err := json.Unmarshal([]byte(line), &last); err != nil {
			t.Fatalf("line %d: %v: %s", i+1, err, line)
		}
	}
	outcome, _ := last["outcome"].(map[string]any)
	if outcome["end"] != "EXECUTION_END_EXITED" || len(lines) < 4 {
		t.Errorf("%d lines, the last %v; want header, started, output, outcome", len(lines), last)
	}
}

func TestClientInterruptCancels(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	cmd := d.cli("run", "calculator", "-c", "import time\nprint('ready')\ntime.sleep(3600)")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(stdout, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	cmd.Process.Signal(syscall.SIGINT)
	if code := exitCode(t, cmd.Wait()); code == 0 {
		t.Error("exit code 0 after an interrupt")
	}
	list, err := d.runs.ListExecutions(t.Context(), &pb.ListExecutionsRequest{})
	if err != nil || len(list.Executions) != 1 || list.Executions[0].Outcome.GetEnd() != pb.ExecutionEnd_EXECUTION_END_CANCELLED {
		t.Errorf("got %v, %v; want one that was CANCELLED", list, err)
	}
}

// A client is killed while its execution runs. Another process attaches and gets the same
// bytes, each exactly once.
func TestClientKilledAndAttachedAgain(t *testing.T) {
	t.Parallel()
	d := startShared(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	id, err := d.cli("run", "--detach", "calculator", "-c", "import sys, time\nfor i in range(2000):\n print('line', i)\n print('err', i, file=sys.stderr)\n time.sleep(0.0005)").Output()
	if err != nil {
		t.Fatal(err)
	}
	execution := strings.TrimSpace(string(id))
	first := exec.CommandContext(ctx, binary(t, "skillrun"), "attach", execution)
	first.Env = append(os.Environ(), "SKILLRUN_ADDRESS=unix://"+d.dir+"/s.sock")
	stdout, err := first.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(stdout, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	first.Process.Kill()
	first.Wait()

	again := d.cli("attach", execution)
	var got, gotErr bytes.Buffer
	again.Stdout, again.Stderr = &got, &gotErr
	if err := again.Run(); err != nil {
		t.Fatalf("%v\n%s", err, gotErr.String())
	}
	var want strings.Builder
	for i := range 2000 {
		want.WriteString(fmt.Sprintf("line %d\n", i))
	}
	if got.String() != want.String() {
		t.Errorf("stdout has %d bytes, want %d; or they differ", got.Len(), want.Len())
	}
}

func TestGrpcurl(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "listen: {unix: s.sock, tcp: \"127.0.0.1:0\"}\n")
	grpcurl := grpcurl(t)
	if _, err := os.Stat(grpcurl); err != nil {
		t.Fatalf("no grpcurl: run make tools: %v", err)
	}
	address := tcpAddress(t, d)
	for name, target := range map[string][]string{
		"Unix socket": {"-plaintext", "-unix", d.dir + "/s.sock"},
		"TCP":         {"-plaintext", address},
	} {
		t.Run(name, func(t *testing.T) {
			call := func(args ...string) string {
				t.Helper()
				out, err := exec.Command(grpcurl, args...).CombinedOutput()
				if err != nil {
					t.Fatalf("grpcurl %v: %v\n%s", args, err, out)
				}
				return string(out)
			}
			services := call(append(target, "list")...)
			for _, want := range []string{"skillrun.v1.ExecutionService", "skillrun.v1.SkillService", "skillrun.v1.SystemService", "grpc.health.v1.Health"} {
				if !strings.Contains(services, want) {
					t.Errorf("no %s in\n%s", want, services)
				}
			}
			// The comments are the API reference.
			for name, want := range map[string]string{
				"skillrun.v1.ExecuteRequest":   "// Standard input. Unset: empty.",
				"skillrun.v1.ExecutionService": "// GetExecution returns the current state of one execution.",
				"skillrun.v1.ErrorReason":      "// NOT_FOUND: the caller's tenant has no skill with this name (skill).",
			} {
				if text := call(append(target, "describe", name)...); !strings.Contains(text, want) {
					t.Errorf("describe: %s\nwant %q in it", text, want)
				}
			}
			check := append([]string{"-d", `{"skill":"calculator","command":"rm -rf /"}`}, target...)
			if text := call(append(check, "skillrun.v1.SkillService/CheckCommand")...); !strings.Contains(text, `"allowed": false`) {
				t.Errorf("a refused command: %s", text)
			}
			withData := append([]string{"-d", `{"skill":"calculator","code":{"text":"echo 42","language":"bash"}}`}, target...)
			out := call(append(withData, "skillrun.v1.ExecutionService/Execute")...)
			if !strings.Contains(out, "EXECUTION_END_EXITED") || !strings.Contains(out, "NDIK") { // base64 of "42\n"
				t.Errorf("execute: %s", out)
			}
		})
	}
}

// tcpAddress returns the TCP address of a daemon whose port the kernel chose. A port that
// the test chose could be in use when the daemon starts.
func tcpAddress(t *testing.T, d *running) string {
	t.Helper()
	for line := range strings.Lines(d.log.String()) {
		if _, rest, ok := strings.Cut(line, "network=tcp address="); ok {
			return strings.TrimSpace(rest)
		}
	}
	t.Fatalf("no TCP address in the log:\n%s", d.log.String())
	return ""
}

// A Python client that uses only generated code: the script prints the next line only after
// the client has answered the last one.
func TestPythonClient(t *testing.T) {
	t.Parallel()
	d := startShared(t)
	dir := t.TempDir()
	out, err := exec.Command("protoc", "-I../../proto", "--python_out="+dir, "--grpc_out="+dir, "--plugin=protoc-gen-grpc=/usr/bin/grpc_python_plugin",
		"skillrun/v1/execution.proto").CombinedOutput()
	if err != nil {
		t.Fatalf("protoc: %v\n%s", err, out)
	}
	client := exec.Command("/usr/bin/python3", "-c", `
import queue, sys, grpc
from skillrun.v1 import execution_pb2 as pb, execution_pb2_grpc as rpc
channel = grpc.insecure_channel(sys.argv[1])
runs = rpc.ExecutionServiceStub(channel)
sent = queue.Queue()
sent.put(pb.ExecuteInteractiveRequest(start=pb.ExecuteRequest(skill="calculator", code=pb.InlineCode(text="for i in range(3):\n print(i)\n input()"))))
text = b""
for response in runs.ExecuteInteractive(iter(sent.get, None)):
    event = response.event
    kind = event.WhichOneof("event")
    if kind == "output":
        text += event.output.data
        if event.output.data.endswith(b"\n"):
            sent.put(pb.ExecuteInteractiveRequest(stdin=b"\n"))
    elif kind == "outcome":
        print(text, pb.ExecutionEnd.Name(event.outcome.end), event.outcome.exit_code)
        sent.put(None)
`, "unix:"+d.dir+"/s.sock")
	client.Env = append(os.Environ(), "PYTHONPATH="+dir)
	got, err := client.CombinedOutput()
	if want := "b'0\\n1\\n2\\n' EXECUTION_END_EXITED 0\n"; err != nil || string(got) != want {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
}
