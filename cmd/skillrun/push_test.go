package main

import (
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A refused push names the file or the flag, and never a field of the contract.
func TestPushRefusals(t *testing.T) {
	dir := t.TempDir()
	for _, test := range []struct{ reason, field, message, want string }{
		{"INVALID_REQUEST", "entry.path", `entry.path: "a\\b" has a backslash; separate components by "/"`,
			`"a\\b" has a backslash; separate components by "/" (INVALID_REQUEST)`},
		{"INVALID_REQUEST", "entry.link_target", `entry.link_target: "l": a link has no data`, `"l": a link has no data (INVALID_REQUEST)`},
		{"INVALID_REQUEST", "entry", "entry: the skill has too many files", "the skill has too many files (INVALID_REQUEST)"},
		{"INVALID_REQUEST", "data", `data: 5 bytes of "a" are missing`, `5 bytes of "a" are missing (INVALID_REQUEST)`},
		{"INVALID_REQUEST", "header.size_bytes", "header.size_bytes: 9; a skill has at most 8 bytes", "size in bytes: 9; a skill has at most 8 bytes (INVALID_REQUEST)"},
		{"INVALID_SKILL_NAME", "header.name", "Invalid skill name: 'a/b'.", "--name: Invalid skill name: 'a/b'. (INVALID_SKILL_NAME)"},
	} {
		f := &fake{push: func(*pb.PushSkillHeader) (*pb.PushSkillResponse, error) {
			return nil, refusal(codes.InvalidArgument, test.reason, test.message,
				&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: test.field, Description: "x"}}})
		}}
		got := f.client(t, nil, "push", dir)
		if want := (result{codeRefused, "", "skillrun: push " + dir + ": " + test.want + "\n"}); got != want {
			t.Errorf("got %+v\nwant %+v", got, want)
		}
	}
}

// A version that was removed to make room can be of another skill.
func TestPushRemovesVersions(t *testing.T) {
	f := &fake{push: func(*pb.PushSkillHeader) (*pb.PushSkillResponse, error) {
		return &pb.PushSkillResponse{Name: "demo", Version: &pb.SkillVersion{Digest: demoDigest},
			RemovedVersions: []*pb.RemovedSkillVersion{{Name: "other", Digest: "sha256:ab"}}}, nil
	}}
	want := result{0, "demo@" + demoDigest + " pushed\nremoved other@sha256:ab, to make room\n", ""}
	if got := f.client(t, nil, "push", t.TempDir()); got != want {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// The command that lists the other findings names the folder that was pushed.
func TestPushOfAnInvalidSkill(t *testing.T) {
	dir := t.TempDir()
	f := &fake{push: func(*pb.PushSkillHeader) (*pb.PushSkillResponse, error) {
		return nil, refusal(codes.InvalidArgument, "SKILL_INVALID", "not a valid skill: SKILL.md:2: no name",
			&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "SKILL.md:2", Description: "no name"}}})
	}}
	got := f.client(t, nil, "push", dir)
	want := result{codeRefused, "", "skillrun: SKILL.md:2: no name\nskillrun: push " + dir +
		": not a valid skill: SKILL.md:2: no name (SKILL_INVALID; skillrun validate " + dir + " lists all findings)\n"}
	if got != want {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}
