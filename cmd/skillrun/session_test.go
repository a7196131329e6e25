package main

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/skillrun/skillrun/internal/eventtest"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// Flags may stand before and after SESSION, and after SKILL.
func TestSessionRun(t *testing.T) {
	script := func(use *pb.SessionUse, args ...string) *pb.ExecuteRequest {
		return &pb.ExecuteRequest{Skill: "demo", Source: &pb.ExecuteRequest_Script{Script: "x.py"}, Args: args, Session: use}
	}
	for _, test := range []struct {
		line string
		want *pb.ExecuteRequest
	}{
		{"s1 demo x.py", script(&pb.SessionUse{SessionId: "s1"})},
		{"--at 3 s1 --session-wait demo --commit-failed x.py --at 9", script(&pb.SessionUse{SessionId: "s1", Version: 3, Wait: true, CommitFailed: true}, "--at", "9")},
		{"s1 demo -- true", &pb.ExecuteRequest{Skill: "demo", Source: &pb.ExecuteRequest_Command{Command: "true"}, Session: &pb.SessionUse{SessionId: "s1"}}},
	} {
		t.Run(test.line, func(t *testing.T) {
			var got *pb.ExecuteRequest
			f := &fake{execute: func(r *pb.ExecuteRequest, s eventtest.Server) error {
				got = r
				return newRecord().exit(0).send(s, 0, 0)
			}}
			if r := f.client(t, nil, append([]string{"session", "run"}, strings.Fields(test.line)...)...); r.code != 0 || !proto.Equal(got, test.want) {
				t.Errorf("got %+v\nand %v\nwant %v", r, got, test.want)
			}
		})
	}
	for line, want := range map[string]string{
		"s1":                         "session run needs SESSION and SKILL",
		"s1 --at 1":                  "no SKILL after SESSION",
		"s1 --session s2 demo x.py":  "--session: the argument SESSION names the session already",
		"s1 demo":                    "nothing to run",
		"s1 demo --memory none x.py": "--memory",
	} {
		if r := (&fake{}).client(t, nil, append([]string{"session", "run"}, strings.Fields(line)...)...); r.code != codeFailed || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: got %+v, want %q", line, r, want)
		}
	}
}

func TestSessionCreateAndUpdate(t *testing.T) {
	var got proto.Message
	f := answers("CreateSession", func(r *pb.CreateSessionRequest) (*pb.CreateSessionResponse, error) {
		got = r
		return &pb.CreateSessionResponse{Session: &pb.Session{SessionId: "s1"}}, nil
	})
	f.answers["UpdateSession"] = func(r *pb.UpdateSessionRequest) (*pb.UpdateSessionResponse, error) {
		got = r
		return &pb.UpdateSessionResponse{Session: &pb.Session{SessionId: "s1"}}, nil
	}
	hour := durationpb.New(time.Hour)
	for _, test := range []struct {
		line string
		want proto.Message
	}{
		{"create", &pb.CreateSessionRequest{Labels: map[string]string{}}},
		{"create --max-bytes 10m --max-files 7 --ttl 1h", &pb.CreateSessionRequest{Labels: map[string]string{}, Ttl: hour, MaxBytes: 10 << 20, MaxFiles: 7}},
		{"update s1 --ttl 1h", &pb.UpdateSessionRequest{SessionId: "s1", Ttl: hour}},
		{"update s1 --idle-ttl 0", &pb.UpdateSessionRequest{SessionId: "s1", IdleTtl: &durationpb.Duration{}}},
		{"update s1 --label a=1 --label b=2", &pb.UpdateSessionRequest{SessionId: "s1", Labels: &pb.SessionLabels{Labels: map[string]string{"a": "1", "b": "2"}}}},
		{"update s1 --no-labels", &pb.UpdateSessionRequest{SessionId: "s1", Labels: &pb.SessionLabels{}}},
	} {
		if r := f.client(t, nil, append([]string{"session"}, strings.Fields(test.line)...)...); r.code != 0 || !strings.Contains(r.stdout, "s1") || !proto.Equal(got, test.want) {
			t.Errorf("%s: got %+v and %v, want %v", test.line, r, got, test.want)
		}
	}
	for line, want := range map[string]string{
		"update s1":                         "nothing to change",
		"update s1 --no-labels --label a=1": "leave out --no-labels",
		"update s1 --label a":               "want key=value",
		"create --max-bytes 0":              "want a size above 0",
		"create --max-files 0":              "must be more than 0",
	} {
		if r := f.client(t, nil, append([]string{"session"}, strings.Fields(line)...)...); r.code != codeFailed || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: got %+v, want %q", line, r, want)
		}
	}
}

func TestSessionVersions(t *testing.T) {
	f := answers("ListSessionVersions", func(*pb.ListSessionVersionsRequest) (*pb.ListSessionVersionsResponse, error) {
		return &pb.ListSessionVersionsResponse{Versions: []*pb.SessionVersion{
			{Number: 3, Base: 1, CommittedBy: "execution e1", FileCount: 2, SizeBytes: 2048},
			{Number: 2, Base: 1, CommittedBy: "upload by \x1buid:0"},
		}}, nil
	})
	const want = "VERSION  FROM  FILES  SIZE   CREATED  MADE BY\n" +
		"3        1     2      2 KiB  -        execution e1\n" +
		"2        1     0      0 B    -        upload by \\x1buid:0\n"
	if r := f.client(t, nil, "session", "versions", "s1"); r.code != 0 || r.stdout != want {
		t.Errorf("got %d\n%s\nwant\n%s", r.code, r.stdout, want)
	}
	if r := f.client(t, nil, "session", "versions", "s1", "--json"); strings.Count(r.stdout, "\n") != 2 || !strings.Contains(r.stdout, `"committedBy":"execution e1"`) {
		t.Errorf("--json: got %+v", r)
	}
}

// A copy to a device explains a refusal as a copy to a file does.
func TestSessionCopyToADeviceIsRefused(t *testing.T) {
	const want = `session "s1": not found (SESSION_NOT_FOUND; 'skillrun session ls' lists what there is)` + "\n"
	f := &fake{sessions: missingSessions{}}
	for _, to := range []string{"/dev/null", "-"} {
		got := f.client(t, nil, "session", "cp", "s1:a", to)
		if got.code != codeNotFound || !strings.HasSuffix(got.stderr, want) || strings.Contains(got.stderr, "rpc error") {
			t.Errorf("%s: got %+v, want %q", to, got, want)
		}
	}
}

// missingSessions is the session service of a daemon without sessions.
type missingSessions struct {
	pb.UnimplementedSessionServiceServer
}

func (missingSessions) GetSessionFile(*pb.GetSessionFileRequest, grpc.ServerStreamingServer[pb.GetSessionFileResponse]) error {
	return refusal(codes.NotFound, "SESSION_NOT_FOUND", `session "s1": not found`)
}
