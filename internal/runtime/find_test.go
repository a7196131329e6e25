package runtime

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestDiscover(t *testing.T) {
	want := []Runtime{
		{"python", "/usr/bin/python3", "3.11.2"}, {"bash", "/usr/bin/bash", "5.2.15"}, {"sh", "/usr/bin/sh", ""},
		{"node", "/usr/bin/node", "20.19.2"}, {"ruby", "/usr/bin/ruby", "3.1.2"}, {"perl", "/usr/bin/perl", "5.36.0"},
	}
	if got := fakeSet(t, allLanguages()).List(); !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

func TestDiscoverFollowsTheSandboxesView(t *testing.T) {
	for _, c := range []struct {
		what  string
		files map[string]string
		want  []Runtime
	}{
		{"nothing", map[string]string{"usr/": ""}, nil},
		{"first on the path wins", map[string]string{"usr/local/bin/node": says("v1.0"), "usr/bin/node": says("v2.0")}, []Runtime{{"node", "/usr/local/bin/node", "1.0"}}},
		{"usr/sbin too", map[string]string{"usr/sbin/perl": says("v5.1")}, []Runtime{{"perl", "/usr/sbin/perl", "5.1"}}},
		{"not elsewhere", map[string]string{"opt/bin/node": says("v1.0"), "home/x/bin/perl": says("v1.0"), "usr/": "", "usr/games/ruby": says("1.0")}, nil},
		{"not executable", map[string]string{"usr/bin/node": "text"}, nil},
		{"a directory", map[string]string{"usr/bin/node/": ""}, nil},
		{"not executable, another is", map[string]string{"usr/local/bin/node": "text", "usr/bin/node": says("v2.0")}, []Runtime{{"node", "/usr/bin/node", "2.0"}}},
		{"alternatives", map[string]string{"usr/bin/ruby": "-> /etc/alternatives/ruby", "etc/alternatives/ruby": "-> /usr/lib/ruby/3/ruby", "usr/lib/ruby/3/ruby": says("ruby 3.1.0")}, []Runtime{{"ruby", "/usr/bin/ruby", "3.1.0"}}},
		{"alternatives by the merged bin", map[string]string{"usr/bin/ruby": "-> /etc/alternatives/ruby", "etc/alternatives/ruby": "-> /bin/ruby3", "bin": "-> usr/bin", "usr/bin/ruby3": says("ruby 3.1.0")}, []Runtime{{"ruby", "/usr/bin/ruby", "3.1.0"}}},
		{"relative link up", map[string]string{"usr/bin/node": "-> ../lib/node/node", "usr/lib/node/node": says("v3.0")}, []Runtime{{"node", "/usr/bin/node", "3.0"}}},
		{"a link out of usr", map[string]string{"usr/bin/node": "-> /opt/node", "opt/node": says("v1.0")}, nil},
		{"a relative link out of usr", map[string]string{"usr/bin/node": "-> ../../opt/node", "opt/node": says("v1.0")}, nil},
		{"a link out and back", map[string]string{"usr/bin/node": "-> /opt/node", "opt/node": "-> /usr/lib/node", "usr/lib/node": says("v1.0")}, nil},
		{"a link out by alternatives", map[string]string{"usr/bin/node": "-> /etc/alternatives/node", "etc/alternatives/node": "-> /opt/node", "opt/node": says("v1.0")}, nil},
		{"a file in alternatives", map[string]string{"usr/bin/node": "-> /etc/alternatives/node", "etc/alternatives/node": says("v1.0")}, nil},
		{"more dots than directories", map[string]string{"usr/bin/node": "-> ../../../../../usr/lib/node", "usr/lib/node": says("v1.0")}, []Runtime{{"node", "/usr/bin/node", "1.0"}}},
		{"a loop", map[string]string{"usr/bin/node": "-> node2", "usr/bin/node2": "-> node"}, nil},
		{"dangling", map[string]string{"usr/bin/node": "-> none"}, nil},
		{"a linked directory", map[string]string{"usr/local/bin": "-> ../lib/bins", "usr/lib/bins/node": says("v1.0")}, []Runtime{{"node", "/usr/local/bin/node", "1.0"}}},
		{"two pythons", map[string]string{"usr/bin/python3.12": says("Python 3.12.1"), "usr/bin/python3.11": says("Python 3.11.2"), "usr/bin/python3": "-> python3.11", "usr/bin/python3.11-config": says("x")},
			[]Runtime{{"python", "/usr/bin/python3", "3.11.2"}, {"python", "/usr/bin/python3.12", "3.12.1"}}},
		{"no version", map[string]string{"usr/bin/node": "#!/bin/sh\necho hello\n", "usr/bin/perl": "#!/bin/sh\necho 5.36\nexit 1\n"}, []Runtime{{"node", "/usr/bin/node", ""}, {"perl", "/usr/bin/perl", ""}}},
		{"endless version", map[string]string{"usr/bin/node": "#!/bin/sh\necho v1.2.3\nexec /usr/bin/head -c 10000000 /dev/zero\n"}, []Runtime{{"node", "/usr/bin/node", "1.2.3"}}},
	} {
		t.Run(c.what, func(t *testing.T) {
			if got := fakeSet(t, c.files).List(); !slices.Equal(got, c.want) {
				t.Errorf("got %v\nwant %v", got, c.want)
			}
		})
	}
}

// The daemon's environment is not passed to the interpreters.
func TestVersionIsAskedWithoutEnvironment(t *testing.T) {
	t.Setenv("DAEMON_SECRET", "9.9.9")
	s := fakeSet(t, map[string]string{"usr/bin/node": "#!/bin/sh\necho v1.2.3${DAEMON_SECRET:+leaked} $#$1; read x || echo eof\n"})
	if got := s.List()[0].Version; got != "1.2.3" {
		t.Errorf("version %q", got)
	}
	root := t.TempDir()
	write(t, root, map[string]string{"usr/bin/node": "#!/bin/sh\nenv > " + root + "/env\npwd >> " + root + "/env\necho 1.0\n"})
	s, err := Discover(t.Context(), Config{Rootfs: root})
	if err != nil {
		t.Fatal(err)
	}
	s.List()
	env, err := os.ReadFile(filepath.Join(root, "env"))
	if err != nil || strings.Contains(string(env), "DAEMON_SECRET") || strings.Contains(string(env), "HOME") {
		t.Errorf("the program saw %s (%v)", env, err)
	}
}

func TestDiscoverErrors(t *testing.T) {
	if _, err := Discover(t.Context(), Config{Rootfs: t.TempDir()}); err == nil {
		t.Error("a root file system without usr was accepted")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Discover(ctx, Config{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	var zero Set
	if len(zero.List()) != 0 {
		t.Error("the zero Set is not empty")
	}
}

func TestDiscoverThisMachine(t *testing.T) {
	s, err := Discover(t.Context(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range s.List() {
		if !strings.HasPrefix(r.Path, "/usr/") || r.Version == "" && r.Language != "sh" {
			t.Errorf("%+v", r)
		}
		if fi, err := os.Stat(r.Path); err != nil || fi.Mode()&0o111 == 0 {
			t.Errorf("%s: %v", r.Path, err)
		}
	}
	for _, language := range []string{"bash", "sh"} {
		if !slices.ContainsFunc(s.List(), func(r Runtime) bool { return r.Language == language }) {
			t.Errorf("%s not found", language)
		}
	}
}
