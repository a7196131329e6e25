package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Debian's grpcio is installed for Debian's Python only. The PATH may find another Python.
const debianPython = "/usr/bin/python3"

// pythonPackage is the directory of the Python client.
const pythonPackage = "../../clients/python"

// pythonDaemon starts a daemon with the skill that the Python tests use.
func pythonDaemon(t *testing.T, extra string) *running {
	t.Helper()
	dir := newDir(t)
	writeSkill(t, dir, "py", `allowed-tools: "Bash(printf:*), Bash(python:*)"`, map[string]string{
		"scripts/echo.py": "import sys\nprint(*sys.argv[1:], sep='\\n')\nsys.stdout.write(sys.stdin.read())\n",
	})
	return startDaemonIn(t, dir, extra)
}

// runPython runs modules of Python tests and makes each test a subtest.
func runPython(t *testing.T, env []string, modules ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, debianPython, append([]string{"-m", "tests"}, modules...)...)
	cmd.Dir = pythonPackage
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, "clients/python") + ":" + filepath.Join(root, "examples/agents")
	// Connections to loopback must not use this machine's proxy. Python must write no
	// compiled files into the sources.
	cmd.Env = append(os.Environ(), "PYTHONPATH="+path, "PYTHONDONTWRITEBYTECODE=1", "no_proxy=*", "no_grpc_proxy=*")
	cmd.Env = append(cmd.Env, env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	ran := 0
	for line := range strings.Lines(string(out)) {
		var got struct{ Test, Verdict, Text string }
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Errorf("not a verdict: %s", line)
			continue
		}
		ran++
		t.Run(strings.TrimPrefix(got.Test, "tests."), func(t *testing.T) {
			switch got.Verdict {
			case "pass":
			case "skip":
				t.Skip(got.Text)
			default:
				t.Error(got.Text)
			}
		})
	}
	if err != nil || ran == 0 {
		t.Errorf("%s -m tests %v: %v after %d tests\n%s", debianPython, modules, err, ran, tail(stderr.String(), 8000))
	}
}

// The Python client with a fake daemon, for answers that a real daemon rarely gives.
func TestPythonClientAlone(t *testing.T) {
	t.Parallel()
	runPython(t, nil, "tests.test_follow", "tests.test_start", "tests.test_calls", "tests.test_push")
}

// The Python client with the real daemon: executions, input, files, artifacts, refusals and
// broken connections.
func TestPythonClientAgainstDaemon(t *testing.T) {
	t.Parallel()
	d := pythonDaemon(t, "listen: {unix: s.sock, tcp: \"127.0.0.1:0\"}\n")
	runPython(t, []string{"SKILLRUN_ADDRESS=unix://" + d.dir + "/s.sock", "SKILLRUN_TCP=" + tcpAddress(t, d)}, "tests.test_daemon", "tests.test_aio", "tests.test_sessions")
}

// The Python client learns the rules of a network.
func TestPythonClientLearns(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeSkill(t, dir, "learner", "", map[string]string{"scripts/ask.py": ask})
	startOnInternet(t, dir, "\nnetwork: {allow: [], \"skills\": {learner: {allow: [public]}}}\n")
	runPython(t, []string{"SKILLRUN_ADDRESS=unix://" + dir + "/s.sock"}, "tests.test_learn")
}

// The Python client while its daemon is killed and started again.
func TestPythonClientSurvivesRestart(t *testing.T) {
	t.Parallel()
	d := pythonDaemon(t, "")
	control, err := net.Listen("unix", filepath.Join(d.dir, "control"))
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	go func() {
		for {
			conn, err := control.Accept()
			if err != nil {
				return
			}
			wish, err := bufio.NewReader(conn).ReadString('\n')
			answer := "done"
			switch {
			case err != nil:
				answer = err.Error()
			case wish == "kill\n":
				d.kill()
			case wish == "start\n":
				d = launch(t, d.dir, "")
				d.dial("unix://" + d.dir + "/s.sock")
				d.waitServing()
			default:
				answer = "unknown"
			}
			fmt.Fprintln(conn, answer)
			conn.Close()
		}
	}()
	runPython(t, []string{"SKILLRUN_ADDRESS=unix://" + d.dir + "/s.sock", "SKILLRUN_CONTROL=" + d.dir + "/control"}, "tests.test_restart")
}

// The tools of the agent examples, called as a Google ADK agent and a LangChain deepagents
// agent would call them. Stand-ins replace the frameworks.
func TestAgentTools(t *testing.T) {
	t.Parallel()
	d := pythonDaemon(t, "")
	runPython(t, []string{"SKILLRUN_ADDRESS=unix://" + d.dir + "/s.sock"}, "test_agents")
}

// mypy finds no errors in the types of the Python client and of the agent examples.
func TestPythonClientTypes(t *testing.T) {
	t.Parallel()
	for name, files := range map[string][]string{
		"client": nil, // its pyproject.toml names the files
		"agents": {"--ignore-missing-imports", "../../examples/agents/skill_tools.py", "../../examples/agents/adk_agent.py", "../../examples/agents/deepagents_agent.py"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command("/usr/bin/mypy", append([]string{"--cache-dir", t.TempDir(), "--python-executable", debianPython}, files...)...)
			cmd.Dir = pythonPackage
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("mypy: %v\n%s", err, out)
			}
		})
	}
}
