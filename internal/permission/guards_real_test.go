package permission

import (
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
)

// randomText puts 1 to most atoms together.
func randomText(random *rand.Rand, atoms []string, most int) string {
	var text strings.Builder
	for range 1 + random.IntN(most) {
		text.WriteString(atoms[random.IntN(len(atoms))])
	}
	return text.String()
}

// GNU sed's --sandbox refuses e, r and w while it reads a script. A script that the guard
// passes must not be refused there.
func TestSedGuardAgainstSed(t *testing.T) {
	sed, err := exec.LookPath("sed")
	if err != nil {
		t.Skip("no sed to compare with")
	}
	if out, _ := exec.Command(sed, "--sandbox", "w x").CombinedOutput(); !strings.Contains(string(out), "sandbox") {
		t.Skip("this sed has no --sandbox")
	}
	atoms := []string{
		"s", "/", "/", "/", "a", "b", "e", "e", "w", "x", "p", "g", ";", ";", "\n", "{", "}", "[", "]", "^", "\\", "\\n", "\\/", "[:alpha:]", "[.", "[^]", " ", "1", "$", ",", "!", "~", "+",
		":a", "ba", "t", "y/a/b/", "s/a/b/", "s,a,b,", "i\\", "a\\\n", "c", "#", "|", "&", "I", "M", "\\,", "=", "d", "q", "l", "/x/", "/[/]/", "s/[", "]/", "\\]", "v ",
	}
	random := rand.New(rand.NewPCG(3, 4))
	compared := 0
	for range 400_000 {
		if compared == 500 {
			break
		}
		script := randomText(random, atoms, 10)
		if !strings.ContainsAny(script, "ew") || sedScript(script) != "" {
			continue
		}
		compared++
		out, _ := exec.CommandContext(t.Context(), sed, "--sandbox", "-n", "-e", script, "/dev/null").CombinedOutput()
		if strings.Contains(string(out), "sandbox") {
			t.Errorf("%q passed, sed says: %s", script, out)
		}
	}
	if compared < 500 {
		t.Errorf("%d scripts compared, want 500", compared)
	}
}

// An awk program that the guard allows runs no other program.
func TestAwkGuardAgainstAwk(t *testing.T) {
	awk, err := exec.LookPath("awk")
	if err != nil {
		t.Skip("no awk to compare with")
	}
	// The shell that awk would start joins the two halves; a string doesn't.
	const command = `"printf H''IT"`
	atoms := []string{
		"system(" + command + ")", "system(" + command + ")", command + " | getline", "print | " + command, `"`, `"`, "/", "/", "/", "[", "]", "#", "\n", "\\", "\\\n", "{", "}", ";", "(", ")", "1", "x", "$1", " ",
		"=", "~", "!", "||", "&&", ",", "print ", "return ", "if (x) ", `"a"`, "/b/", "x/2", "BEGIN{", "}", "BEGIN{", "}", "in ", "a[1]",
	}
	random := rand.New(rand.NewPCG(5, 6))
	compared := 0
	for range 400_000 {
		if compared == 500 {
			break
		}
		program := "BEGIN{" + randomText(random, atoms, 10) + "}"
		if !strings.Contains(program, "HIT") && !strings.Contains(program, "H''IT") || awkRuns(program) {
			continue
		}
		compared++
		cmd := exec.CommandContext(t.Context(), awk, program, "/dev/null")
		cmd.Dir = t.TempDir()
		if out, _ := cmd.CombinedOutput(); strings.Contains(string(out), "HIT") {
			t.Errorf("%q passed, and ran a program", program)
		}
	}
	if compared < 500 {
		t.Errorf("%d programs compared, want 500", compared)
	}
}
