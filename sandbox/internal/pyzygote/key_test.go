package pyzygote

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// A Key can hold no byte of a request: it consists of numbers.
func TestKeyHoldsNumbersOnly(t *testing.T) {
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
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Key]()) {
		if !numbers(f.Type) {
			t.Errorf("%s is a %s", f.Name, f.Type)
		}
	}
	if most := len(Key{}.imports) * 64; len(modules) > most || len(modules) < 40 {
		t.Errorf("%d modules, want 40 to %d", len(modules), most)
	}
	if most := 8; len(settings) > most {
		t.Errorf("%d settings, want at most %d", len(settings), most)
	}
	for _, m := range modules {
		if strings.Trim(m, "abcdefghijklmnopqrstuvwxyzPIL0123456789_") != "" {
			t.Errorf("module %q: not a name without dots", m)
		}
	}
	sorted := slices.SortedFunc(slices.Values(modules), func(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) })
	if !slices.Equal(sorted, modules) || len(slices.Compact(sorted)) != len(modules) {
		t.Errorf("the modules of zygote.py are not in order: %q", modules)
	}
}

// Whatever a request contains, a zygote is started only with words of the tables. Its
// settings equal the settings of the program that it will fork.
func FuzzKey(f *testing.F) {
	usual := "PATH=" + Path + "\nHOME=/home/skill\nLANG=C.UTF-8\n"
	f.Add("python3", usual+"PYTHONUNBUFFERED=1", "json pandas")
	f.Add("/usr/bin/python3.11", usual+"PYTHONDONTWRITEBYTECODE=1\nPYTHONUSERBASE=/opt/x", "")
	f.Add("/usr/bin/python3", usual+"PYTHONPATH=/workspace\nPYTHONSTARTUP=x", "os")
	f.Add("python3", strings.ReplaceAll(usual, Path, "/workspace"), "sys")
	f.Add("python3\x00-c", usual+"LD_PRELOAD=/workspace/x.so", "os;evil")
	f.Fuzz(func(t *testing.T, name, env, imports string) {
		asked := strings.Fields(imports)
		k := NewKey(name, strings.Split(env, "\n"), asked)
		if k == (Key{}) {
			return
		}
		if k.Name() != name {
			t.Errorf("name: got %q, want %q", k.Name(), name)
		}
		slices.Sort(asked)
		got := k.Modules()
		slices.Sort(got)
		if !slices.Equal(slices.Compact(asked), got) {
			t.Errorf("modules: got %q, want %q", got, asked)
		}
		for _, e := range k.Env() {
			own := []string{"PATH=" + Path, "HOME=" + home, "LANG=C.UTF-8", "PYTHONPATH=" + Dir}
			if !slices.Contains(slices.Concat(own, settings), e) {
				t.Errorf("environment: got %q", e)
			}
		}
	})
}
