// Package toolview gives published tool contracts as views over an execution: the
// names, messages and shapes that their callers know. It runs nothing itself and
// decides nothing that the executor decides; a view turns a contract's request
// into an [executor.Request], and the outcome, or the refusal, into the contract's
// result. docs/contracts.md has the promises, one by one.
package toolview

import (
	"log/slog"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/skill"
)

// Config is what a View is made of. Executor and Skills must be set.
type Config struct {
	Executor *executor.Executor
	Skills   *skill.Registry
	// AuditArguments is what the log has of a script's arguments. Empty: AuditOff.
	AuditArguments AuditArguments
	// Log gets what the contracts promise to log. Nil: slog.Default().
	Log *slog.Logger
}

// A View answers calls in the words of the published contracts. Its methods may
// be called at the same time.
type View struct {
	x      *executor.Executor
	skills *skill.Registry
	log    *slog.Logger

	auditMode AuditArguments
}

// New makes a View.
func New(c Config) *View {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return &View{x: c.Executor, skills: c.Skills, log: c.Log, auditMode: c.AuditArguments}
}
