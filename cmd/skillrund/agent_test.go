package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// agentVar names a directory with other skills and commands, see testdata/agent/README.md.
const agentVar = "SKILLRUN_TEST_AGENT"

// leastCommands is the least number of commands that an agent must get done.
const leastCommands = 35

// An agent with the official client finds skills, reads their instructions, and follows them: it runs
// scripts and command lines with arguments and files, and reads and reuses their artifacts.
func TestMCPAgentOfficialClient(t *testing.T) {
	t.Parallel()
	nodeProgram(t)
	from, err := filepath.Abs("testdata/agent")
	if err != nil {
		t.Fatal(err)
	}
	least, more := leastCommands, []byte(nil)
	if other := os.Getenv(agentVar); other != "" {
		from, least = other, 1
		if more, err = os.ReadFile(filepath.Join(from, "skillrund.yaml")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	dir := newDir(t)
	if err := os.CopyFS(filepath.Join(dir, "skills"), os.DirFS(filepath.Join(from, "skills"))); err != nil {
		t.Fatal(err)
	}
	if os.Getenv(agentVar) == "" {
		addVenv(t, dir, "drawing") // run_python_script needs one
	}
	shipped, err := filepath.Abs("../../skills")
	if err != nil {
		t.Fatal(err)
	}
	d := startDaemonIn(t, dir, fmt.Sprintf("skills: [{path: skills, recursive: true}, %s]\n%s", shipped, more))
	args := append([]string{filepath.Join(from, "commands.mjs"), "2026-07-28"}, d.mcpCommand().Args...)
	done := 0
	for line := range bytes.Lines(runClient(t, "agent.mjs", args, "SKILLRUN_ADDRESS=unix://"+d.dir+"/s.sock")) {
		var command struct{ Name, Error string }
		if err := json.Unmarshal(line, &command); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		t.Run(command.Name, func(t *testing.T) {
			if command.Error != "" {
				t.Error(command.Error)
			}
		})
		done++
	}
	if done < least {
		t.Errorf("%d commands, want %d", done, least)
	}
	d.wantNothingLeft()
}
