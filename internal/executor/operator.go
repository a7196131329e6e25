package executor

import (
	"context"
	"errors"

	"github.com/skillrun/skillrun/internal/audit"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/record"
)

// operatorRule is the rule in the audit log's entry about an operator's call for another tenant.
const operatorRule = "role operator"

// Across returns an operator as a principal of the tenant that has an execution. The audit log has an entry before
// another tenant's execution is seen. If the execution does not exist, the principal is unchanged, so the
// call that follows does not find it. cancels: the call goes on even if the audit log cannot be written, so
// that an operator can always end an execution.
func (x *Executor) Across(ctx context.Context, who permission.Principal, id string, cancels bool) (permission.Principal, error) {
	tenant, err := x.Record.TenantOf(ctx, id)
	if errors.Is(err, record.ErrNotFound) || err == nil && tenant == who.Tenant {
		return who, nil
	}
	if err != nil {
		return who, err
	}
	e := entryOf(ctx, audit.Call, who, id)
	e.Decision, e.Rule, e.Detail = audit.Allowed, operatorRule, "an execution of the tenant "+tenant
	if cancels {
		x.Audit.Note(e)
	} else if err := x.Audit.Write(e); err != nil {
		return who, err
	}
	return permission.Principal{Tenant: tenant, Name: who.Name}, nil
}

// Beyond returns the principal of an operator's list: of the operator's own tenant (empty), of another one, or of all
// tenants ("*"). all reports the last. The audit log has an entry about each list of others.
func (x *Executor) Beyond(ctx context.Context, who permission.Principal, tenant string) (_ permission.Principal, all bool, err error) {
	if tenant == "" || tenant == who.Tenant {
		return who, false, nil
	}
	e := audit.By(ctx, audit.Call, who.Tenant, who.Name)
	e.Decision, e.Rule, e.Detail = audit.Allowed, operatorRule, "executions of the tenant "+tenant
	if tenant == "*" {
		e.Detail, all = "executions of all tenants", true
		tenant = who.Tenant // for the names of skills
	}
	return permission.Principal{Tenant: tenant, Name: who.Name}, all, x.Audit.Write(e)
}
