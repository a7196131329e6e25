package permission

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/skillrun/skillrun/internal/skill"
)

// loadSkill imports a skill with these files. A value "-> target" makes a link.
func loadSkill(t *testing.T, files map[string]string) *skill.Skill {
	t.Helper()
	root := t.TempDir()
	files["SKILL.md"] = "---\nname: demo\ndescription: d\n---\n"
	for name, text := range files {
		file := filepath.Join(root, "demo", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if len(text) > 3 && text[:3] == "-> " {
			err = os.Symlink(text[3:], file)
		} else {
			err = os.WriteFile(file, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: the entries of a snapshot belong to 1000:1000")
	}
	r, err := skill.OpenRegistry(t.Context(), skill.RegistryConfig{Roots: []string{root}, Dir: filepath.Join(t.TempDir(), "snapshots")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	sk, err := r.Resolve("demo")
	if err != nil {
		t.Fatalf("%v: %v", err, r.Problems())
	}
	return sk
}

func TestCheckScript(t *testing.T) {
	sk := loadSkill(t, map[string]string{"scripts/x.py": "print(1)\n", "scripts/in.py": "-> x.py", "scripts/out.py": "-> ../../out.py"})
	for _, path := range []string{"scripts/x.py", "scripts/in.py", "./scripts/x.py"} {
		src := Source{Kind: Script, Script: path}
		g, err := Policy{}.Check(who, sk, src, nil)
		if err != nil || !g.Valid() || g.Source() != src || g.Plan() != nil {
			t.Errorf("%s: %+v, %v", path, g, err)
		}
	}
	for _, path := range []string{"", ".", "scripts", "scripts/none.py", "../x.py", "/etc/passwd", "scripts/out.py"} {
		g, err := Policy{}.Check(who, sk, Source{Kind: Script, Script: path}, nil)
		var refused *skill.PathError
		if !errors.As(err, &refused) || g.Valid() {
			t.Errorf("%q: %+v, %v", path, g, err)
		}
	}
}
