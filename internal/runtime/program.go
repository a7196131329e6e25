package runtime

import "strings"

// Program looks for a program by its name on the path of a sandbox whose usr is
// that of a root file system, and returns where it is in the sandbox. python is
// there wherever python3 is.
func Program(rootfs, name string) (string, bool) {
	return finder{root: rootfs}.program(name)
}

func (f finder) program(name string) (string, bool) {
	if name == "" || strings.Contains(name, "/") {
		return "", false
	}
	at, _, ok := f.find(name)
	if !ok && name == "python" {
		at, _, ok = f.find("python3")
	}
	return at, ok
}
