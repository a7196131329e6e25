package permission

import (
	"errors"
	"testing"

	"github.com/skillrun/skillrun/internal/skill/skilltest"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

func TestCheckScript(t *testing.T) {
	sk := skilltest.Load(t, map[string]string{"scripts/x.py": "print(1)\n", "scripts/in.py": "-> x.py", "scripts/out.py": "-> ../../out.py"})
	for _, path := range []string{"scripts/x.py", "scripts/in.py", "./scripts/x.py"} {
		src := Source{Kind: Script, Script: path}
		g, err := Policy{}.Check(who, sk, src, nil)
		if err != nil || !g.Valid() || g.Source() != src || g.Plan() != nil {
			t.Errorf("%s: %+v, %v", path, g, err)
		}
	}
	for _, path := range []string{"", ".", "scripts", "scripts/none.py", "../x.py", "/etc/passwd", "scripts/out.py"} {
		g, err := Policy{}.Check(who, sk, Source{Kind: Script, Script: path}, nil)
		var refused *snapshot.PathError
		if !errors.As(err, &refused) || g.Valid() {
			t.Errorf("%q: %+v, %v", path, g, err)
		}
	}
}
