package admission

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrQueueTime means that no slot became free before the queue timeout.
	ErrQueueTime = errors.New("no slot became free in time")
	// ErrDraining: Close was called, and nothing new is admitted.
	ErrDraining = errors.New("the daemon is draining; ask another one or try again")
	// ErrHandedOver: HandOver was called, and another daemon admits.
	ErrHandedOver = errors.New("executions are handed over to the next daemon; try again")
	// ErrNoTenant: SetTenant was never called for the tenant, or RemoveTenant was.
	ErrNoTenant = errors.New("no such tenant")
)

// A Name names a quota, in words for a caller.
type Name string

// The quotas of a tenant.
const (
	Running    Name = "running executions"
	Queued     Name = "queued executions"
	Memory     Name = "bytes of memory"
	Processors Name = "thousandths of processors"
	Starts     Name = "starts at once"
	Calls      Name = "calls at once"
	Streams    Name = "open streams"                    // package executor counts them
	State      Name = "bytes of executions on the disk" // package record counts them
)

// Key returns the name of a quota in the configuration of tenants: a key of quotas.
func (n Name) Key() string {
	switch n {
	case Running:
		return "running"
	case Queued:
		return "queued"
	case Memory:
		return "memory"
	case Processors:
		return "cpus"
	case Starts:
		return "starts_per_second"
	case Calls:
		return "calls_per_second"
	case Streams:
		return "streams"
	case State:
		return "state_bytes"
	}
	return ""
}

// A QuotaError: the tenant has used up one of its quotas.
type QuotaError struct {
	Quota       Name
	Limit, Used int64 // in the unit that Quota names
	RetryAfter  time.Duration
}

func (e *QuotaError) Error() string {
	return fmt.Sprintf("the quota is used up: %d of %d %s; try again in %s", e.Used, e.Limit, e.Quota, e.RetryAfter.Round(time.Millisecond))
}

// A SaturatedError: the machine has no slot, memory or processors left, and the tenant's queue is full.
// The tenant is within its other quotas.
type SaturatedError struct {
	Queued     int // of this tenant only; it must not learn about other tenants
	RetryAfter time.Duration
}

func (e *SaturatedError) Error() string {
	return fmt.Sprintf("the machine is saturated, and %d of your executions wait; try again in %s", e.Queued, e.RetryAfter.Round(time.Millisecond))
}

// A TooLargeError: an execution that could never start.
type TooLargeError struct {
	Quota        Name
	Asked, Limit int64  // in the unit that Quota names
	SetBy        string // "tenant" or "daemon"
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%d %s are more than the %s's %d", e.Asked, e.Quota, e.SetBy, e.Limit)
}

// tooLarge returns a *TooLargeError if a bound is below what one execution needs.
func tooLarge(need, bound Resources, setBy string) error {
	switch {
	case bound.MemoryBytes > 0 && need.MemoryBytes > bound.MemoryBytes:
		return &TooLargeError{Memory, need.MemoryBytes, bound.MemoryBytes, setBy}
	case bound.MilliCPUs > 0 && need.MilliCPUs > bound.MilliCPUs:
		return &TooLargeError{Processors, need.MilliCPUs, bound.MilliCPUs, setBy}
	}
	return nil
}

// refusal returns the error for a caller whose tenant's queue is full. If the tenant is within its
// other quotas, it waits only for the machine, and the error is a *SaturatedError. a.mu is held.
func (a *Admission) refusal(t *tenant, l *line, now time.Time) error {
	if t.next != nil || t.queued == 0 && t.mayRun(l) {
		return &SaturatedError{Queued: t.queued, RetryAfter: a.retryAfter(t, now)}
	}
	if t.queued == 0 {
		return a.usedUp(t, Running, int64(t.quota.Running), int64(t.running), now)
	}
	return a.usedUp(t, Queued, int64(t.quota.Queued), int64(t.queued), now)
}

// shortage returns the error for a ticket with a slot for which less than need is free. a.mu is held.
func (a *Admission) shortage(t *tenant, need Resources, now time.Time) error {
	q := t.quota
	switch {
	case t.fits(need):
		return &SaturatedError{Queued: t.queued, RetryAfter: a.retryAfter(t, now)}
	case t.fits(Resources{MilliCPUs: need.MilliCPUs}):
		return a.usedUp(t, Memory, q.MemoryBytes, t.used.MemoryBytes, now)
	default:
		return a.usedUp(t, Processors, q.MilliCPUs, t.used.MilliCPUs, now)
	}
}

func (a *Admission) usedUp(t *tenant, quota Name, limit, used int64, now time.Time) error {
	return &QuotaError{Quota: quota, Limit: limit, Used: used, RetryAfter: a.retryAfter(t, now)}
}

func (a *Admission) retryAfter(t *tenant, now time.Time) time.Duration {
	return spread(t.pace.turnAway(now), a.Jitter())
}
