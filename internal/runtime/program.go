package runtime

import "strings"

// Program returns the path in a sandbox of a program on the sandbox's PATH, where
// rootfs holds the sandbox's usr. python exists wherever python3 does.
func Program(rootfs, name string) (string, bool) {
	return finder{root: rootfs}.program(name)
}

// A name with a slash is a path and not searched for, as in execvp(3).
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
