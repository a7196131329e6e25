// Package toolview implements published tool contracts as views over an execution, with
// the names, messages and shapes that callers of these contracts know. It runs nothing
// itself and repeats no decision of the executor. A view converts a contract's request to
// an [executor.Request], and the outcome or the refusal to the contract's result.
// docs/contracts.md lists the promises one by one.
package toolview

import (
	"log/slog"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/skill"
)

// Config is the configuration of a View. Executor and Skills must be set.
type Config struct {
	Executor *executor.Executor
	Skills   *skill.Registry
	// AuditArguments selects how the log shows a script's arguments. Empty: AuditOff.
	AuditArguments AuditArguments
	// Log receives the lines that the contracts promise. Nil: slog.Default().
	Log *slog.Logger
}

// A View answers calls of the published contracts. Its methods may be called
// concurrently.
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
