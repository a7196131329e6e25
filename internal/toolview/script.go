package toolview

import (
	"context"
	"fmt"
	"time"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/skill"
)

// Bounds of ExecuteScript.
const (
	// MaxScriptTimeout is the published maximum. A skill's own maximum may be lower.
	MaxScriptTimeout = 600 * time.Second
	// MaxScriptOutput bounds each stream of a result, in bytes, because a result is one
	// message.
	MaxScriptOutput = 64 << 20
)

// A ScriptRequest is a call of ScriptExecutor.execute.
type ScriptRequest struct {
	// Skill is a name, or name@sha256:digest.
	Skill string
	// ScriptPath is relative to the skill, or absolute beneath the skill's folder in a
	// sandbox.
	ScriptPath string
	// Arguments is one JSON object as text, for standard input. Empty: {}.
	Arguments string
	// Args are the script's command line arguments.
	Args []string
	Inputs
	// Timeout of zero means the skill's max_execution_time, else the daemon's default.
	Timeout time.Duration
	// MaxOutputSize bounds each stream that the execution keeps, in bytes. 0: the
	// daemon's default.
	MaxOutputSize int64
	// KeepBytes bounds each stream in the result; the execution keeps more. Zero: no
	// bound beyond the execution's.
	KeepBytes int64
}

// A ScriptResult is skillkit's ScriptExecutionResult. The order of the fields is the
// contract's: dumps keeps it.
type ScriptResult struct {
	ExitCode        int     `json:"exit_code"` // -N for signal N, 124 for a timeout
	Stdout          string  `json:"stdout"`
	Stderr          string  `json:"stderr"`
	ExecutionTimeMS float   `json:"execution_time_ms"` // above 0
	ScriptPath      string  `json:"script_path"`       // relative to the skill, links resolved
	Signal          *string `json:"signal"`            // nil: no signal ended it
	SignalNumber    *int    `json:"signal_number"`
	Timeout         bool    `json:"timeout"`
	StdoutTruncated bool    `json:"stdout_truncated"`
	StderrTruncated bool    `json:"stderr_truncated"`
	Success         bool    `json:"success"`  // ExitCode is 0
	Signaled        bool    `json:"signaled"` // Signal is set

	Extras `json:"-"`
}

// ExecuteScript runs a script of a skill with JSON arguments: skillkit's
// ScriptExecutor.execute. Errors that skillkit raises are an *Exception. Any other error
// means that the skill does not exist, the daemon has no room, or the daemon failed. The
// result that comes with an error has the ID of the execution, if one was accepted.
func (v *View) ExecuteScript(ctx context.Context, who permission.Principal, req ScriptRequest, sink Sink) (ScriptResult, error) {
	sk, err := v.skills.For(who.Tenant).Resolve(req.Skill)
	if err != nil {
		return ScriptResult{}, err
	}
	if req.Timeout < 0 || req.Timeout > MaxScriptTimeout {
		return ScriptResult{}, TimeoutOutOfRange(req.Timeout)
	}
	if req.MaxOutputSize < 0 || req.MaxOutputSize > MaxScriptOutput {
		return ScriptResult{}, ofField("max_output_size", "max_output_size must be at least 1 and at most %d bytes, got %d", MaxScriptOutput, req.MaxOutputSize)
	}
	if req.Arguments == "" {
		req.Arguments = "{}"
	}
	// The executor would refuse a bad path too; the contract has exceptions and a log line for
	// it.
	name := sk.Within(req.ScriptPath)
	entry, err := sk.Lookup(name)
	if err != nil {
		return ScriptResult{}, v.refuseScript(ctx, sk, req, err)
	}
	output := req.MaxOutputSize
	if output == 0 {
		if output, err = v.defaultOutput(who, sk); err != nil {
			return ScriptResult{}, err
		}
	}
	r, err := v.run(ctx, executor.Request{
		Principal: who,
		Skill:     sk.Name + "@" + sk.Digest, // the version that was checked
		Source:    permission.Source{Kind: permission.Script, Script: entry.Path},
		Args:      req.Args,
		Stdin:     executor.Stdin{JSON: &req.Arguments},
		Files:     req.Files,
		Resources: req.Resources,
		Session:   req.Session,
		Limits:    executor.Limits{Wall: req.Timeout, OutputBytes: output},
	}, req.KeepBytes, sink)
	if r.id == "" {
		return ScriptResult{}, v.refuseScript(ctx, sk, req, err)
	}
	done := ScriptResult{ScriptPath: entry.Path, Extras: r.extras()}
	a := scriptAudit{log: v.log, run: r, skill: sk.Name, script: entry.Path, arguments: v.auditArguments(req.Arguments)}
	if err == nil {
		err = r.raised()
	}
	if err != nil {
		a.failed(ctx, err)
		return done, err
	}
	done.fill(r)
	a.ended(ctx, done)
	return done, nil
}

// defaultOutput is the default of MaxOutputSize: the daemon's default, at most
// MaxScriptOutput.
func (v *View) defaultOutput(who permission.Principal, sk *skill.Skill) (int64, error) {
	limits, err := v.x.EffectiveLimits(who, executor.Limits{}, permission.Script, sk)
	return min(limits.OutputBytes, MaxScriptOutput), err
}

// fill converts the outcome of a program that ran to the contract's fields.
func (s *ScriptResult) fill(r run) {
	// raised has taken out the ends without an exit code.
	s.ExitCode, s.Timeout = *r.ExitCode, r.TimedOut
	s.StdoutTruncated, s.StderrTruncated = r.stdoutCut(), r.stderrCut()
	s.Stdout = marked(r.stdout, s.StdoutTruncated, "OUTPUT", r.outputLimit())
	s.Stderr = marked(r.stderr, s.StderrTruncated, "STDERR", r.outputLimit())
	switch {
	case s.Timeout:
		s.Stderr += "\nTimeout"
	case r.End == executor.OOMKilled:
		// The contract has no field for this. Without this line the caller would see a
		// SIGKILL without a reason.
		s.Stderr += "\nOut of memory: " + r.why()
	}
	if r.Signal != "" {
		n := -s.ExitCode
		s.Signal, s.SignalNumber = &r.Signal, &n
	}
	s.ExecutionTimeMS = milliseconds(r.Usage.Wall)
	s.Success, s.Signaled = s.ExitCode == 0, s.Signal != nil
}

// milliseconds converts a measured time. A time below the clock's resolution becomes a
// microsecond, because the contract promises a value above 0.
func milliseconds(d time.Duration) float {
	return float(max(d, time.Microsecond).Microseconds()) / 1000
}

// marked returns output as text. If it is truncated, the contract's marker follows the
// last whole character.
func marked(output []byte, truncated bool, stream string, limit int64) string {
	if !truncated {
		return text(output)
	}
	return text(output[:wholeRunes(output)]) + "\n[... " + stream + " TRUNCATED: exceeded " + limitText(limit) + " limit ...]"
}

// limitText prints an output limit for the marker. The contract calls its own limit of 10
// MiB "10MB".
func limitText(limit int64) string {
	if limit >= 1<<20 && limit%(1<<20) == 0 {
		return fmt.Sprintf("%dMB", limit>>20)
	}
	return fmt.Sprintf("%d bytes", limit)
}
