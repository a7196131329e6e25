package pid1

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// parts are the C parts of the package, the lowest first. A part is a source, its header, or
// both. It may include headers of the parts that it names, and call only functions of those.
// fault.c is not in the list: it takes the place of system calls, in builds for tests.
var parts = []struct {
	name string
	uses []string
}{
	{"wire", nil},
	{"packets", []string{"wire"}},
	{"confine", []string{"wire"}},
	{"init_program", []string{"wire"}},
	{"init_glob", []string{"init_program"}},
	{"init_child", []string{"wire", "confine", "init_program", "init_glob"}},
	{"init_cloned", []string{"wire", "packets", "confine"}},
	{"init", []string{"wire", "confine", "init_program", "init_child", "init_cloned"}},
	{"python_program", nil},
	{"zygote", []string{"wire", "packets", "confine", "init_cloned", "init", "python_program"}},
	{"init_probe", []string{"wire"}},
	{"crash", nil},
	{"userns", nil},
	{"sanitize", nil},
}

// strays returns the uses of one part by another that parts does not allow.
func strays(found map[string][]string) []string {
	allowed := map[string][]string{}
	for _, p := range parts {
		allowed[p.name] = append([]string{p.name}, p.uses...)
	}
	var all []string
	for part, uses := range found {
		if allowed[part] == nil {
			all = append(all, part+" is not in the list of parts")
		}
		for _, other := range uses {
			if !slices.Contains(allowed[part], other) {
				all = append(all, part+" uses "+other)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

var includeLine = regexp.MustCompile(`(?m)^\s*#\s*include\s+"([^"]+)"`)

// includedParts returns, for each part, the parts whose headers its files include.
func includedParts(t *testing.T, dir string) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	files, err := filepath.Glob(filepath.Join(dir, "*.[ch]"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		part := partOf(file)
		if part == "fault" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found[part] = append(found[part], []string{}...)
		for _, m := range includeLine.FindAllSubmatch(text, -1) {
			found[part] = append(found[part], partOf(string(m[1])))
		}
	}
	return found
}

// calledParts returns, for each part, the parts that define the symbols which it needs.
func calledParts(objects map[string]object) map[string][]string {
	owner := map[string]string{}
	for source, o := range objects {
		for symbol := range o.defines {
			owner[symbol] = partOf(source)
		}
	}
	found := map[string][]string{}
	for source, o := range objects {
		part := partOf(source)
		found[part] = append(found[part], []string{}...)
		for symbol := range o.needs {
			if other, ok := owner[symbol]; ok {
				found[part] = append(found[part], other)
			}
		}
	}
	return found
}

func partOf(file string) string {
	return strings.TrimSuffix(strings.TrimSuffix(filepath.Base(file), ".c"), ".h")
}

// The parts form layers: none uses a part that comes after it in the list.
func TestLayers(t *testing.T) {
	var before []string
	for _, p := range parts {
		for _, used := range p.uses {
			if !slices.Contains(before, used) {
				t.Errorf("the list: %s uses %s, which is not before it", p.name, used)
			}
		}
		before = append(before, p.name)
	}
	included := includedParts(t, ".")
	if len(included) != len(parts) {
		t.Errorf("the files have %d parts, the list %d", len(included), len(parts))
	}
	for _, s := range strays(included) {
		t.Errorf("includes: %s", s)
	}
	called := calledParts(compiledObjects(t))
	if !slices.Contains(called["zygote"], "init") {
		t.Error("the objects do not show that zygote.c calls init.c")
	}
	for _, s := range strays(called) {
		t.Errorf("calls: %s", s)
	}
}

// A lower layer that includes a header of a higher one, or calls its function, is found.
func TestLayersFindStrays(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"wire.c":    "#include \"wire.h\"\n#include \"init.h\"\n",
		"wire.h":    "#include <stdint.h>\n",
		"another.c": "",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := strays(includedParts(t, dir)), []string{"another is not in the list of parts", "wire uses init"}; !slices.Equal(got, want) {
		t.Errorf("includes: got %q, want %q", got, want)
	}
	objects := map[string]object{
		"wire.c": {needs: map[string]bool{"cloned_run": true, "read": true}},
		"init.c": {needs: map[string]bool{"give_up": true}, defines: map[string]bool{"cloned_run": true}},
	}
	if got, want := strays(calledParts(objects)), []string{"wire uses init"}; !slices.Equal(got, want) {
		t.Errorf("calls: got %q, want %q", got, want)
	}
}
