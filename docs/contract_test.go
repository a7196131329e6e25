package docs

import (
	"os"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// buf's STANDARD rules hold without an exception, and make lint runs them and compares the contract with an earlier one.
func TestContractRules(t *testing.T) {
	data, err := os.ReadFile("../buf.yaml")
	if err != nil {
		t.Fatal(err)
	}
	type rules struct {
		Use    []string
		Except []string
		Ignore []string
		Only   map[string][]string `yaml:"ignore_only"`
	}
	var buf struct{ Lint, Breaking rules }
	if err := yaml.Unmarshal(data, &buf); err != nil {
		t.Fatal(err)
	}
	if l := buf.Lint; !slices.Contains(l.Use, "STANDARD") || len(l.Except)+len(l.Ignore)+len(l.Only) > 0 {
		t.Errorf("lint: %+v, want STANDARD without exceptions", l)
	}
	if b := buf.Breaking; !slices.Contains(b.Use, "WIRE_JSON") || len(b.Except)+len(b.Ignore)+len(b.Only) > 0 {
		t.Errorf("breaking: %+v, want WIRE_JSON without exceptions", b)
	}
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, lint, _ := strings.Cut(string(makefile), "\nlint:")
	lint, _, _ = strings.Cut(lint, "\n\n")
	for _, want := range []string{"buf lint", "breaking"} {
		if !strings.Contains(lint, want) {
			t.Errorf("make lint has no %q:\n%s", want, lint)
		}
	}
}
