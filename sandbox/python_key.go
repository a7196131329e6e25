package sandbox

import (
	"fmt"
	"slices"
	"strings"

	"github.com/skillrun/skillrun/sandbox/internal/pyzygote"
)

// A Python zygote can enter every waiting sandbox, so no byte of a request may influence its
// start. A pythonKey determines the start: it holds only numbers, each an index into a fixed
// table of this file or of zygote.py. A program that needs any other Python is executed.

// zygotePath is the PATH of Python zygotes. Their Python is looked up in it, too.
const zygotePath = "/usr/local/bin:/usr/bin:/bin:" + linksDir

// zygotePrograms are the programs that Python zygotes may execute. A name without a slash
// is looked up in zygotePath.
var zygotePrograms = func() (all []string) {
	for _, dir := range []string{"", "/usr/local/bin/", "/usr/bin/", "/usr/sbin/", "/bin/"} {
		all = append(all, dir+"python", dir+"python3")
		for minor := range 40 {
			all = append(all, fmt.Sprintf("%spython3.%d", dir, minor))
		}
	}
	return all
}()

// zygoteSettings are variables that Python reads when it starts. A zygote may have any of
// them. A program with another variable that begins with PYTHON is executed, except for
// PYTHONUSERBASE.
var zygoteSettings = []string{"PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1"}

// zygoteModules are the modules that a zygote may import.
var zygoteModules = pyzygote.Modules()

// PythonModules returns the modules that Python.Imports may name.
func PythonModules() []string { return slices.Clone(zygoteModules) }

// A pythonKey identifies a kind of Python zygote. The zero pythonKey means none.
type pythonKey struct {
	program  uint16 // 1 + index of zygotePrograms
	settings uint8  // a bit for each of zygoteSettings
	imports  modules
}

// newPythonKey returns the key for a program with this name, these variables and imports.
// It returns zero if no zygote can have everything that Python reads at its start in
// common with the program.
func newPythonKey(name string, env, imports []string) (k pythonKey) {
	program := slices.Index(zygotePrograms, name)
	if program < 0 {
		return pythonKey{}
	}
	k.program = uint16(program + 1)
	own := map[string]string{"HOME": homeDir, "LANG": "C.UTF-8"}
	if !strings.Contains(name, "/") {
		own["PATH"] = zygotePath // another PATH may lead to another Python
	}
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		want, fixed := own[name]
		setting := slices.Index(zygoteSettings, e)
		switch {
		case fixed && value == want:
			delete(own, name)
		case fixed, name == "LANGUAGE", strings.HasPrefix(name, "LC_"):
			return pythonKey{}
		case name == "PYTHONUSERBASE": // become.py reads it for each child
		case setting >= 0:
			k.settings |= 1 << setting
		case strings.HasPrefix(name, "PYTHON"):
			return pythonKey{} // for example, PYTHONPATH may replace modules that the zygote imported
		}
	}
	for _, module := range imports {
		i := slices.Index(zygoteModules, module)
		if i < 0 {
			return pythonKey{}
		}
		k.imports[i/64] |= 1 << (i % 64)
	}
	if len(own) > 0 {
		return pythonKey{} // the program lacks a variable that the zygote has
	}
	return k
}

// name returns the program, in the form of a script's Args[0].
func (k pythonKey) name() string { return zygotePrograms[k.program-1] }

// env returns the whole environment of the zygote.
func (k pythonKey) env() []string {
	env := []string{"PATH=" + zygotePath, "HOME=" + homeDir, "LANG=C.UTF-8", "PYTHONPATH=" + pyzygote.Dir}
	for i, setting := range zygoteSettings {
		if k.settings>>i&1 != 0 {
			env = append(env, setting)
		}
	}
	return env
}

// modules returns the modules that the zygote imports, in the order of zygoteModules.
func (k pythonKey) modules() []string {
	modules := []string{}
	for i, module := range zygoteModules {
		if k.imports[i/64]>>(i%64)&1 != 0 {
			modules = append(modules, module)
		}
	}
	return modules
}
