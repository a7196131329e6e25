// Package toolview implements published tool contracts as views over an execution, with the
// names, messages and shapes that callers of these contracts know. It runs nothing itself and
// repeats no decision of the executor. A view converts a contract's request to an
// [executor.Request], and the outcome or the refusal to the contract's result.
// docs/contracts.md lists the promises one by one.
//
// Four contracts run programs: ExecuteScript (script.go), ExecuteCommand (command.go),
// RunPythonScript (python_script.go) and RunPython (run_python.go). All of them go through run
// (run.go), which executes, collects the output and waits for the outcome. The function tools
// for models (table.go, tool_*.go) are a second layer: JSON arguments in, one of these calls, a
// [Result] out.
//
// A failure takes one of three ways, and each contract says which: a result that describes it,
// an [Exception] that the contract names, or an error of the daemon or the executor. The
// function refused (refusal.go) tells a refused request from a daemon that failed.
package toolview

import (
	"log/slog"
	"time"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/skill"
)

// Config is the configuration of a View. Executor and Skills must be set.
type Config struct {
	Executor *executor.Executor
	Skills   *skill.Registry
	// AuditArguments selects how the log shows a script's arguments. Empty: AuditOff.
	AuditArguments AuditArguments
	// SessionIdle is the time after its last use at which a session of files that a tool has made is
	// removed. Zero: no conversation gets one, unless a call asks for a new one; that has the usual time.
	SessionIdle time.Duration
	// Log receives the lines that the contracts promise. Nil: slog.Default().
	Log *slog.Logger
}

// A View answers calls of the published contracts. Its methods may be called
// concurrently.
type View struct {
	// Nothing changes after New, so a View needs no lock.
	x      *executor.Executor
	skills *skill.Registry
	log    *slog.Logger

	auditMode   AuditArguments
	sessionIdle time.Duration
}

// New makes a View.
func New(c Config) *View {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return &View{x: c.Executor, skills: c.Skills, log: c.Log, auditMode: c.AuditArguments, sessionIdle: c.SessionIdle}
}
