package permission

import (
	"encoding/json"
	"os"
	"testing"
)

// The published table of decisions, which must not change.
func TestDecisionTable(t *testing.T) {
	data, err := os.ReadFile("testdata/allowed_tools.json")
	if err != nil {
		t.Fatal(err)
	}
	var table struct {
		Cases []struct {
			Tools string
			Cmd   string
			Allow bool
			Note  string
		}
	}
	if err := json.Unmarshal(data, &table); err != nil {
		t.Fatal(err)
	}
	if len(table.Cases) < 80 {
		t.Fatalf("table has %d rows, want at least 80", len(table.Cases))
	}
	for _, c := range table.Cases {
		d := ParseRules([]string{c.Tools}, "/skills/demo").Decide(c.Cmd)
		if d.Allowed != c.Allow {
			t.Errorf("%s: %.80q allowed = %v, want %v (%s): %s", c.Tools, c.Cmd, d.Allowed, c.Allow, c.Note, d.Reason)
		}
		checkForm(t, c.Cmd, d)
	}
}

// checkForm checks properties that every decision has.
func checkForm(t *testing.T, command string, d Decision) {
	t.Helper()
	if d.Reason == "" {
		t.Errorf("%.80q: empty reason", command)
	}
	if d.Allowed != (len(d.Plan) > 0) || d.Allowed != (d.Rule != "") || d.Allowed && d.Missing != "" {
		t.Errorf("%.80q: allowed = %v with plan %v, rule %q, missing %q", command, d.Allowed, d.Plan, d.Rule, d.Missing)
	}
}
