package server

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/skillrun/skillrun/internal/toolview"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// ExecuteScript answers after the script's end. Its errors are the contract's exceptions, which
// errors.go maps to codes.
func (c toolCalls) ExecuteScript(ctx context.Context, m *pb.ExecuteScriptRequest) (*pb.ExecuteScriptResponse, error) {
	req := toolview.ScriptRequest{
		Skill: m.GetSkill(), ScriptPath: m.GetScriptPath(), Args: m.GetArgs(), MaxOutputSize: clamp(m.GetMaxOutputSize()),
	}
	var err error
	if req.Arguments, err = newArguments(m); err != nil {
		return nil, err
	}
	if req.Timeout, err = newScriptTimeout(m.GetTimeout()); err != nil {
		return nil, err
	}
	if req.Inputs, err = newFiles(m.GetFiles(), false); err != nil {
		return nil, err
	}
	r, err := c.view.ExecuteScript(ctx, caller(ctx), req, nil)
	if err := named(ctx, r.ExecutionID, err); err != nil {
		return nil, err
	}
	return fromScriptResult(r), nil
}

// newArguments returns the arguments as text: the caller's text, or the encoded object.
func newArguments(m *pb.ExecuteScriptRequest) (string, error) {
	if m.GetArguments() == nil {
		return m.GetArgumentsJson(), nil
	}
	if m.GetArgumentsJson() != "" {
		return "", invalid("arguments_json", "not together with arguments")
	}
	encoded, err := m.GetArguments().MarshalJSON()
	if err != nil { // its text varies from build to build
		return "", toolview.Unserializable(errors.New("NaN, an infinite number, or a value that is not set"))
	}
	return string(encoded), nil
}

// newScriptTimeout is newLimit with the error that the published contract names.
func newScriptTimeout(m *durationpb.Duration) (time.Duration, error) {
	d, err := newDuration("timeout", m)
	if err == nil && m != nil && d <= 0 { // zero is unset for the view
		return 0, toolview.TimeoutOutOfRange(d)
	}
	return d, err
}

// fromScriptResult sets fields by pointers, so that an answer also has the fields whose values are
// zero: the contract's object has all of them.
func fromScriptResult(r toolview.ScriptResult) *pb.ExecuteScriptResponse {
	m := &pb.ExecuteScriptResponse{
		ExitCode: new(int32(r.ExitCode)), Stdout: &r.Stdout, Stderr: &r.Stderr, ExecutionTimeMs: new(float64(r.ExecutionTimeMS)),
		ScriptPath: new(text(r.ScriptPath)), Signal: r.Signal, Timeout: &r.Timeout,
		StdoutTruncated: &r.StdoutTruncated, StderrTruncated: &r.StderrTruncated, Success: &r.Success, Signaled: &r.Signaled,
		Artifacts: artifactsBeside(r.ExecutionID, r.Artifacts, r.Stdout, r.Stderr), Warnings: texts(r.Warnings),
	}
	if r.SignalNumber != nil {
		n := int32(*r.SignalNumber)
		m.SignalNumber = &n
	}
	return m
}

// ExecuteCommand answers after the command's end. A command that allowed-tools refuses is a
// result with success false.
func (c toolCalls) ExecuteCommand(ctx context.Context, m *pb.ExecuteCommandRequest) (*pb.ExecuteCommandResponse, error) {
	timeout, err := newLimit("timeout", m.GetTimeout())
	if err != nil {
		return nil, err
	}
	in, err := newFiles(m.GetFiles(), false)
	if err != nil {
		return nil, err
	}
	r, err := c.view.ExecuteCommand(ctx, caller(ctx), toolview.CommandRequest{
		Skill: m.GetSkill(), Command: m.GetCommand(), WorkingDir: m.GetWorkingDir(), Env: m.GetEnv(), Inputs: in, Timeout: timeout,
	}, nil)
	if err := named(ctx, r.ExecutionID, err); err != nil {
		return nil, err
	}
	return fromCommandResult(r), nil
}

// fromCommandResult sets every field of the contract's object; error stays unset if there is
// none.
func fromCommandResult(r toolview.CommandResult) *pb.ExecuteCommandResponse {
	out := &pb.ExecuteCommandResponse{
		Success: &r.Success, ExitCode: new(int32(r.ExitCode)), Stdout: &r.Stdout, Stderr: &r.Stderr,
		ExecutionTime: new(float64(r.ExecutionTime)), Command: new(text(r.Command)),
		Artifacts: artifactsBeside(r.ExecutionID, r.Artifacts, r.Stdout, r.Stderr), Warnings: texts(r.Warnings),
	}
	if r.Error != nil {
		message := text(*r.Error)
		out.Error = &message
	}
	out.Reason, out.MissingRule, out.Instead = unlessEmpty(r.Reason), unlessEmpty(r.MissingRule), unlessEmpty(r.Instead)
	return out
}

// unlessEmpty leaves an empty text unset.
func unlessEmpty(s string) *string {
	if s == "" {
		return nil
	}
	return new(text(s))
}

// ValidateScriptPath runs nothing. It returns the path of a script in a sandbox, or the reason for a
// refusal.
func (c toolCalls) ValidateScriptPath(ctx context.Context, m *pb.ValidateScriptPathRequest) (*pb.ValidateScriptPathResponse, error) {
	path, err := c.view.ValidateScriptPath(ctx, caller(ctx), m.GetSkill(), m.GetScriptPath())
	if err != nil {
		return nil, &fieldError{"script_path", err}
	}
	return &pb.ValidateScriptPathResponse{Path: text(path)}, nil
}
