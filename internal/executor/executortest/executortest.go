// Package executortest gives tests of the daemon's front ends an executor with everything that
// it needs: skills, a record, and sandboxes that the tests of a package share (package hosttest).
package executortest

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/record"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/session"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/skilltest"
	"github.com/skillrun/skillrun/internal/workspace"
	"github.com/skillrun/skillrun/sandbox"
)

// A Config has the parts of a test's executor.
type Config struct {
	Dir      string       // for all state
	Skills   []string     // folders of skills
	Runtimes *runtime.Set // where executions find interpreters
	// Roots are more roots of skills.
	Roots []skill.Root
	// Host makes the sandboxes. Nil is for tests in which no program starts. They need no root.
	Host *sandbox.Host
	// Level is the lowest level of the log.
	Level slog.Level
	// Edit changes the executor's configuration. Nil changes nothing.
	Edit func(*executor.Config)
}

// A Bench is an executor of a test with its parts.
type Bench struct {
	executor.Config
	Executor *executor.Executor
	Logs     *Logs
}

// New makes an executor. It ends with the test, as at the end of a daemon in a hurry: everything
// is cancelled, and no goroutine may be left.
func New(t testing.TB, c Config) *Bench {
	t.Helper()
	b := &Bench{Logs: &Logs{}}
	log := slog.New(slog.NewTextHandler(b.Logs, &slog.HandlerOptions{Level: c.Level}))
	store, err := record.Open(record.Config{Dir: filepath.Join(c.Dir, "record"), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	skills, err := skill.OpenRegistry(t.Context(), skill.RegistryConfig{
		Roots: append(skill.Roots(c.Skills...), c.Roots...), Dir: filepath.Join(c.Dir, "snapshots"), Owner: skilltest.Owner(), Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { skills.Close() })
	sessions, err := session.Open(session.Config{Dir: filepath.Join(c.Dir, "sessions"), Owner: session.Owner(skilltest.Owner()), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sessions.Close() })
	b.Config = executor.Config{
		Sessions: sessions,
		Skills:   skills, Runtimes: c.Runtimes, Record: store, Host: c.Host, Bounds: executor.StandardBounds(),
		StagingDir: filepath.Join(c.Dir, "staging"), Owner: workspace.Owner(skilltest.Owner()), KeyFile: filepath.Join(c.Dir, "request.key"),
		MaxRunning: 4, MaxQueued: 4, QueueTimeout: time.Minute, Grace: 100 * time.Millisecond, CancelGrace: 100 * time.Millisecond,
		Keep: workspace.CollectLimits{Files: 1000, FileBytes: 64 << 20, TotalBytes: 64 << 20}, Log: log,
	}
	if c.Edit != nil {
		c.Edit(&b.Config)
	}
	if b.Executor, err = executor.New(t.Context(), b.Config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Stop)
	return b
}

// Stop cancels every execution and waits for its end. It does not return if a goroutine leaks.
func (b *Bench) Stop() {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	b.Executor.Drain(over, over)
}

// Logs collects the lines of a log. The zero value is empty and ready to use.
type Logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write adds lines.
func (l *Logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *Logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// With returns the lines that contain every one of parts.
func (l *Logs) With(parts ...string) []string {
	return slices.DeleteFunc(slices.Collect(strings.Lines(l.String())), func(line string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) })
	})
}

// Logger returns a logger that writes to l.
func (l *Logs) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }
