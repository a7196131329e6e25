package sandbox

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skillrun/skillrun/sandbox/internal/mount"
)

func TestSpecCheck(t *testing.T) {
	good := Spec{ID: "a-1", Program: command("true")}
	if err := good.withDefaults().check(); err != nil {
		t.Fatal(err)
	}
	redirect := func(r Redirect) func(*Spec) {
		return func(s *Spec) { s.Program = pipeline(with(cmd("true"), r)) }
	}
	globs := func(g ...Glob) func(*Spec) {
		return func(s *Spec) {
			c := cmd("ls", "*", "?")
			c.Globs = g
			s.Program = pipeline(c)
		}
	}
	for _, tt := range []struct {
		name   string
		change func(*Spec)
		want   string
	}{
		{"no id", func(s *Spec) { s.ID = "" }, "id"},
		{"id with a slash", func(s *Spec) { s.ID = "a/b" }, "id"},
		{"id with dots", func(s *Spec) { s.ID = ".." }, "id"},
		{"long id", func(s *Spec) { s.ID = strings.Repeat("a", 65) }, "id"},
		{"no program", func(s *Spec) { s.Program = nil }, "0 steps"},
		{"many steps", func(s *Spec) { s.Program = make(Program, maxSteps+1) }, "steps"},
		{"unknown condition", func(s *Spec) { s.Program = Program{{When: 7, Pipeline: []Command{cmd("true")}}} }, "condition 7"},
		{"empty pipeline", func(s *Spec) { s.Program = Program{{}} }, "0 commands"},
		{"long pipeline", func(s *Spec) { s.Program = pipeline(repeat(cmd("true"), maxCommands+1)...) }, "65 commands"},
		{"no arguments", func(s *Spec) { s.Program = pipeline(Command{}) }, "without arguments"},
		{"NUL in argument", func(s *Spec) { s.Program = command("a\x00b") }, "NUL"},
		{"pattern as a name", globs(Glob{0, "ls"}), "argument 0"},
		{"pattern of no argument", globs(Glob{3, "*"}), "argument 3"},
		{"pattern before the first", globs(Glob{-1, "*"}), "argument -1"},
		{"pattern twice", globs(Glob{1, "*"}, Glob{1, "*"}), "argument 1"},
		{"patterns out of order", globs(Glob{2, "?"}, Glob{1, "*"}), "argument 1"},
		{"pattern of another text", globs(Glob{1, "**"}), "not of argument"},
		{"environment without =", func(s *Spec) { s.Env = []string{"A"} }, "NAME=value"},
		{"environment without name", func(s *Spec) { s.Env = []string{"=x"} }, "NAME=value"},
		{"NUL in environment", func(s *Spec) { s.Env = []string{"A=\x00"} }, "NAME=value"},
		{"NUL in a command's environment", func(s *Spec) { s.Program[0].Pipeline[0].Env = []string{"A=\x00"} }, "NAME=value"},
		{"directory outside", func(s *Spec) { s.Dir = "../x" }, "dir"},
		{"absolute directory", func(s *Spec) { s.Dir = "/etc" }, "dir"},
		{"NUL in directory", func(s *Spec) { s.Dir = "a\x00" }, "dir"},
		{"redirect outside", redirect(Redirect{Kind: Write, Path: "../x"}), "working directory"},
		{"absolute redirect", redirect(Redirect{Kind: Read, Path: "/etc/passwd"}), "working directory"},
		{"almost the null device", redirect(Redirect{Kind: Write, Path: "/dev/null/"}), "working directory"},
		{"redirect of descriptor 10", redirect(Redirect{FD: 10, Kind: Dup}), "descriptor 10"},
		{"redirect of descriptor -1", redirect(Redirect{FD: -1, Kind: Dup}), "descriptor -1"},
		{"copy of descriptor 10", redirect(Redirect{Kind: Dup, From: 10}), "descriptor 10"},
		{"unknown redirect", redirect(Redirect{Kind: 9}), "kind 9"},
		{"many redirects", func(s *Spec) { s.Program = pipeline(with(cmd("true"), make([]Redirect, maxRedirects+1)...)) }, "33 redirects"},
		{"relative source", func(s *Spec) { s.Mounts = []Mount{{Source: "x", Target: "/skills/x"}} }, "not absolute"},
		{"target elsewhere", func(s *Spec) { s.Mounts = []Mount{{Source: "/x", Target: "/usr/x"}} }, "not beneath"},
		{"target is the top", func(s *Spec) { s.Mounts = []Mount{{Source: "/x", Target: "/skills"}} }, "not beneath"},
		{"target leaves", func(s *Spec) { s.Mounts = []Mount{{Source: "/x", Target: "/skills/../etc"}} }, "not beneath"},
		{"target over the links", func(s *Spec) { s.Mounts = []Mount{{Source: "/x", Target: mount.LinksDir}} }, "not beneath"},
		{"target over the links' parent", func(s *Spec) { s.Mounts = []Mount{{Source: "/x", Target: "/opt/skillrun"}} }, "not beneath"},
		{"target used twice", func(s *Spec) { s.Mounts = []Mount{{Source: "/x", Target: "/opt/x"}, {Source: "/y", Target: "/opt/x"}} }, "twice"},
		{"many mounts", func(s *Spec) { s.Mounts = make([]Mount, maxMounts+1) }, "65 mounts"},
		{"many lowers", func(s *Spec) { s.Workspace.Lower = make([]string, maxLowers+1) }, "33 lower"},
		{"relative lower", func(s *Spec) { s.Workspace.Lower = []string{"relative"} }, "not absolute"},
		{"negative wall", func(s *Spec) { s.Limits.Wall = -1 }, "negative time"},
		{"negative CPU", func(s *Spec) { s.Limits.CPU = -time.Second }, "negative time"},
		{"negative memory", func(s *Spec) { s.Limits.MemoryBytes = -1 }, "negative memory"},
		{"less than a hundredth of a processor", func(s *Spec) { s.Limits.MilliCPUs = 9 }, "9 thousandths of a processor"},
		{"negative processors", func(s *Spec) { s.Limits.MilliCPUs = -1 }, "-1 thousandths of a processor"},
		{"few open files", func(s *Spec) { s.Limits.OpenFiles = 3 }, "3 open files"},
		{"negative workspace", func(s *Spec) { s.Workspace.SizeBytes = -1 }, "negative size"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := good
			s.Program = command("true")
			tt.change(&s)
			if err := s.withDefaults().check(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want it to say %q", err, tt.want)
			}
		})
	}
}

func TestRefusedSpecRunsNothing(t *testing.T) {
	h := openHost(t)
	_, err := h.Start(context.Background(), Spec{ID: "Bad"}, IO{})
	var setup *SetupError
	if !asSetup(err, &setup) || setup.Step != "spec" {
		t.Errorf("got %v", err)
	}
	long := strings.Repeat("x", maxProgramBytes)
	_, err = h.Start(context.Background(), Spec{ID: "long", Program: pipeline(with(cmd("cat"), Redirect{Kind: Text, Text: long}))}, IO{})
	if !asSetup(err, &setup) || setup.Step != "program" {
		t.Errorf("got %v", err)
	}
	noLeftovers(t, h)
}

func TestEnviron(t *testing.T) {
	got := environ([]string{"A=1", "B=2", "A=3"}, []string{"B=4", "C=5"})
	if want := []string{"A=3", "B=4", "C=5"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestNames(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{Exited.String(), "exited"}, {Stopped.String(), "stopped"}, {OOMKilled.String(), "oom killed"}, {End(9).String(), "9"},
		{NoDeadline.String(), "none"}, {CPU.String(), "cpu"}, {Deadline(-1).String(), "-1"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}
