package server

import (
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/toolview"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// invalid is an error about one field of a request. This package refuses only values that the
// executor's types cannot express. The executor refuses the rest.
func invalid(field, format string, args ...any) error {
	return &executor.RequestError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// newRequest turns a message into a request. The request shares maps and slices with the message
// until the executor accepts it. Of streamed files it sets all but
// the content: see upload.fill. In a call that has no stream they are an error.
func newRequest(who permission.Principal, m *pb.ExecuteRequest, streams bool) (executor.Request, error) {
	r := executor.Request{
		Principal: who,
		Skill:     m.GetSkill(),
		Args:      m.GetArgs(),
		Dir:       m.GetWorkingDirectory(),
		Env:       m.GetEnv(),
		Labels:    m.GetLabels(),
		Key:       m.GetIdempotencyKey(),
		Session:   newSessionUse(m.GetSession()),
	}
	var err error
	if r.Source, err = newSource(m); err != nil {
		return r, err
	}
	if r.Network, err = newNetwork(m.GetNetworkRules()); err != nil {
		return r, err
	}
	if r.Limits, err = newLimits(m.GetLimits()); err != nil {
		return r, err
	}
	if r.QueueTimeout, err = newDuration("queue_timeout", m.GetQueueTimeout()); err != nil {
		return r, err
	}
	if _, ok := pb.OnDisconnect_name[int32(m.GetOnDisconnect())]; !ok {
		return r, invalid("on_disconnect", "%d has no meaning", m.GetOnDisconnect())
	}
	switch in := m.GetStdin().(type) {
	// Neither is set for an empty standard input, and in a call that streams it.
	case *pb.ExecuteRequest_StdinBytes:
		r.Stdin.Bytes = in.StdinBytes
	case *pb.ExecuteRequest_JsonArguments:
		// A pointer, because an empty text is also JSON that was given, and is then refused.
		r.Stdin.JSON = &in.JsonArguments
	}
	// From here on only the type Secret has the values, so a log line can't show them.
	r.SecretEnv = make(map[string]executor.Secret, len(m.GetSecretEnv()))
	for name, value := range m.GetSecretEnv() {
		r.SecretEnv[name] = executor.Secret(value)
	}
	in, err := newFiles(m.GetFiles(), streams)
	r.Files, r.Resources = in.Files, in.Resources
	return r, err
}

// newFiles turns messages into inputs; see newRequest.
func newFiles(list []*pb.InputFile, streams bool) (in toolview.Inputs, err error) {
	for i, f := range list {
		file := executor.Input{Path: f.GetPath(), Executable: f.GetExecutable()}
		switch source := f.GetSource().(type) {
		case *pb.InputFile_Uri:
			in.Resources = append(in.Resources, executor.Resource{Path: file.Path, URI: source.Uri, Executable: file.Executable})
			continue
		case *pb.InputFile_Content:
			file.Content = source.Content
		case *pb.InputFile_Streamed:
			if !streams {
				return in, invalid(fmt.Sprintf("files[%d].streamed", i), "only ExecuteInteractive takes chunks")
			}
		default:
			return in, invalid(fmt.Sprintf("files[%d]", i), "has neither content nor streamed nor uri")
		}
		in.Files = append(in.Files, file)
	}
	return in, nil
}

// newSource checks only that one of the sources is set. Package permission judges the rest.
func newSource(m *pb.ExecuteRequest) (permission.Source, error) {
	switch source := m.GetSource().(type) {
	case *pb.ExecuteRequest_Script:
		return permission.Source{Kind: permission.Script, Script: source.Script}, nil
	case *pb.ExecuteRequest_Code:
		return permission.Source{Kind: permission.Code, Code: source.Code.GetText(), Language: source.Code.GetLanguage()}, nil
	case *pb.ExecuteRequest_Command:
		return permission.Source{Kind: permission.Command, Command: source.Command}, nil
	}
	return permission.Source{}, invalid("source", "set one of script, code and command")
}

// newLimits takes unset for "derive it". A time that is set to zero is an error: the executor
// could not tell it from unset. The numbers have no presence in the contract, so their zero is
// unset.
func newLimits(m *pb.ExecutionLimits) (executor.Limits, error) {
	l := executor.Limits{
		MemoryBytes:    clamp(m.GetMemoryBytes()),
		Processes:      int(m.GetProcesses()),
		OutputBytes:    clamp(m.GetOutputBytes()),
		WorkspaceBytes: clamp(m.GetWorkspaceBytes()),
		WorkspaceFiles: int(m.GetWorkspaceFiles()),
		OpenFiles:      int(m.GetOpenFiles()),
		MilliCPUs:      int(m.GetMilliCpus()),
	}
	var err error
	if l.Wall, err = newLimit("limits.wall_time", m.GetWallTime()); err != nil {
		return l, err
	}
	l.CPU, err = newLimit("limits.cpu_time", m.GetCpuTime())
	return l, err
}

// newLimit is newDuration for a limit, which must be positive if it is set.
func newLimit(field string, m *durationpb.Duration) (time.Duration, error) {
	d, err := newDuration(field, m)
	if err == nil && m != nil && d <= 0 {
		return 0, invalid(field, "must be more than 0; leave it out to get the default")
	}
	return d, err
}

// newDuration returns 0 for nil. It lets negative durations through; the callers refuse them.
func newDuration(field string, m *durationpb.Duration) (time.Duration, error) {
	if m == nil {
		return 0, nil
	}
	if err := m.CheckValid(); err != nil {
		return 0, invalid(field, "not a duration")
	}
	return m.AsDuration(), nil // what doesn't fit becomes the longest there is
}

// clamp makes what no int64 holds the largest one: above every ceiling, too.
func clamp(n uint64) int64 { return int64(min(n, math.MaxInt64)) }
