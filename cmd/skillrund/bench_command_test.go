package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// benchReport is the last line of skillrun bench --json.
type benchReport struct {
	Rows []struct {
		Name, Unit, Broken string
		NotRun             string `json:"not_run"`
		Value, Bare, Ratio *float64
		Target             *float64
		TargetOf           string `json:"target_of"`
		N                  int
		Peers              map[string]struct{ Broken string }
	}
	FallsShort []string `json:"falls_short"`
}

// runBench runs the real command, which starts a real daemon. It checks that the command
// leaves nothing in its directory.
func runBench(t *testing.T, args ...string) (report benchReport, stdout string, code int, stderr string) {
	t.Helper()
	dir := newDir(t)
	cmd := exec.CommandContext(t.Context(), binary(t, "skillrun"), append([]string{"bench", "--json", "--short", "--dir", dir, "--daemon", binary(t, "skillrund")}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &report); err != nil {
		t.Fatalf("the last line: %v\n%s\n%s", err, out.String(), errs.String())
	}
	return report, out.String(), cmd.ProcessState.ExitCode(), errs.String()
}

// The command measures rows of several kinds at a small scale, and a peer in turn with them. make
// bench-smoke measures all rows so.
func TestBench(t *testing.T) {
	t.Parallel()
	rows := []string{"true-p50", "true-p95", "sustained-true", "cold-true-bare-p50", "memory-idle",
		"sleeping", "memory-running", "sleeping-memory", "sleeping-cancel", "sleeping-start",
		"secrecy-get-p50", "secrecy-get-rank"}
	if _, err := os.Stat("/usr/bin/python3"); err == nil {
		rows = append(rows, "python-p50", "first-byte-p50", "stream-rate", "stream-memory")
	}
	report, stdout, code, stderr := runBench(t, "-n", "3", "--peer", "plain=/usr/bin/env", "--peer", "liar=/usr/bin/true", "--peer", "/usr/bin/false", "--rows", strings.Join(rows, ","))
	if code != 0 {
		t.Errorf("exit code %d, want 0\n%s", code, stderr)
	}
	var names []string
	for _, row := range report.Rows {
		names = append(names, row.Name)
		if row.Broken != "" || row.NotRun != "" || row.Value == nil || row.N == 0 || row.Unit == "" {
			t.Errorf("%s: got %+v, want it measured", row.Name, row)
		}
		if row.TargetOf == "ratio" && (row.Ratio == nil || row.Bare == nil) {
			t.Errorf("%s: got %+v, want a ratio", row.Name, row)
		}
		if row.Name == "true-p50" && (row.Peers["plain"].Broken != "" || row.Peers["liar"].Broken != "" || row.Peers["false"].Broken == "") {
			t.Errorf("peers: got %+v, want false alone broken", row.Peers)
		}
		if row.Name == "python-p50" && row.Peers["liar"].Broken == "" {
			t.Errorf("peers: got %+v, want the one that prints nothing broken", row.Peers)
		}
		if row.Name == "sleeping" && *row.Value < *row.Target {
			t.Errorf("%v of %v sleeping executions ran", *row.Value, *row.Target)
		}
	}
	slices.Sort(rows)
	if slices.Sort(names); !slices.Equal(names, rows) {
		t.Errorf("rows: got %v, want %v", names, rows)
	}
	for _, name := range report.FallsShort {
		if !slices.Contains(rows, name) {
			t.Errorf("falls_short: %s was not asked for", name)
		}
	}
	if got, want := strings.Count(stdout, "\n"), len(rows)+1; got != want {
		t.Errorf("got %d lines, want %d: one a row, and all of it", got, want)
	}
}

// If a row can't be measured, the report marks it as broken and the exit code says so.
func TestBenchIsBroken(t *testing.T) {
	t.Parallel()
	report, _, code, stderr := runBench(t, "--daemon", "/usr/bin/false", "--rows", "true-p50,memory-idle")
	if code != 1 || !strings.Contains(stderr, "broken: true-p50, memory-idle") {
		t.Errorf("got exit code %d, %s, want 1 and the names", code, stderr)
	}
	for _, row := range report.Rows {
		if !strings.Contains(row.Broken, "exit status 1") || row.Value != nil {
			t.Errorf("got %+v, want it broken by the daemon's end", row)
		}
	}
	if len(report.FallsShort) != 0 {
		t.Errorf("falls_short: got %v, want none: nothing was measured", report.FallsShort)
	}
}
