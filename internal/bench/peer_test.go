package bench

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestParsePeer(t *testing.T) {
	tests := []struct{ text, name, command string }{
		{"/usr/bin/env -i", "env", "/usr/bin/env|-i|/bin/true|a b"},
		{"clean=/usr/bin/env -i {}", "clean", "/usr/bin/env|-i|/bin/true|a b"},
		{"/usr/bin/env {} last", "env", "/usr/bin/env|/bin/true|a b|last"},
		{`/usr/bin/env 'X=a b' "Y=\"" Z=\ `, "env", `/usr/bin/env|X=a b|Y="|Z= |/bin/true|a b`},
	}
	for _, test := range tests {
		p, err := ParsePeer(test.text)
		if err != nil {
			t.Errorf("%s: %v", test.text, err)
			continue
		}
		if got := strings.Join(p.command([]string{"/bin/true", "a b"}), "|"); p.Name != test.name || got != test.command {
			t.Errorf("%s: got %s: %s, want %s: %s", test.text, p.Name, got, test.name, test.command)
		}
	}
	for _, bad := range []string{"", "  ", "/no/such/program", `/usr/bin/env "`, `/usr/bin/env \`} {
		if p, err := ParsePeer(bad); err == nil {
			t.Errorf("%q: got %v, want an error", bad, p)
		}
	}
}

func TestPeerIsChecked(t *testing.T) {
	echo := program{bare: []string{"/usr/bin/echo", "4"}, want: "4\n"}
	good, err := ParsePeer("/usr/bin/env")
	if err != nil {
		t.Fatal(err)
	}
	if err := good.run(echo); err != nil {
		t.Errorf("env: %v", err)
	}
	for _, bad := range []string{"/usr/bin/false", "/usr/bin/echo"} {
		p, err := ParsePeer(bad)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.run(echo); err == nil {
			t.Errorf("%s: got nil, want an error", bad)
		}
	}
}

func TestOutputOfABareProgram(t *testing.T) {
	tests := []struct {
		script, want, err string
	}{
		{"echo out; echo err >&2", "out\n", ""},
		{"exit 3", "", "exit code 3"},
		{"kill -9 $$", "", "killed"},
		{"echo why; exit 1", "", "why"},
		{`[ "$LANG" = C.UTF-8 ] && [ -z "$SECRET" ]`, "", ""},
	}
	t.Setenv("SECRET", "x")
	for _, test := range tests {
		got, err := output([]string{"/bin/sh", "-c", test.script}, bareEnv, true)
		if test.err == "" && (err != nil || string(got) != test.want) {
			t.Errorf("%s: got %q, %v, want %q", test.script, got, err, test.want)
		}
		if test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
			t.Errorf("%s: got %v, want an error with %q", test.script, err, test.err)
		}
	}
	if _, err := output([]string{filepath.Join(t.TempDir(), "missing")}, nil, false); err == nil {
		t.Error("a missing program: got nil, want an error")
	}
}

func TestSplitWords(t *testing.T) {
	got, err := splitWords("a  'b c'\t\"\" d\\'e")
	if want := []string{"a", "b c", "", "d'e"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}
