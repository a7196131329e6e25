package runtime

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/skill/skilltest"
)

// imageOf makes a Set for an image of files. The files never run: the Asker answers with
// the text that a file would print.
func imageOf(t *testing.T, name string, files map[string]string) *Set {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, files)
	image := Image{Name: name, Dir: dir, Digest: "sha256:" + name}
	ask := func(_ context.Context, args []string, _ []Mount) []byte {
		f, err := OpenInside(dir, args[0])
		if err != nil {
			t.Errorf("asked a missing program %v: %v", args, err)
			return nil
		}
		defer f.Close()
		b, _ := io.ReadAll(f)
		return b
	}
	s, err := Discover(t.Context(), Config{Image: image, Ask: ask})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestDiscoverInImage(t *testing.T) {
	for _, c := range []struct {
		what  string
		files map[string]string
		want  []Runtime
	}{
		{"nothing", map[string]string{"etc/": ""}, nil},
		{"no merged bin", map[string]string{"bin/sh": "-> busybox", "bin/busybox": "#! BusyBox v1.35.0"}, []Runtime{{"sh", "/bin/sh", "1.35.0"}}},
		{"merged bin", map[string]string{"bin": "-> usr/bin", "usr/bin/bash": "#! 5.2.15"}, []Runtime{{"bash", "/usr/bin/bash", "5.2.15"}}},
		{"usr/local first", map[string]string{"usr/local/bin/python3": "-> python3.13", "usr/local/bin/python3.13": "#! Python 3.13.1", "bin/python3": "#! Python 3.9.0"},
			[]Runtime{{"python", "/usr/local/bin/python3", "3.13.1"}}},
		{"an absolute link is within", map[string]string{"bin/node": "-> /app/node", "app/node": "#! v22.1.0"}, []Runtime{{"node", "/bin/node", "22.1.0"}}},
		{"dots end at its root", map[string]string{"bin/node": "-> ../../../../app/node", "app/node": "#! v22.1.0"}, []Runtime{{"node", "/bin/node", "22.1.0"}}},
		{"a link to what no sandbox sees", map[string]string{"usr/bin/node": "-> /opt/node/bin/node", "opt/node/bin/node": "#! v22.1.0"}, nil},
		{"a link by what no sandbox sees", map[string]string{"usr/bin/node": "-> /tmp/node", "tmp/node": "-> /app/node", "app/node": "#! v22.1.0"}, nil},
		{"a link to a program of the machine", map[string]string{"usr/bin/sh": "-> /usr/bin/bash"}, nil},
		{"a directory of the machine", map[string]string{"usr/bin": "-> /proc/self/root/usr/bin"}, nil},
	} {
		t.Run(c.what, func(t *testing.T) {
			if got := imageOf(t, "x", c.files).List(); !slices.Equal(got, c.want) {
				t.Errorf("got %v\nwant %v", got, c.want)
			}
		})
	}
}

// The programs of an image are untrusted. Discover does not run them on this machine, and
// without an Asker it knows no versions.
func TestImageIsNotRunHere(t *testing.T) {
	dir, ran := t.TempDir(), filepath.Join(t.TempDir(), "ran")
	write(t, dir, map[string]string{"usr/bin/python3": "#!/bin/sh\necho Python 3.11.2\n: > " + ran + "\n"})
	s, err := Discover(t.Context(), Config{Image: Image{Name: "x", Dir: dir, Digest: "d"}})
	if err != nil {
		t.Fatal(err)
	}
	if want := []Runtime{{"python", "/usr/bin/python3", ""}}; !slices.Equal(s.List(), want) {
		t.Errorf("got %v, want %v", s.List(), want)
	}
	if _, err := os.Stat(ran); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a program of an image ran on this machine (%v)", err)
	}
	if want := map[string]string{"/opt/skillrun/bin/python": "/usr/bin/python3"}; len(s.Links()) != 1 || s.Links()["/opt/skillrun/bin/python"] != want["/opt/skillrun/bin/python"] {
		t.Errorf("links: got %v, want %v", s.Links(), want)
	}
}

func TestRoute(t *testing.T) {
	machine := fakeSet(t, allLanguages())
	snake := imageOf(t, "snake", map[string]string{"usr/bin/python3": "#! Python 3.13.1", "usr/bin/bash": "#! 5.0.0"})
	shell := imageOf(t, "shell", map[string]string{"bin/bash": "#! 5.1.0"})
	s := machine.Route(map[string]*Set{"python": snake, "bash": shell, "node": snake})
	sk := skilltest.Load(t, map[string]string{"a.py": "", "a.sh": "", "a.rb": "", "a.js": "", "a": "#!/usr/bin/env python3.13\n", "b": "#!/bin/bash -e\n"})
	for _, c := range []struct{ script, image, program string }{
		{"a.py", "snake", "/usr/bin/python3"}, {"a.sh", "shell", "/bin/bash"}, {"a.rb", "", "/usr/bin/ruby"}, {"b", "shell", "/bin/bash"},
	} {
		inv, err := s.ForScript(sk, c.script)
		if err != nil || inv.Image.Name != c.image || inv.Args[0] != c.program {
			t.Errorf("%s: got %+v, %v, want %s of %q", c.script, inv, err, c.program, c.image)
		}
	}
	for _, c := range []struct{ language, image string }{{"", "snake"}, {"python", "snake"}, {"bash", "shell"}, {"perl", ""}} {
		inv, err := s.ForCode(sk, c.language, "x")
		if err != nil || inv.Image.Name != c.image {
			t.Errorf("code in %q: got %+v, %v, want image %q", c.language, inv, err, c.image)
		}
	}
	for _, c := range []struct {
		programs []string
		image    string
	}{
		{[]string{"python3"}, "snake"}, {[]string{"python"}, "snake"}, {[]string{"cat", "/usr/bin/python3.11"}, "snake"}, {[]string{"bash", "cat"}, "shell"},
		{[]string{"scripts/x.PY"}, "snake"}, {[]string{"/skills/demo/x.sh"}, "shell"}, {[]string{"jq", "cat"}, ""}, {nil, ""},
	} {
		inv, err := s.ForCommand(sk, c.programs)
		if err != nil || inv.Image.Name != c.image {
			t.Errorf("%v: got %+v, %v, want image %q", c.programs, inv, err, c.image)
		}
	}
	var names []string
	for _, one := range s.All() {
		names = append(names, one.Image().Name)
	}
	if want := []string{"", "shell", "snake"}; !slices.Equal(names, want) {
		t.Errorf("all: got %q, want %q", names, want)
	}
	if want := []string{"python", "bash", "sh", "node", "ruby", "perl"}; !slices.Equal(Languages(), want) {
		t.Errorf("languages: got %v, want %v", Languages(), want)
	}
}

// An interpreter that an image lacks is refused by name, even if this machine has it.
func TestRefusedInImage(t *testing.T) {
	machine := fakeSet(t, allLanguages()).WithEmbedded(&Installation{Dir: "/e", Version: "3.14.6"})
	bare := imageOf(t, "bare", map[string]string{"bin/sh": "#! 1.35.0"}).WithoutEmbedded("the embedded one does not run there")
	old := imageOf(t, "old", map[string]string{"usr/bin/python3": "#! Python 3.9.1"})
	own := imageOf(t, "own", map[string]string{"etc/": ""}).WithEmbedded(&Installation{Dir: "/e", Version: "3.14.6"})
	plain := skilltest.Load(t, map[string]string{"a.py": "", "a.js": ""})
	venv := skilltest.Load(t, map[string]string{"a.py": "", "venv/pyvenv.cfg": "version = 3.11.2\n", "venv/bin/python3": "-> /usr/bin/python3.11"})
	venv14 := skilltest.Load(t, map[string]string{"a.py": "", "venv/pyvenv.cfg": "version = 3.14.0\n", "venv/bin/python3": "-> /usr/bin/python3.14"})

	_, err := machine.Route(map[string]*Set{"python": bare, "node": bare}).ForScript(plain, "a.py")
	var missing *MissingError
	if !errors.As(err, &missing) || err.Error() != "Interpreter 'python3' not found in PATH for a.py in image bare (the embedded one does not run there)" {
		t.Errorf("got %v", err)
	}
	_, err = machine.Route(map[string]*Set{"node": bare}).ForScript(plain, "a.js")
	if !errors.As(err, &missing) || err.Error() != "Interpreter 'node' not found in PATH for a.js in image bare" {
		t.Errorf("got %v", err)
	}
	_, err = machine.Route(map[string]*Set{"python": bare}).With(Embedded).ForCode(plain, "python", "1")
	if !errors.As(err, &missing) || missing.Image != "bare" {
		t.Errorf("embedded, asked for: got %v", err)
	}
	for _, c := range []struct {
		set  *Set
		want string
	}{
		{bare, "it was made with Python 3.11, and no Python is available in image bare"},
		{old, "it was made with Python 3.11, and only 3.9 is available in image old"},
		{old.With(System), "it was made with Python 3.11, and the requested system Python in image old has version 3.9"},
		{bare.With(System), "it was made with Python 3.11, and the requested system Python is not available in image bare"},
	} {
		_, err := c.set.ForScript(venv, "a.py")
		var unusable *VenvError
		if !errors.As(err, &unusable) || unusable.Reason != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
	inv, err := own.ForScript(venv14, "a.py")
	if err != nil || inv.Args[0] != EmbeddedDir+"/bin/python3" || inv.Image.Name != "own" || len(inv.Mounts) != 1 {
		t.Errorf("the embedded Python with a venv of its version: got %+v, %v", inv, err)
	}
}

func TestAskEmbedded(t *testing.T) {
	i := &Installation{Dir: "/e", Version: "3.14.6"}
	for answer, want := range map[string]bool{"Python 3.14.6\n": true, "": false, "no such file": false} {
		got := i.AskEmbedded(t.Context(), func(_ context.Context, args []string, mounts []Mount) []byte {
			if !slices.Equal(args, []string{"/opt/python/bin/python3", "--version"}) || !slices.Equal(mounts, []Mount{{"/e", "/opt/python"}}) {
				t.Errorf("asked %v with %v", args, mounts)
			}
			return []byte(answer)
		})
		if got != want {
			t.Errorf("%q: got %v", answer, got)
		}
	}
}

// OpenInside reads nothing outside of an image.
func TestOpenInside(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make a device node")
	}
	outside, dir := t.TempDir(), t.TempDir()
	write(t, outside, map[string]string{"secret": "secret", "site/secret-1.dist-info/METADATA": "Name: secret\nVersion: 1\n"})
	write(t, dir, map[string]string{
		"file": "text", "in": "-> /file", "up": "-> ../../../file", "out": "-> " + outside + "/secret", "dir": "-> " + outside,
		"self": "-> /proc/self/root" + outside + "/secret", "usr/lib/python3/": "", "usr/lib/python3/dist-packages": "-> " + outside + "/site",
	})
	if err := errors.Join(unix.Mkfifo(filepath.Join(dir, "fifo"), 0o644), unix.Mknod(filepath.Join(dir, "zero"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5)))); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"file": "text", "/file": "text", "in": "text", "up": "text", "../../file": "text",
		"out": "", "dir/secret": "", "self": "", "fifo": "", "zero": "", "none": "",
	} {
		got := ""
		f, err := OpenInside(dir, name)
		if err == nil {
			b, _ := io.ReadAll(f)
			f.Close()
			got = string(b)
		}
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, want)
		}
	}
	have, err := ReadPackages(dir, "", Runtime{Language: "python", Path: "/usr/bin/python3", Version: "3.11.2"}, skilltest.Load(t, nil))
	if err != nil || len(have.Versions) != 0 {
		t.Errorf("packages from outside: got %v, %v", have.Versions, err)
	}
	if names := (finder{root: dir, image: true}).names(pythonMinor); len(names) != 0 {
		t.Errorf("got %v", names)
	}
	if at, ok := (Image{Name: "x", Dir: dir}).Program("out"); ok {
		t.Errorf("got %s", at)
	}
	if got := (Image{}).Rootfs(); got != "/" {
		t.Errorf("this machine's root: got %s", got)
	}
	if !strings.Contains((Image{Name: "x"}).in(), "image x") {
		t.Error("the sentence lacks the image's name")
	}
}
