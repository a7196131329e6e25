package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
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
	for _, args := range [][]string{{}, {"--wrong", "x"}, {"--strict=maybe", "x"}, {"", "x"}, {""}} {
		got := (&fake{address: "unix:///nonexistent"}).client(t, nil, append([]string{"validate"}, args...)...)
		if got.code != codeFailed || got.stdout != "" || !strings.Contains(got.stderr, "--help") {
			t.Errorf("%v: got %+v, want code %d", args, got, codeFailed)
		}
	}
}

// An argument that can't be read doesn't hide the findings for the others.
func TestValidateMissing(t *testing.T) {
	clean, err := filepath.Abs("testdata/validate/clean")
	if err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(filepath.Dir(clean), "broken")
	t.Chdir(t.TempDir())
	if err := os.Mkdir("team", 0o755); err != nil {
		t.Fatal(err)
	}
	for path, target := range map[string]string{"dangling": "nowhere", "clean": clean, "team/clean": clean} {
		if err := os.Symlink(target, path); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile("file.md", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	absent := func(r *pb.ValidateSkillRequest) (*pb.ValidateSkillResponse, error) {
		if r.GetSkill() == "loaded" || r.GetSkill() == "team/loaded" {
			return &pb.ValidateSkillResponse{Valid: proto.Bool(true)}, nil
		}
		if r.GetSkill() == "file.md" || r.GetSkill() == "other/loaded" {
			return nil, status.Error(codes.InvalidArgument, "no name of a skill")
		}
		return nil, status.Error(codes.NotFound, "no such skill")
	}
	const noDaemon, noSkill = "and no daemon to ask for a loaded skill: ", "and the daemon has no skill of that name"
	for _, tt := range []struct {
		name   string
		daemon bool
		args   []string
		code   int
		stdout string
		stderr []string
	}{
		{"a name first", true, []string{"nope", clean, "loaded"}, 127, "2 valid", []string{"validate nope: no such folder, " + noSkill}},
		{"two names", true, []string{"nope", "loaded", "other"}, 127, "1 valid", []string{"validate nope: ", "validate other: "}},
		{"a folder first", true, []string{"./nope", clean}, 127, "1 valid", []string{"validate ./nope: no such folder"}},
		{"missing counts more than errors", true, []string{broken, "nope"}, 127, "0 valid", []string{"nope"}},
		{"a namespace", true, []string{"team/loaded", "team/nope", "other/loaded"}, 127, "1 valid",
			[]string{"validate team/nope: no such folder, " + noSkill, "validate other/loaded: no such folder, " + noSkill}},
		{"a folder like a namespace", false, []string{"team/clean"}, 0, "1 valid", nil},
		{"errors later", true, []string{"nope", broken}, 127, "0 valid", []string{"nope"}},
		{"no daemon", false, []string{"nope", clean}, 127, "1 valid", []string{"validate nope: no such folder, " + noDaemon}},
		{"a dangling link", false, []string{"dangling"}, 127, "0 valid", []string{"validate dangling: a link to nowhere, which is not there, " + noDaemon}},
		{"a dangling link by its path", false, []string{"./dangling/"}, 127, "0 valid", []string{"validate ./dangling/: a link to nowhere, which is not there"}},
		{"a link to a folder", false, []string{"clean"}, 0, "1 valid", nil},
		{"a file", false, []string{"file.md"}, 127, "0 valid", []string{"validate file.md: not a folder: name the one that holds SKILL.md, " + noDaemon}},
		{"a file and a daemon", true, []string{"file.md"}, 127, "0 valid", []string{"not a folder: name the one that holds SKILL.md, " + noSkill}},
		{"a file by its path", false, []string{"./file.md"}, 127, "0 valid", []string{"validate ./file.md: not a folder"}},
		{"beneath a file", false, []string{"file.md/x"}, 127, "0 valid", []string{"validate file.md/x: no such folder"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &fake{address: "unix:///nonexistent"}
			if tt.daemon {
				f = &fake{answers: map[string]any{"ValidateSkill": absent}}
			}
			got := f.client(t, nil, append([]string{"validate"}, tt.args...)...)
			valid := fmt.Sprintf("%d valid", strings.Count(got.stdout, ": valid\n"))
			if got.code != tt.code || valid != tt.stdout || strings.Count(got.stderr, "\n") != len(tt.stderr) {
				t.Errorf("got code %d, %s, want %d, %s; stderr %s", got.code, valid, tt.code, tt.stdout, got.stderr)
			}
			for _, want := range tt.stderr {
				if !strings.Contains(got.stderr, want) {
					t.Errorf("got %s, want %s", got.stderr, want)
				}
			}
		})
	}
}
