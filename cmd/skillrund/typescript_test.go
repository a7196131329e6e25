package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A TypeScript file is run by a node that strips the types. An older node is refused, with the
// version that would do.
func TestTypeScript(t *testing.T) {
	t.Parallel()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("no node here")
	}
	const text = "const words: string[] = process.argv.slice(2)\nconsole.log(words.length)\n"
	file := filepath.Join(t.TempDir(), "a.ts")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	strips := exec.Command(node, "--experimental-strip-types", file).Run() == nil
	d := startShared(t)
	d.addSkill("typed", "", map[string]string{"scripts/a.ts": text})
	r, err := d.try(script("typed", "scripts/a.ts", "x", "y"))
	if strips {
		if err != nil {
			t.Fatal(err)
		}
		r.wantExit(t, 0)
		r.wantStdout(t, "2\n")
		if r.stderr.Len() > 0 {
			t.Errorf("stderr %q", r.stderr.String())
		}
		return
	}
	if s := status.Convert(err); s.Code() != codes.FailedPrecondition || !strings.Contains(s.Message(), "TypeScript needs Node.js 22.18 or newer") {
		t.Errorf("got %v, want a refusal", err)
	}
	wantStatus(t, err, "FailedPrecondition", "INTERPRETER_MISSING")
}
