package sandbox

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/sandbox/internal/pyzygote"
)

// A pythonKey can hold no byte of a request: it consists of numbers.
func TestPythonKeyHoldsNumbersOnly(t *testing.T) {
	var numbers func(k reflect.Type) bool
	numbers = func(k reflect.Type) bool {
		switch k.Kind() {
		case reflect.Array:
			return numbers(k.Elem())
		case reflect.Uint8, reflect.Uint16, reflect.Uint64:
			return true
		}
		return false
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[pythonKey]()) {
		if !numbers(f.Type) {
			t.Errorf("%s is a %s", f.Name, f.Type)
		}
	}
	if most := len(pythonKey{}.imports) * 64; len(zygoteModules) > most || len(zygoteModules) < 40 {
		t.Errorf("%d modules, want 40 to %d", len(zygoteModules), most)
	}
	if most := 8; len(zygoteSettings) > most {
		t.Errorf("%d settings, want at most %d", len(zygoteSettings), most)
	}
	for _, m := range zygoteModules {
		if strings.Trim(m, "abcdefghijklmnopqrstuvwxyzPIL0123456789_") != "" {
			t.Errorf("module %q: not a name without dots", m)
		}
	}
	sorted := slices.SortedFunc(slices.Values(zygoteModules), func(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) })
	if !slices.Equal(sorted, zygoteModules) || len(slices.Compact(sorted)) != len(zygoteModules) {
		t.Errorf("the modules of zygote.py are not in order: %q", zygoteModules)
	}
}

// Whatever a request contains, a zygote is started only with words of the tables. Its
// settings equal the settings of the program that it will fork.
func FuzzPythonKey(f *testing.F) {
	usual := "PATH=" + zygotePath + "\nHOME=/home/skill\nLANG=C.UTF-8\n"
	f.Add("python3", usual+"PYTHONUNBUFFERED=1", "json pandas")
	f.Add("/usr/bin/python3.11", usual+"PYTHONDONTWRITEBYTECODE=1\nPYTHONUSERBASE=/opt/x", "")
	f.Add("/usr/bin/python3", usual+"PYTHONPATH=/workspace\nPYTHONSTARTUP=x", "os")
	f.Add("python3", strings.ReplaceAll(usual, zygotePath, "/workspace"), "sys")
	f.Add("python3\x00-c", usual+"LD_PRELOAD=/workspace/x.so", "os;evil")
	f.Fuzz(func(t *testing.T, name, env, imports string) {
		asked := strings.Fields(imports)
		k := newPythonKey(name, strings.Split(env, "\n"), asked)
		if k == (pythonKey{}) {
			return
		}
		if k.name() != name {
			t.Errorf("name: got %q, want %q", k.name(), name)
		}
		slices.Sort(asked)
		got := k.modules()
		slices.Sort(got)
		if !slices.Equal(slices.Compact(asked), got) {
			t.Errorf("modules: got %q, want %q", got, asked)
		}
		for _, e := range k.env() {
			own := []string{"PATH=" + zygotePath, "HOME=" + homeDir, "LANG=C.UTF-8", "PYTHONPATH=" + pyzygote.Dir}
			if !slices.Contains(slices.Concat(own, zygoteSettings), e) {
				t.Errorf("environment: got %q", e)
			}
		}
	})
}
