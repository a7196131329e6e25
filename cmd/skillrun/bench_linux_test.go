//go:build cgo

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The real benchmark is run by cmd/skillrund.TestBench.

func TestBenchRefuses(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.json")
	if err := os.WriteFile(empty, []byte("{\"name\":\"x\"}\n{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, args string
		code       int
		want       string
	}{
		{"an argument", "bench now", codeFailed, "takes no arguments"},
		{"a row that isn't there", "bench --rows tru", codeFailed, "no such row; the rows are true-p50, "},
		{"a number", "bench -n -1", codeFailed, "must be 1 or more"},
		{"a peer that isn't there", "bench --peer /no/such/program", codeFailed, "/no/such/program"},
		{"a daemon that isn't there", "bench --daemon /no/such/skillrund", codeNotFound, "name its path with --daemon"},
		{"a file that isn't there", "bench --from /no/such/file", codeFailed, "no such file"},
		{"empty rows", "bench --rows=", codeFailed, "--rows is empty; --list prints the names of the rows"},
		{"a file with something else", "bench --from " + empty, codeFailed, "give the output of skillrun bench --json"},
	}
	for _, test := range tests {
		if os.Geteuid() != 0 && strings.Contains(test.args, "--daemon") {
			continue // the lack of root is found first
		}
		got := (&fake{}).client(t, nil, strings.Fields(test.args)...)
		if got.code != test.code || !strings.Contains(got.stderr, test.want) {
			t.Errorf("%s: got %+v, want code %d and %q", test.name, got, test.code, test.want)
		}
	}
}

func TestBenchList(t *testing.T) {
	got := (&fake{}).client(t, nil, "bench", "--list")
	names := strings.Fields(got.stdout)
	if got.code != 0 || len(names) < 20 || names[0] != "true-p50" {
		t.Errorf("got %+v, want the names of all rows", got)
	}
}

// An earlier report is shown again with its own verdicts.
func TestBenchFrom(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	earlier := `{"name":"true-p50"}
{"version":"v1","rows":[{"name":"true-p50","title":"warm true","unit":"ms","value":3,"bare":1,"ratio":3,"target":2,"target_of":"ratio","target_is":"at most","n":5},` +
		`{"name":"memory-idle","title":"idle","unit":"MiB","value":null,"bare":null,"ratio":null,"target":64,"n":0,"broken":"it fell over"}],` +
		`"falls_short":["true-p50"],"distributions":[{"name":"true","unit":"ms","series":[{"name":"skillrun","quantiles":[1,2,3]}]}]}
`
	for name, text := range map[string]string{"earlier.json": earlier, "doc.md": "a\n<!-- skillrun bench -->\nold\n<!-- end -->\nz\n"} {
		if err := os.WriteFile(path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := (&fake{}).client(t, nil, "bench", "--from", path("earlier.json"), "--svg", path("x.svg"), "--into", path("doc.md"))
	if got.code != codeBroken || !strings.Contains(got.stderr, "broken: memory-idle") {
		t.Errorf("got %+v, want code %d and the broken row", got, codeBroken)
	}
	for _, want := range []string{"warm true  3 ms      1 ms  3", "at most 2 times  5  falls short", "BROKEN: it fell over"} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("got\n%s\nwant %q in it", got.stdout, want)
		}
	}
	document, err := os.ReadFile(path("doc.md"))
	if err != nil || !strings.HasPrefix(string(document), "a\n") || strings.Contains(string(document), "old") || !strings.Contains(string(document), "| warm true | 3 ms |") {
		t.Errorf("the document: got %q, %v", document, err)
	}
	if picture, err := os.ReadFile(path("x.svg")); err != nil || !strings.Contains(string(picture), "<polyline") {
		t.Errorf("the picture: got %q, %v", picture, err)
	}

	again := (&fake{}).client(t, nil, "bench", "--json", "--from", path("earlier.json"))
	if again.code != codeBroken || !strings.Contains(again.stdout, `"falls_short":["true-p50"]`) {
		t.Errorf("as JSON: got %+v", again)
	}
}
