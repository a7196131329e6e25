package server

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skillrun/skillrun/internal/executor"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// fromEvent turns an event into a message. deduplicated goes into a header. The message shares
// the bytes of an output with the event: release the event after the message was sent.
func fromEvent(e executor.Event, deduplicated bool) *pb.ExecutionEvent {
	m := &pb.ExecutionEvent{ExecutionId: e.ID, Sequence: e.Seq, Time: timestamppb.New(e.Time)}
	switch {
	case e.Header != nil:
		m.Event = &pb.ExecutionEvent_Header{Header: fromHeader(e.Header, deduplicated)}
	case e.Started != nil:
		m.Event = &pb.ExecutionEvent_Started{Started: &pb.ExecutionStarted{
			QueueTime: durationpb.New(e.Started.Queue),
			SetupTime: durationpb.New(e.Started.Setup),
		}}
	case e.Output != nil:
		m.Event = &pb.ExecutionEvent_Output{Output: fromOutput(*e.Output)}
	case e.Denied != nil:
		m.Event = &pb.ExecutionEvent_Denied{Denied: fromDenial(*e.Denied)}
	case e.Outcome != nil:
		m.Event = &pb.ExecutionEvent_Outcome{Outcome: fromOutcome(e.ID, e.Outcome)}
	}
	return m
}

// fromOutput shares o.Data with the message; see fromEvent.
func fromOutput(o executor.Output) *pb.OutputChunk {
	return &pb.OutputChunk{Stream: pb.OutputStream(o.Stream), OffsetBytes: o.Offset, Data: o.Data}
}

// fromHeader: the digest and the limits are the daemon's own values, so only the name needs text.
func fromHeader(h *executor.Header, deduplicated bool) *pb.ExecutionHeader {
	return &pb.ExecutionHeader{
		Skill: text(h.Skill), SkillDigest: h.SkillDigest, Limits: fromLimits(h.Limits), NetworkRules: fromNetwork(h.Network),
		Commands: fromCommands(h.Commands), Deduplicated: deduplicated, Warnings: texts(h.Warnings),
		Session: fromSessionBase(h.Session),
	}
}

// fromCommands makes each argument valid UTF-8. So a header shows an argument with other bytes
// changed; the program gets it unchanged.
func fromCommands(commands [][]string) []*pb.Argv {
	out := make([]*pb.Argv, len(commands))
	for i, args := range commands {
		out[i] = &pb.Argv{Args: texts(args)}
	}
	return out
}

// fromOutcome lists the artifacts that fit into a message. artifact_count counts all of them,
// and ListArtifacts gives the rest in pages.
func fromOutcome(id string, o *executor.Outcome) *pb.ExecutionOutcome {
	room := maxAnswerBytes
	m := &pb.ExecutionOutcome{
		End:      endNumbers[o.End],
		Signal:   o.Signal,
		TimedOut: o.TimedOut,
		Evidence: &pb.ExecutionEvidence{
			OomKillCount: o.Evidence.OOMKills,
			OomScope:     oomScopeNumbers[o.Evidence.OOMScope],
			PidsMaxCount: o.Evidence.PidsMax,
			Deadline:     deadlineNumbers[o.Evidence.Deadline],
			CancelledBy:  text(o.Evidence.CancelledBy),
			CancelReason: text(o.Evidence.CancelReason),
			SetupStep:    text(o.Evidence.SetupStep),
			SetupError:   text(o.Evidence.SetupError),

			NetworkDeniedCount: uint64(o.Evidence.NetworkDenied),
		},
		Usage: &pb.ExecutionUsage{
			CpuUser:         durationpb.New(o.Usage.UserCPU),
			CpuSystem:       durationpb.New(o.Usage.SystemCPU),
			MemoryPeakBytes: uint64(o.Usage.MemoryPeakBytes),
			WallTime:        durationpb.New(o.Usage.Wall),
			QueueTime:       durationpb.New(o.Usage.Queue),
			SetupTime:       durationpb.New(o.Usage.Setup),
			Network:         fromNetworkUsage(o.Usage.Network),
		},
		Stdout:           fromTruncation(o.Stdout),
		Stderr:           fromTruncation(o.Stderr),
		Artifacts:        fromArtifacts(&room, id, o.Artifacts),
		ArtifactCount:    uint64(o.Count),
		ArtifactsRefused: texts(o.Refused),
		SkillDigest:      o.SkillDigest,
		Limits:           fromLimits(o.Limits),
		Advice:           text(o.Advice),
		Session:          fromSessionOutcome(o.Session),
		LearnedRules:     fromLearned(o.Learned),
	}
	// The field is optional in the contract: an absent exit code is not 0.
	if o.ExitCode != nil {
		code := int32(*o.ExitCode)
		m.ExitCode = &code
	}
	return m
}

// fromTruncation converts counts of bytes, which are never negative.
func fromTruncation(t executor.Truncation) *pb.OutputTruncation {
	return &pb.OutputTruncation{
		Truncated: t.Truncated(), DeliveredBytes: uint64(t.DeliveredBytes), TotalBytes: uint64(t.TotalBytes),
	}
}

// fromLimits sets every field but the CPU time and the processors, which may have no
// bound.
func fromLimits(l executor.Limits) *pb.ExecutionLimits {
	m := &pb.ExecutionLimits{
		WallTime:       durationpb.New(l.Wall),
		MemoryBytes:    uint64(l.MemoryBytes),
		Processes:      uint32(l.Processes),
		OutputBytes:    uint64(l.OutputBytes),
		WorkspaceBytes: uint64(l.WorkspaceBytes),
		WorkspaceFiles: uint32(l.WorkspaceFiles),
		OpenFiles:      uint32(l.OpenFiles),
		MilliCpus:      uint32(l.MilliCPUs),
	}
	if l.CPU > 0 {
		m.CpuTime = durationpb.New(l.CPU)
	}
	return m
}

// fromArtifact sets raw_path only for a name that is not UTF-8; path then has replacement
// characters.
func fromArtifact(id string, a executor.Artifact) *pb.Artifact {
	return &pb.Artifact{
		Path: text(a.Path), SizeBytes: uint64(a.SizeBytes), Sha256: a.SHA256, RawPath: a.Raw, Executable: a.Executable,
		Uri: a.URI(id),
	}
}

// fromArtifacts converts as many artifacts of the execution id as fit into room, see fitting.
func fromArtifacts(room *int, id string, list []executor.Artifact) []*pb.Artifact {
	return fitting(room, list, func(a executor.Artifact) *pb.Artifact { return fromArtifact(id, a) })
}

// fromExecution turns an execution into a message. Names and paths come from skills and clients, so
// text makes each of them valid UTF-8. Labels are valid already: they were strings of a message.
func fromExecution(e executor.Execution) *pb.Execution {
	m := &pb.Execution{
		ExecutionId:   e.ID,
		State:         stateNumbers[e.State],
		Skill:         text(e.Header.Skill),
		SkillDigest:   e.Header.SkillDigest,
		SourceKind:    sourceNumbers[e.SourceKind],
		Script:        text(e.Script),
		Labels:        e.Labels,
		CreateTime:    fromTime(e.Created),
		StartTime:     fromTime(e.Started),
		EndTime:       fromTime(e.Ended),
		Limits:        fromLimits(e.Header.Limits),
		NetworkRules:  fromNetwork(e.Header.Network),
		Principal:     text(e.Principal),
		Tenant:        text(e.Tenant),
		LastSequence:  e.LastSeq,
		Request:       fromSummary(e.Request),
		ExpireTime:    fromTime(e.Expires),
		QueuePosition: uint32(e.Position),
	}
	if e.Outcome != nil {
		m.Outcome = fromOutcome(e.ID, e.Outcome)
	}
	return m
}

// fromSummary: the executor has made every text valid UTF-8, except for the working directory.
func fromSummary(s executor.Summary) *pb.RequestSummary {
	return &pb.RequestSummary{
		Command: s.Command, Language: text(s.Language), Args: s.Args, WorkingDirectory: text(s.Dir),
		EnvNames: s.Env, SecretEnvNames: s.SecretEnv, FilePaths: s.Files, Truncated: s.Truncated,
	}
}

// fromTime leaves a time that has not come unset.
func fromTime(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
