package main

import (
	"log/slog"
	"path/filepath"
	"time"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/session"
	"github.com/skillrun/skillrun/internal/tenant"
	"github.com/skillrun/skillrun/sandbox"
)

// openSessions opens the sessions of all tenants. earlier is the daemon from which this one takes over, or nil.
func (c *config) openSessions(tenants *tenant.Set, earlier *earlierDaemon, log *slog.Logger) (*session.Store, error) {
	return session.Open(session.Config{
		Takeover: earlier != nil, Held: earlier.sessions(),
		Dir: filepath.Join(c.StateDir, "sessions"), Owner: session.Owner{UID: sandbox.ScriptID, GID: sandbox.ScriptID},
		Rules: c.sessionRules(tenants), Log: log,
	})
}

// sessionRules returns the bounds of each tenant. A removed tenant gets no new calls, but its running executions still
// commit, within the daemon's bounds.
func (c *config) sessionRules(tenants *tenant.Set) func(string) session.Rules {
	s := c.Sessions
	return func(name string) session.Rules {
		rules := session.Rules{
			Bytes: int64(s.Bytes), Files: s.Files, Versions: s.Versions, MaxTTL: time.Duration(s.TTL),
			DefaultIdle: time.Duration(s.IdleTTL), Sessions: s.Count, TotalBytes: int64(s.TotalBytes),
		}
		if t, ok := tenants.Get(name); ok {
			rules.Sessions, rules.TotalBytes = t.Sessions, t.SessionBytes
		} else {
			rules.Removed = true
		}
		return rules
	}
}

// sweepSessions removes the sessions whose time is over.
func (d *daemon) sweepSessions() {
	removed, err := d.sessions.Sweep()
	if err != nil && !executor.IsHandedOver(err) {
		d.log.Error("sessions that are over", "err", err)
	}
	if removed > 0 {
		d.log.Info("sessions removed", "removed", removed)
	}
}

// closeSessions may be called without sessions.
func (d *daemon) closeSessions() error {
	if d.sessions == nil {
		return nil
	}
	return d.sessions.Close()
}
