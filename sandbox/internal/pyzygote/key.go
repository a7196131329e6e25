package pyzygote

import (
	"fmt"
	"slices"
	"strings"
)

// A Python zygote can enter every waiting sandbox, so no byte of a request may influence its
// start. A Key determines the start: it holds only numbers, each an index into a fixed
// table of this file or of zygote.py. A program that needs any other Python is executed.

// Path is the PATH of Python zygotes. Their Python is looked up in it, too. The last
// directory has the links of a sandbox's root.
const Path = "/usr/local/bin:/usr/bin:/bin:/opt/skillrun/bin"

// home is the home directory in a sandbox.
const home = "/home/skill"

// programs are the programs that Python zygotes may execute. A name without a slash
// is looked up in Path.
var programs = func() (all []string) {
	for _, dir := range []string{"", "/usr/local/bin/", "/usr/bin/", "/usr/sbin/", "/bin/"} {
		all = append(all, dir+"python", dir+"python3")
		for minor := range 40 {
			all = append(all, fmt.Sprintf("%spython3.%d", dir, minor))
		}
	}
	return all
}()

// settings are variables that Python reads when it starts. A zygote may have any of
// them. A program with another variable that begins with PYTHON is executed, except for
// PYTHONUSERBASE.
var settings = []string{"PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1"}

// A Key identifies a kind of Python zygote. The zero Key means none.
type Key struct {
	program  uint16 // 1 + index of programs
	settings uint8  // a bit for each of settings
	imports  Set
}

// NewKey returns the key for a program with this name, these variables and imports.
// It returns zero if no zygote can have everything that Python reads at its start in
// common with the program.
func NewKey(name string, env, imports []string) (k Key) {
	program := slices.Index(programs, name)
	if program < 0 {
		return Key{}
	}
	k.program = uint16(program + 1)
	own := map[string]string{"HOME": home, "LANG": "C.UTF-8"}
	if !strings.Contains(name, "/") {
		own["PATH"] = Path // another PATH may lead to another Python
	}
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		want, fixed := own[name]
		setting := slices.Index(settings, e)
		switch {
		case fixed && value == want:
			delete(own, name)
		case fixed, name == "LANGUAGE", strings.HasPrefix(name, "LC_"):
			return Key{}
		case name == "PYTHONUSERBASE": // become.py reads it for each child
		case setting >= 0:
			k.settings |= 1 << setting
		case strings.HasPrefix(name, "PYTHON"):
			return Key{} // for example, PYTHONPATH may replace modules that the zygote imported
		}
	}
	for _, module := range imports {
		i := slices.Index(modules, module)
		if i < 0 {
			return Key{}
		}
		k.imports[i/64] |= 1 << (i % 64)
	}
	if len(own) > 0 {
		return Key{} // the program lacks a variable that the zygote has
	}
	return k
}

// Name returns the program, in the form of a script's Args[0].
func (k Key) Name() string { return programs[k.program-1] }

// Env returns the whole environment of the zygote.
func (k Key) Env() []string {
	env := []string{"PATH=" + Path, "HOME=" + home, "LANG=C.UTF-8", "PYTHONPATH=" + Dir}
	for i, setting := range settings {
		if k.settings>>i&1 != 0 {
			env = append(env, setting)
		}
	}
	return env
}

// Imports returns the set of modules that the zygote imports.
func (k Key) Imports() Set { return k.imports }

// Modules returns the modules that the zygote imports, in the order of the list.
func (k Key) Modules() []string {
	names := []string{}
	for i, module := range modules {
		if k.imports[i/64]>>(i%64)&1 != 0 {
			names = append(names, module)
		}
	}
	return names
}

// Same says whether two keys differ at most in their modules.
func (k Key) Same(other Key) bool {
	return k.program == other.program && k.settings == other.settings
}

// With returns k with the modules of another key added.
func (k Key) With(other Key) Key {
	k.imports = k.imports.Or(other.imports)
	return k
}
