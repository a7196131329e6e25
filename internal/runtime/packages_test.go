package runtime

import (
	"path/filepath"
	"testing"

	"github.com/skillrun/skillrun/internal/skill/manifest"
	"github.com/skillrun/skillrun/internal/skill/skilltest"
)

// Has compares the installed versions with the required ones.
func TestPackagesHas(t *testing.T) {
	root := t.TempDir()
	write(t, root, map[string]string{
		"usr/lib/python3/dist-packages/Pillow-9.4.0.dist-info/METADATA":      "Metadata-Version: 2.1\nName: Pillow\nVersion: 9.4.0\n",
		"usr/lib/python3/dist-packages/six-1.16.0.egg-info":                  "",
		"usr/lib/python3.12/dist-packages/other-1.dist-info/METADATA":        "",
		"usr/local/lib/python3.11/dist-packages/twice-2.dist-info/METADATA":  "",
		"usr/lib/python3/dist-packages/twice-1.dist-info/METADATA":           "",
		"usr/lib/python3/dist-packages/odd-version_of_mine.dist-info/RECORD": "",
		"usr/lib/python3.11/json/__init__.py":                                "",
	})
	sk := skilltest.Load(t, map[string]string{"scripts/a.py": ""})
	have, err := ReadPackages(root, "", Runtime{Language: "python", Path: "/usr/bin/python3", Version: "3.11.2"}, sk)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text, found string
		ok          bool
	}{
		{"pillow", "9.4.0", true},
		{"PILLOW>=9,<10", "9.4.0", true},
		{"pillow>=10.0.0,<12", "9.4.0", false},
		{"six==9", "1.16.0", false},
		{"six==1.16", "1.16.0", true},
		{"twice==2", "2", true}, // the first one on the path counts
		{"odd>=7", "version_of_mine", true},
		{"other", "", false}, // installed for another Python version
		{"json", "", true},
		{"json>=1", "", true},
		{"sys", "", true},
	} {
		r, err := manifest.ParseRequirement(c.text)
		if err != nil {
			t.Fatal(err)
		}
		if found, ok := have.Has(r); found != c.found || ok != c.ok {
			t.Errorf("%s: got %q, %t; want %q, %t", c.text, found, ok, c.found, c.ok)
		}
	}
	dirs := PackageDirs(root, "/x", Runtime{Version: "3.14.6"})
	if want := filepath.Join("/x", "lib/python3.14/site-packages"); len(dirs) != 1 || dirs[0] != want {
		t.Errorf("of the embedded Python: got %v, want %s", dirs, want)
	}
}

func TestSatisfies(t *testing.T) {
	for _, c := range []struct {
		have, want string
		result, ok bool
	}{
		{"1.5.3", "", true, true},
		{"1.5.3", ">=1.5", true, true},
		{"1.5.3", ">=2.0.0", false, true},
		{"2.10", ">=2.9,<3", true, true},
		{"2.0rc1", ">=1.9", true, true}, // pre-releases count because they are installed
		{"2.0rc1", ">=2.0", false, true},
		{"1.0", "==1.0.0", true, true},
		{"1.4.5", "==1.4.*", true, true},
		{"1.4.5", "!=1.4.*", false, true},
		{"1.4.5", "~=1.4.2", true, true},
		{"1.0+local", "==1.0", true, true},
		{"what", ">=1", false, false},
		{"1.0", ">=what", false, false},
		{"1.0", "~=2", false, false},
		{"1", "===1", true, true},
	} {
		if result, ok := Satisfies(c.have, c.want); result != c.result || ok != c.ok {
			t.Errorf("%s in %q: got %t, %t; want %t, %t", c.have, c.want, result, ok, c.result, c.ok)
		}
	}
}
