package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// portable builds the client without cgo, as .ci/cross.sh builds it for other systems.
func portable(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "skillrun")
	build := exec.Command("go", "build", "-tags", "netgo,osusergo,grpcnotrace", "-ldflags", "-s -w", "-o", path, "../skillrun")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build.Args, err, out)
	}
	return path
}

// The client that is built without cgo runs scripts, speaks MCP, and says which command it lacks.
func TestPortableClient(t *testing.T) {
	t.Parallel()
	d := startShared(t)
	client := portable(t)
	for _, test := range []struct {
		args  []string
		stdin string
		code  int
		want  string
	}{
		{[]string{"run", "calculator", "scripts/calc.py", "6*7"}, "", 0, "42"},
		{[]string{"ps", "--all"}, "", 0, "calculator"},
		{[]string{"mcp"}, `{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n", 0, `"id":1`},
		{[]string{"validate", "calculator"}, "", 0, "calculator: valid"},
		{[]string{"bench", "--short"}, "", 126, "bench needs the skillrun that is released with skillrund"},
	} {
		cmd := exec.Command(client, test.args...)
		cmd.Env = append(os.Environ(), "SKILLRUN_ADDRESS=unix://"+d.dir+"/s.sock", "SKILLRUN_MCP_ADDRESS=unix://"+d.dir+"/mcp.sock")
		cmd.Stdin = strings.NewReader(test.stdin)
		out, err := cmd.CombinedOutput()
		if code := exitCode(t, err); code != test.code || !strings.Contains(string(out), test.want) {
			t.Errorf("%v: exit code %d, want %d with %q\n%s", test.args, code, test.code, test.want, out)
		}
	}
}
