package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/skillrun/skillrun/internal/admission"
	"github.com/skillrun/skillrun/internal/network/policy"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/tenant"
)

// Tenant is the configuration of a tenant.
type Tenant = tenant.Tenant

// UnknownTenantError: the caller's credential names a tenant that is not configured.
type UnknownTenantError struct{ Tenant string }

func (e *UnknownTenantError) Error() string {
	return fmt.Sprintf("the tenant %s of the credential is not configured; add it to tenants in the daemon's configuration, or use another credential", e.Tenant)
}

// tenants returns the configured tenants, or the only tenant of a Config without them.
// Tests of other packages use a Config without tenants; the daemon always sets them.
func (c *Config) tenants() *tenant.Set {
	if c.Tenants != nil {
		return c.Tenants
	}
	return tenant.Single(&tenant.Tenant{
		Name: "default", Policy: c.Policy, Bounds: c.Bounds, QueueTimeout: c.QueueTimeout,
		Quota: admission.Quota{Running: c.MaxRunning, Reserved: c.Reserved, Queued: c.MaxQueued},
	})
}

// maxBlock is for an execution that needs more memory or processors than are free: smaller executions of other tenants
// wait for this time, and may then pass for the same time. Most executions end within 5 s, so the large one then starts.
const maxBlock = 5 * time.Second

// slots returns the bounds of the admission. A single tenant has the reserved slots for its callers;
// otherwise they are for tenants with nothing running.
func (c *Config) slots() admission.Config {
	bounds := admission.Config{Slots: c.MaxRunning, Reserved: c.Reserved, Resources: c.Resources, Capacity: c.Capacity, MaxBlock: maxBlock}
	if c.Tenants == nil || c.Tenants.IsSingle() {
		bounds.Slots, bounds.Reserved = c.MaxRunning+c.Reserved, 0
	}
	return bounds
}

// SetTenants replaces the tenants. A removed tenant gets no new execution; its running and queued ones
// go on. Calls of SetTenants must not overlap.
// Groups and the admission learn of a new tenant before Tenants does: a request that finds the
// tenant must also find its bounds. A tenant goes in the reverse order.
func (x *Executor) SetTenants(list ...*tenant.Tenant) {
	x.purging.Lock()
	defer x.purging.Unlock()
	before := x.Tenants.All()
	x.groups.Lock()
	x.setGroups(list)
	for _, t := range list {
		if old, ok := x.Tenants.Get(t.Name); !ok || old != t {
			x.admission.SetTenant(t.Name, t.Quota)
		}
	}
	x.Tenants.Replace(list...)
	x.groups.Unlock()
	for _, t := range before {
		if _, ok := x.Tenants.Get(t.Name); !ok {
			x.admission.RemoveTenant(t.Name)
			x.removeGroup(t.Name)
		}
	}
}

// Use is the use of a tenant's quotas of executions and calls. Of Burst starts at once, Started are used up, and
// of CallBurst calls at once, Called; see [admission.Admission.Starts].
type Use struct {
	admission.Usage
	Burst, Started    int
	CallBurst, Called int
}

// Use returns the use of a tenant's quotas of executions and calls.
func (x *Executor) Use(t *Tenant) Use {
	burst, started := x.admission.Starts(t.Name)
	callBurst, called := x.admission.Calls(t.Name)
	return Use{x.admission.Usage(t.Name), burst, started, callBurst, called}
}

// refusedCallPause is how long the refusal of a call waits. A refusal is also work: a caller that repeats its calls
// without a pause would get a thousand in a second.
const refusedCallPause = 100 * time.Millisecond

// EnterCall counts one call of a caller of a tenant, and waits until it is its turn. It returns a *QuotaError after a
// pause if too many calls wait, and the cause of ctx if ctx ends first. The calls of all protocols count together. A call
// that starts an execution counts only until Execute has accepted it.
func (x *Executor) EnterCall(ctx context.Context, t *Tenant) error {
	if t.Quota.CallsPerSecond == 0 {
		return nil // without a lock
	}
	wait, err := x.admission.Call(t.Name)
	if err != nil {
		wait = refusedCallPause
		if x.Observer != nil {
			x.Observer.CallRefused(t.Name)
		}
	}
	if wait == 0 {
		return nil
	}
	select {
	case <-time.After(wait):
		return err
	case <-ctx.Done():
		return cmp.Or(err, context.Cause(ctx))
	}
}

// Tenant returns the tenant of a caller, or an *UnknownTenantError.
func (x *Executor) Tenant(who permission.Principal) (*tenant.Tenant, error) {
	t, ok := x.Tenants.Get(who.Tenant)
	if !ok {
		return nil, &UnknownTenantError{who.Tenant}
	}
	return t, nil
}

// Check decides whether a caller may run a source of a skill, exactly as Execute does. The error is
// an *UnknownTenantError or an error of [permission.Policy.Check].
func (x *Executor) Check(who permission.Principal, sk *skill.Skill, source permission.Source, network *policy.Config) (permission.Grant, error) {
	t, err := x.Tenant(who)
	if err != nil {
		return permission.Grant{}, err
	}
	return x.check(t, who, sk, source, network)
}

// check is Check for a caller whose tenant is known. It adds two checks that the policy can't make: whether the tenant may
// use the source's interpreter and image, and whether this daemon can make networks.
func (x *Executor) check(t *tenant.Tenant, who permission.Principal, sk *skill.Skill, source permission.Source, network *policy.Config) (permission.Grant, error) {
	grant, err := t.Policy.Check(who, sk, source, network)
	if bad, ok := errors.AsType[*permission.NetworkRequestError](err); ok {
		return permission.Grant{}, &RequestError{"network_rules." + bad.List, strings.ReplaceAll(bad.Error(), "\n", "; ")}
	}
	if err != nil {
		return permission.Grant{}, err
	}
	if reason := x.refusesRuntime(t, grant); reason != "" {
		return permission.Grant{}, &permission.Denied{Command: source.Command, Reason: reason}
	}
	if grant.Network() != nil && x.Networks == nil {
		return permission.Grant{}, errors.New("the policy grants a network, and the daemon has none")
	}
	return grant, nil
}

// refusesRuntime returns why a tenant may not use the interpreters or the image of an approved source,
// or "". If the source can't be started at all, newExecution has the error.
// A tenant without lists may use everything, so it pays nothing for the check. The invocation is
// computed again for the execution.
func (x *Executor) refusesRuntime(t *tenant.Tenant, grant permission.Grant) string {
	if t.Runtimes == nil && t.Images == nil {
		return ""
	}
	how, err := invoke(x.Runtimes, grant)
	if err != nil {
		return ""
	}
	languages := []string{how.Language}
	if grant.Source().Kind == permission.Command {
		languages = nil
		for _, program := range programsOf(planOf(grant)) {
			languages = append(languages, runtime.LanguageOf(path.Base(program)))
		}
	}
	for _, language := range languages {
		if language != "" && t.Runtimes != nil && !slices.Contains(t.Runtimes, language) {
			return fmt.Sprintf("the policy of tenant %s has no runtime %s; its runtimes are %s", t.Name, language, listed(t.Runtimes))
		}
	}
	image := how.Image.Name
	if image == "" {
		image = tenant.HostImage
	}
	if t.Images != nil && !slices.Contains(t.Images, image) {
		return fmt.Sprintf("the policy of tenant %s has no image %s, in which this runs; its images are %s", t.Name, image, listed(t.Images))
	}
	return ""
}

func listed(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// observed returns the name of a tenant for the observer. It is empty for a tenant that is not
// configured, and without configured tenants for all names after the first: the observer keeps data for each name.
func (x *Executor) observed(name string) string {
	if _, ok := x.Tenants.Get(name); !ok || x.Tenants.IsSingle() && !x.names.has(name) {
		return ""
	}
	return name
}
