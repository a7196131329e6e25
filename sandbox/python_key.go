package sandbox

import (
	"fmt"
	"slices"
	"strings"
)

// A Python zygote may enter every sandbox that waits, so no byte of a request reaches it.
// What it is started with is a pythonKey: numbers only, each an index of a fixed table of
// this file or of forkserver.py. A program that needs any other Python is executed.

// zygotePath is where a Python zygote is found, and the PATH that it has.
const zygotePath = "/usr/local/bin:/usr/bin:/bin:" + linksDir

// zygotePrograms are the names of Pythons that may be zygotes: those without a slash are
// looked up in zygotePath.
var zygotePrograms = func() (all []string) {
	for _, dir := range []string{"", "/usr/local/bin/", "/usr/bin/", "/usr/sbin/", "/bin/"} {
		all = append(all, dir+"python", dir+"python3")
		for minor := range 40 {
			all = append(all, fmt.Sprintf("%spython3.%d", dir, minor))
		}
	}
	return all
}()

// zygoteSettings are variables that Python reads when it starts, each of which a zygote
// may have or not. What a program has of others that begin with PYTHON is executed.
var zygoteSettings = []string{"PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1"}

// zygoteModules are the modules that a zygote may import. forkserver.py has the list, and
// refuses others as well.
var zygoteModules = func() []string {
	_, text, _ := strings.Cut(forkServerProgram, "\nMODULES = \"\"\"")
	text, _, _ = strings.Cut(text, `"""`)
	return strings.Fields(text)
}()

// PythonModules returns what Python.Imports may name.
func PythonModules() []string { return slices.Clone(zygoteModules) }

// pythonKey is what interpreters differ in. The zero pythonKey is none.
type pythonKey struct {
	program  uint16 // 1 + index of zygotePrograms
	settings uint8  // a bit for each of zygoteSettings
	imports  modules
}

// newPythonKey is the key of a program with this name, these variables and imports. It is
// zero unless a zygote is, in all that Python reads when it starts, like that program.
func newPythonKey(name string, env, imports []string) (k pythonKey) {
	program := slices.Index(zygotePrograms, name)
	if program < 0 {
		return pythonKey{}
	}
	k.program = uint16(program + 1)
	own := map[string]string{"HOME": homeDir, "LANG": "C.UTF-8"}
	if !strings.Contains(name, "/") {
		own["PATH"] = zygotePath // another one may lead to another Python
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
		case name == "PYTHONUSERBASE": // forkserver.py reads it for each child
		case setting >= 0:
			k.settings |= 1 << setting
		case strings.HasPrefix(name, "PYTHON"):
			return pythonKey{} // PYTHONPATH comes before everything that was imported
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
		return pythonKey{} // a variable that the zygote has is missing
	}
	return k
}

// name is the program, as scripts' Args[0] has it.
func (k pythonKey) name() string { return zygotePrograms[k.program-1] }

// env is the whole environment of the zygote.
func (k pythonKey) env() []string {
	env := []string{"PATH=" + zygotePath, "HOME=" + homeDir, "LANG=C.UTF-8", "PYTHONPATH=" + forkServerDir}
	for i, setting := range zygoteSettings {
		if k.settings>>i&1 != 0 {
			env = append(env, setting)
		}
	}
	return env
}

// modules are what the zygote imports, in the order of the list.
func (k pythonKey) modules() []string {
	modules := []string{}
	for i, module := range zygoteModules {
		if k.imports[i/64]>>(i%64)&1 != 0 {
			modules = append(modules, module)
		}
	}
	return modules
}
