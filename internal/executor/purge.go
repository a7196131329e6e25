package executor

import (
	"context"
	"errors"
	"fmt"

	"github.com/skillrun/skillrun/internal/audit"
	"github.com/skillrun/skillrun/internal/environment"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/record"
	"github.com/skillrun/skillrun/internal/session"
	"github.com/skillrun/skillrun/internal/skill"
)

// TenantConfiguredError: the data of a configured tenant is not removed. Single: the daemon has no configured
// tenants, so every credential's tenant may use it.
type TenantConfiguredError struct {
	Tenant string
	Single bool
}

func (e *TenantConfiguredError) Error() string {
	if e.Single {
		return fmt.Sprintf("this daemon has no configured tenants, so callers of tenant %s can use it; configure tenants without %s, and run systemctl reload skillrund (a takeover)", e.Tenant, e.Tenant)
	}
	return fmt.Sprintf("tenant %s is configured; remove it from tenants or tenants_dir first", e.Tenant)
}

// TenantBusyError: something of a removed tenant is under way, so its data is not removed.
type TenantBusyError struct {
	Tenant string
	Reason string
}

func (e *TenantBusyError) Error() string {
	return fmt.Sprintf("tenant %s: %s; try again when it has ended", e.Tenant, e.Reason)
}

// A Purged says what Purge has removed. ExecutionBytes has output, artifacts and records.
type Purged struct {
	Executions, SkillVersions, Environments, Sessions          int
	ExecutionBytes, SkillBytes, EnvironmentBytes, SessionBytes int64
}

// Purge removes all data of a tenant that is not configured: executions, sessions, pushed skills and
// environments.
// The error is a *TenantConfiguredError, a *TenantBusyError, or ours. After an error a part may be removed,
// and Purge can be repeated. The caller must have checked the name.
func (x *Executor) Purge(ctx context.Context, who permission.Principal, name string) (done Purged, err error) {
	entry := entryOf(ctx, audit.Purge, who, "")
	entry.Detail = "tenant " + name
	err = x.audited(entry, func() error {
		done, err = x.purge(ctx, name)
		return err
	})
	if err == nil {
		x.Log.Info("tenant purged", "tenant", name, "principal", who.Name, "executions", done.Executions,
			"skill_versions", done.SkillVersions, "environments", done.Environments, "sessions", done.Sessions,
			"freed_bytes", done.ExecutionBytes+done.SkillBytes+done.EnvironmentBytes+done.SessionBytes)
	}
	return done, err
}

// purge is Purge without its entry. While it holds x.purging the tenant stays removed, so it gets no new
// execution and no new build.
// Records go last, because a record shows the operator that a purge has not finished.
func (x *Executor) purge(ctx context.Context, name string) (done Purged, err error) {
	x.purging.Lock()
	defer x.purging.Unlock()
	if _, ok := x.Tenants.Get(name); ok {
		return done, &TenantConfiguredError{Tenant: name, Single: x.Tenants.IsSingle()}
	}
	if reason := x.underWay(name); reason != "" {
		return done, &TenantBusyError{name, reason}
	}
	if done.SkillVersions, done.SkillBytes, err = x.Skills.Purge(ctx, name); err != nil {
		return done, busyOr(err, name)
	}
	if x.Environments != nil {
		if done.Environments, done.EnvironmentBytes, err = x.Environments.Purge(name); err != nil {
			return done, busyOr(err, name)
		}
	}
	if x.Sessions != nil {
		if done.Sessions, done.SessionBytes, err = x.Sessions.Purge(name); err != nil {
			return done, busyOr(err, name)
		}
	}
	done.Executions, done.ExecutionBytes, err = x.Record.Purge(ctx, name)
	return done, busyOr(err, name)
}

// underWay says what of a removed tenant has not ended, or "". The admission comes first: it has an
// execution until the execution is in x.live.
func (x *Executor) underWay(name string) string {
	use := x.admission.Usage(name)
	live := use.Running + use.Queued
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, r := range x.live {
		if live == 0 && r.grant.Principal().Tenant == name {
			live++
		}
	}
	switch {
	case live > 0:
		return fmt.Sprintf("%d of its executions run or wait", live)
	case x.preparing[name] > 0:
		return "packages of its skills are being built"
	}
	return ""
}

// busyOr turns the error of a package that still uses data of the tenant into a *TenantBusyError.
func busyOr(err error, name string) error {
	switch {
	case errors.Is(err, skill.ErrInUse):
		return &TenantBusyError{name, "one of its skills is in use"}
	case errors.Is(err, environment.ErrInUse):
		return &TenantBusyError{name, "packages of its skills are in use"}
	case errors.Is(err, record.ErrNotEnded):
		return &TenantBusyError{name, "one of its executions has not ended"}
	case errors.Is(err, record.ErrNotAdopted):
		return &TenantBusyError{name, "the earlier daemon of a takeover has not ended"}
	}
	if _, busy := errors.AsType[*session.BusyError](err); busy {
		return &TenantBusyError{name, "one of its sessions is in use"}
	}
	return err
}

// beginPrepare counts a call of Prepare until end is called. Purge refuses to run during such a call.
func (x *Executor) beginPrepare(who permission.Principal) (end func(), err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, err := x.Tenant(who); err != nil {
		return nil, err
	}
	x.preparing[who.Tenant]++
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.preparing[who.Tenant]--; x.preparing[who.Tenant] == 0 {
			delete(x.preparing, who.Tenant)
		}
	}, nil
}
