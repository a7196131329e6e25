package server

import (
	"context"

	"github.com/skillrun/skillrun/internal/toolview"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// RunPythonScript answers after the script's end. In this contract a refusal is a result with
// error set.
func (c toolCalls) RunPythonScript(ctx context.Context, m *pb.RunPythonScriptRequest) (*pb.RunPythonScriptResponse, error) {
	timeout, err := newLimit("timeout", m.GetTimeout())
	if err != nil {
		return nil, err
	}
	in, err := newFiles(m.GetFiles(), false)
	if err != nil {
		return nil, err
	}
	r, err := c.view.RunPythonScript(ctx, caller(ctx), toolview.PythonScriptCall{
		Skill: m.GetSkillName(), Script: m.GetScript(), Args: m.GetArgs(), Inputs: in, Timeout: timeout,
	}, nil)
	if err := named(ctx, r.ExecutionID, err); err != nil {
		return nil, err
	}
	return fromPythonScriptResult(r), nil
}

// fromPythonScriptResult sets the fields that the contract's object has.
func fromPythonScriptResult(r toolview.PythonScriptResult) *pb.RunPythonScriptResponse {
	m := &pb.RunPythonScriptResponse{}
	if r.Error != "" {
		message := text(r.Error)
		m.Error = &message
	}
	if !r.Ran {
		return m
	}
	name, code := text(r.SkillName), int32(r.Returncode)
	m.Artifacts, m.Warnings = artifactsBeside(r.ExecutionID, r.Artifacts, r.Stdout, r.Stderr), texts(r.Warnings)
	m.SkillName, m.Stdout, m.Stderr, m.Returncode, m.TimedOut = &name, &r.Stdout, &r.Stderr, &code, &r.TimedOut
	return m
}

// RunPython answers after the end of the code, with one text for a model.
func (c toolCalls) RunPython(ctx context.Context, m *pb.RunPythonRequest) (*pb.RunPythonResponse, error) {
	timeout, err := newLimit("timeout", m.GetTimeout())
	if err != nil {
		return nil, err
	}
	in, err := newFiles(m.GetFiles(), false)
	if err != nil {
		return nil, err
	}
	r, err := c.view.RunPython(ctx, caller(ctx), toolview.PythonCall{
		Code: m.GetCode(), ScriptPath: m.GetScriptPath(), WorkingDirectory: m.GetWorkingDirectory(),
		Timeout: timeout, Skill: m.GetSkill(), Args: m.GetArgs(), Inputs: in,
	}, nil)
	if err := named(ctx, r.ExecutionID, err); err != nil {
		return nil, err
	}
	return &pb.RunPythonResponse{
		Text: new(text(r.Text)), Artifacts: artifactsBeside(r.ExecutionID, r.Artifacts, r.Text), Warnings: texts(r.Warnings),
	}, nil
}

// named tells the caller, and the log, the execution of a result or of an error. An empty id
// names nothing. The caller gets the header with an error too: gRPC sends it before the status.
func named(ctx context.Context, id string, err error) error {
	if id == "" {
		return err
	}
	if headerErr := nameExecution(ctx, id); err == nil {
		return headerErr
	}
	return &executionError{id, err}
}
