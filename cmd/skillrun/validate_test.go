package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files")

// Several folders, from the text of one command to its whole output, without a
// daemon. What depends on the machine is left out of the skills.
func TestValidateFolders(t *testing.T) {
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir("testdata/validate")
	for _, test := range []struct {
		name string
		args []string
		code int
	}{
		{"clean", []string{"clean"}, 0},
		{"clean-strict", []string{"--strict", "clean"}, 0},
		{"warned", []string{"warned"}, 0},
		{"warned-strict", []string{"--strict", "warned"}, 1},
		{"broken", []string{"./broken"}, 1},
		{"all", []string{"clean", "warned", "broken/"}, 1},
		{"all-json", []string{"--json", "clean", "warned", "broken"}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := (&fake{address: "unix:///nonexistent"}).client(t, nil, append([]string{"validate"}, test.args...)...)
			if got.code != test.code || got.stderr != "" {
				t.Errorf("code %d and stderr %q, want %d and nothing", got.code, got.stderr, test.code)
			}
			golden := filepath.Join(wd, "testdata/validate", test.name+".golden")
			if *update {
				if err := os.WriteFile(golden, []byte(got.stdout), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got.stdout != string(want) {
				t.Errorf("got\n%swant\n%s", got.stdout, want)
			}
		})
	}
}

func TestValidateUsage(t *testing.T) {
	for _, args := range [][]string{{}, {"--wrong", "x"}, {"--strict=maybe", "x"}} {
		got := (&fake{address: "unix:///nonexistent"}).client(t, nil, append([]string{"validate"}, args...)...)
		if got.code != codeFailed || got.stdout != "" || !strings.Contains(got.stderr, "--help") {
			t.Errorf("%v: got %+v, want code %d", args, got, codeFailed)
		}
	}
}
