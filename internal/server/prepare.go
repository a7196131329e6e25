package server

import (
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// maxBuildChunk bounds how much of a build's output goes into one message.
const maxBuildChunk = 64 << 10

// PrepareSkill sends the output of the builds as it comes, all of it as stderr, and then the
// environments; an empty one if the skill needs no packages. An error of a build is the call's status;
// the output before it stays sent.
func (c skillCalls) PrepareSkill(m *pb.PrepareSkillRequest, stream grpc.ServerStreamingServer[pb.PrepareSkillResponse]) error {
	var offset uint64
	made, err := c.x.Prepare(stream.Context(), caller(stream.Context()), m.GetSkill(), m.GetRebuild(), func(data []byte) error {
		for len(data) > 0 {
			n := min(len(data), maxBuildChunk)
			out := &pb.OutputChunk{Stream: pb.OutputStream_OUTPUT_STREAM_STDERR, OffsetBytes: offset, Data: data[:n]}
			if err := stream.Send(&pb.PrepareSkillResponse{Event: &pb.PrepareSkillResponse_Output{Output: out}}); err != nil {
				return err
			}
			offset += uint64(n)
			data = data[n:]
		}
		return nil
	})
	if err != nil {
		return err
	}
	send := func(env *pb.SkillEnvironment) error {
		return stream.Send(&pb.PrepareSkillResponse{Event: &pb.PrepareSkillResponse_Environment{Environment: env}})
	}
	if len(made) == 0 {
		return send(&pb.SkillEnvironment{})
	}
	for _, env := range made {
		if err := send(&pb.SkillEnvironment{
			Digest: env.Digest, Packages: texts(env.Packages), SizeBytes: uint64(env.SizeBytes), Python: env.Python,
			Reused: env.Reused, BuildTime: durationpb.New(env.BuildTime),
		}); err != nil {
			return err
		}
	}
	return nil
}
