package main

import (
	"strings"
	"testing"
	"time"
)

// A line that is one Python is forked from a ready one, as a script is, and is the
// same as one that was started: by the first of them, which has nobody to be forked
// from. Who was forked into a sandbox has no parent in it.
func TestForkedCommands(t *testing.T) {
	dir := newDir(t)
	who := "import json, os, sys; print(os.getppid()); print(sys.executable, sys.prefix, sys.argv, sys.orig_argv, sys.path[0], __file__, os.getcwd(), sys.flags, os.path.realpath('/proc/self/exe'))"
	writeSkill(t, dir, "demo", "allowed-tools: Bash(python:*), Bash(python3:*)", map[string]string{"scripts/who.py": who})
	d := startDaemonIn(t, dir, "python: system\n")
	for _, line := range []string{
		"python3 scripts/who.py a 'b c'",
		"python {baseDir}/scripts/who.py",
		`python3 -c "` + strings.Replace(who, "__file__", "0", 1) + `" x`,
	} {
		t.Run(line, func(t *testing.T) {
			var first string
			for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
				r := d.run(command("demo", line))
				r.wantExit(t, 0)
				parent, rest, _ := strings.Cut(r.stdout.String(), "\n")
				if first == "" {
					first = rest
				}
				if rest != first {
					t.Errorf("with the parent %s got %s\nwant %s", parent, rest, first)
				}
				if parent == "0" {
					return
				}
				if time.Now().After(deadline) {
					t.Fatal("it is never forked")
				}
			}
		})
	}
}
