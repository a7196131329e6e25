package mount

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// fill writes files into a tree. A name that ends in / is a directory.
func fill(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if strings.HasSuffix(name, "/") {
			err = errors.Join(err, os.MkdirAll(path, 0o755))
		} else {
			err = errors.Join(err, os.WriteFile(path, []byte(text), 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A bad image is refused, and the error names the bad file.
func TestImageIsChecked(t *testing.T) {
	needsRoot(t)
	type try struct {
		name  string
		spoil func(dir string) error
		want  string
	}
	tries := []try{
		{"missing", os.RemoveAll, "no such file"},
		{"a file", func(dir string) error { return errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o644)) }, "is not a directory"},
		{"a link", func(dir string) error { return errors.Join(os.Rename(dir, dir+"2"), os.Symlink(dir+"2", dir)) }, "is not a directory"},
		{"another's", func(dir string) error { return os.Chown(dir, 1234, 0) }, "does not belong to root"},
		{"another's usr", func(dir string) error { return os.Chown(dir+"/usr", 1234, 0) }, "/usr does not belong to root"},
		{"open to all", func(dir string) error { return os.Chmod(dir, 0o777) }, "other users than root can change it"},
		{"a pipe", func(dir string) error { return unix.Mkfifo(dir+"/usr/pipe", 0o644) }, "its /usr/pipe is a pipe or a socket"},
		{"a socket", func(dir string) error { return unix.Mknod(dir+"/etc/socket", unix.S_IFSOCK|0o644, 0) }, "its /etc/socket is a pipe or a socket"},
		{"open to a group", func(dir string) error { return os.Chmod(dir+"/etc", 0o775) }, "/etc has mode 0775"},
	}
	for _, place := range []string{"dev", "proc", "sys", "tmp", "etc", "usr", "workspace", "skills", "home", "opt", "var", "run"} {
		for _, target := range []string{"/", "../../..", "usr/" + place, "/proc/self/root", "nowhere"} {
			tries = append(tries, try{place + " as a link to " + target, func(dir string) error {
				return errors.Join(os.RemoveAll(dir+"/"+place), os.Symlink(target, dir+"/"+place))
			}, "its /" + place + " is a link to \"" + target + "\""})
		}
		tries = append(tries, try{place + " as a file", func(dir string) error {
			return errors.Join(os.RemoveAll(dir+"/"+place), os.WriteFile(dir+"/"+place, nil, 0o644))
		}, "its /" + place + " is not a directory"})
	}
	for _, tt := range tries {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "tree")
			fill(t, dir, map[string]string{"usr/x": "", "etc/x": ""})
			if err := tt.spoil(dir); err != nil {
				t.Fatal(err)
			}
			if err := CheckImage(dir); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
	t.Run("a pipe that nobody sees", func(t *testing.T) {
		dir := t.TempDir()
		fill(t, dir, map[string]string{"run/": ""})
		if err := errors.Join(unix.Mkfifo(dir+"/run/initctl", 0o644), CheckImage(dir)); err != nil {
			t.Error(err)
		}
	})
}

// Each root has a link to prepared Node packages, unless the image has Node packages there.
func TestNodePackagesOfAnImage(t *testing.T) {
	needsRoot(t)
	for _, has := range []bool{false, true} {
		image, root := t.TempDir(), t.TempDir()
		fill(t, image, map[string]string{"usr/": ""})
		if has {
			fill(t, image, map[string]string{"node_modules/x/index.js": ""})
		}
		if err := Tmpfs(root, rootOptions); err != nil {
			t.Fatal(err)
		}
		err := makeOver(root, image, nil)
		target, _ := os.Readlink(root + "/node_modules")
		if err := errors.Join(err, Detach(root)); err != nil {
			t.Fatal(err)
		}
		if (target == "opt/node_modules") == has {
			t.Errorf("with packages %t: the link leads to %q", has, target)
		}
	}
}
