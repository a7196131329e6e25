package main

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

type prepareServer = grpc.ServerStreamingServer[pb.PrepareSkillResponse]

// preparing answers with the output of a build and its result.
func preparing(env *pb.SkillEnvironment, output ...string) *fake {
	if env == nil {
		return preparingAll(nil, output...)
	}
	return preparingAll([]*pb.SkillEnvironment{env}, output...)
}

// preparingAll answers with several results.
func preparingAll(made []*pb.SkillEnvironment, output ...string) *fake {
	return &fake{prepare: func(_ *pb.PrepareSkillRequest, s prepareServer) error {
		for _, text := range output {
			if err := s.Send(&pb.PrepareSkillResponse{Event: &pb.PrepareSkillResponse_Output{Output: &pb.OutputChunk{Data: []byte(text)}}}); err != nil {
				return err
			}
		}
		for _, env := range made {
			if err := s.Send(&pb.PrepareSkillResponse{Event: &pb.PrepareSkillResponse_Environment{Environment: env}}); err != nil {
				return err
			}
		}
		return nil
	}}
}

func TestPrepare(t *testing.T) {
	built := &pb.SkillEnvironment{Digest: "sha256:ab", Packages: []string{"six==1.16.0", "rich==13.0"}, Python: "system 3.11.2", BuildTime: durationpb.New(1234 * time.Millisecond)}
	for _, test := range []struct {
		name string
		f    *fake
		args []string
		want result
	}{
		{"built", preparing(built, "Collecting six\n", "done\n"), nil,
			result{0, "demo: prepared for Python system 3.11.2, built in 1.23s: sha256:ab\nsix==1.16.0\nrich==13.0\n", "Collecting six\ndone\n"}},
		{"there", preparing(&pb.SkillEnvironment{Digest: "sha256:ab", Python: "system 3.11.2", Reused: true}), nil,
			result{0, "demo: prepared for Python system 3.11.2, was there already: sha256:ab\n", ""}},
		{"Node packages", preparing(&pb.SkillEnvironment{Digest: "sha256:ab", Python: "node 20.20.2", Packages: []string{"left==1.0.0"}, Reused: true}), nil,
			result{0, "demo: prepared for Node.js 20.20.2, was there already: sha256:ab\nleft==1.0.0\n", ""}},
		{"Python and Node", preparingAll([]*pb.SkillEnvironment{built, {Digest: "sha256:cd", Python: "node 20.20.2", Reused: true}}), nil,
			result{0, "demo: prepared for Python system 3.11.2, built in 1.23s: sha256:ab\nsix==1.16.0\nrich==13.0\ndemo: prepared for Node.js 20.20.2, was there already: sha256:cd\n", ""}},
		{"needs none", preparing(&pb.SkillEnvironment{Python: "system 3.11.2"}), nil, result{0, "demo: needs no packages\n", ""}},
		{"no result", preparing(nil), nil, result{125, "", "skillrun: prepare demo: the daemon ended without a result\n"}},
		{"refused", &fake{prepare: func(*pb.PrepareSkillRequest, prepareServer) error {
			return status.Error(codes.FailedPrecondition, "no source of packages")
		}}, nil, result{126, "", "skillrun: prepare demo: no source of packages (FailedPrecondition)\n"}},
		{"no arguments", preparing(built), []string{}, result{125, "", "skillrun: prepare needs SKILL (see 'skillrun prepare --help')\n"}},
	} {
		args := append([]string{"prepare"}, "demo")
		if test.args != nil {
			args = append([]string{"prepare"}, test.args...)
		}
		if got := test.f.client(t, nil, args...); got != test.want {
			t.Errorf("%s: got %+v\nwant %+v", test.name, got, test.want)
		}
	}
	if got := preparing(built, "log").client(t, nil, "prepare", "--json", "demo"); got.code != 0 || !strings.Contains(got.stdout, `"digest":"sha256:ab"`) || got.stderr != "log" {
		t.Errorf("json: got %+v", got)
	}
	var rebuild bool
	f := &fake{prepare: func(r *pb.PrepareSkillRequest, s prepareServer) error { rebuild = r.GetRebuild(); return nil }}
	if f.client(t, nil, "prepare", "--rebuild", "demo"); !rebuild {
		t.Error("--rebuild: got no rebuild asked for")
	}
}
