package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	skillrun "github.com/skillrun/skillrun/clients/go"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// sourcesOf returns tenants with callers, as readTenants would.
func sourcesOf(t *testing.T, callers map[string]string) (list []*tenantSource) {
	t.Helper()
	c := defaultConfig()
	for _, name := range slices.Sorted(maps.Keys(callers)) {
		s := &tenantSource{name: name, found: &problems{path: name}}
		text := ""
		for _, caller := range strings.Fields(callers[name]) {
			text += fmt.Sprintf("{caller: %q, role: read}, ", caller)
		}
		s.found.decode([]byte("callers: ["+text+"]"), &s.config)
		s.check(&c, "/")
		list = append(list, s)
	}
	return list
}

// A reload takes every tenant without a mistake. A conflict is a mistake of the tenant that has changed.
func TestChooseVersions(t *testing.T) {
	for _, tt := range []struct {
		name                string
		before, after, want map[string]string
	}{
		{"first", nil, map[string]string{"a": "uid:1"}, map[string]string{"a": "uid:1"}},
		{"removed", map[string]string{"a": "uid:1", "b": ""}, map[string]string{"b": ""}, map[string]string{"b": ""}},
		{"handed over", map[string]string{"a": "uid:1", "b": ""}, map[string]string{"a": "", "b": "uid:1"}, map[string]string{"a": "", "b": "uid:1"}},
		{"taken", map[string]string{"b": "uid:1"}, map[string]string{"a": "uid:1", "b": "uid:1"}, map[string]string{"b": "uid:1"}},
		{"taken by a known one", map[string]string{"a": "uid:2", "b": "uid:1"}, map[string]string{"a": "uid:1", "b": "uid:1"}, map[string]string{"a": "uid:2", "b": "uid:1"}},
		{"bad", map[string]string{"a": "uid:1"}, map[string]string{"a": "bob"}, map[string]string{"a": "uid:1"}},
		{"new and bad", nil, map[string]string{"a": "bob", "b": ""}, map[string]string{"b": ""}},
		// c has a mistake and keeps uid:1. So b can't have it and keeps uid:2, and a can't have that.
		{"one after the other", map[string]string{"a": "uid:3", "b": "uid:2", "c": "uid:1"}, map[string]string{"a": "uid:2", "b": "uid:1", "c": "bob"},
			map[string]string{"a": "uid:3", "b": "uid:2", "c": "uid:1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, inForce := defaultConfig(), map[string]*tenantSource{}
			for _, s := range sourcesOf(t, tt.before) {
				inForce[s.name] = s
			}
			got := map[string]string{}
			for name, s := range chooseVersions(&c, sourcesOf(t, tt.after), inForce) {
				var callers []string
				for _, row := range s.config.Callers {
					callers = append(callers, row.Caller)
				}
				got[name] = strings.Join(callers, " ")
			}
			if !maps.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// write replaces a file as a whole, as an editor does.
func (d *running) write(name, text string) {
	d.t.Helper()
	path := filepath.Join(d.dir, name)
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		d.t.Fatal(err)
	}
}

// unknownTenant reports whether a caller's tenant is not configured.
func (d *running) unknownTenant(ctx context.Context) bool {
	_, err := d.runs.ListExecutions(ctx, &pb.ListExecutionsRequest{PageSize: 1})
	return skillrun.Reason(err) == "TENANT_UNKNOWN"
}

// tenant returns a tenant as an operator sees it, or nil.
func (d *running) tenant(name string) *pb.Tenant {
	d.t.Helper()
	r, err := d.system.ListTenants(d.t.Context(), &pb.ListTenantsRequest{})
	if err != nil {
		d.t.Fatal(err)
	}
	for _, t := range r.Tenants {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// newTenantsDir is newDir with an empty directory for files of tenants.
func newTenantsDir(t *testing.T) string {
	t.Helper()
	dir := newDir(t)
	if err := os.Mkdir(filepath.Join(dir, "tenants"), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// limitOf returns the limit of a quota, and its use.
func limitOf(t *pb.Tenant, key string) (limit, used uint64) {
	for _, q := range t.GetQuotas() {
		if q.Key == key {
			return q.Limit, q.Used
		}
	}
	return 0, 0
}

// Tenants come, change and go by their files, without a restart, and running executions continue. A bad file
// changes nothing, and the operator is told.
func TestTenantsReload(t *testing.T) {
	t.Parallel()
	dir := newTenantsDir(t)
	d := startDaemonIn(t, dir, "identity: {tokens: tokens.json, callers: [{caller: 'uid:4243', tenant: acme, role: read}]}\ntenants_dir: tenants\n")
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	acme, globex := d.asTenant(ctx, "acme", "invoke"), d.asTenant(ctx, "globex", "admin")
	if !d.unknownTenant(acme) {
		t.Error("acme is not configured, and its calls are answered")
	}
	wantWarned := func(want bool) {
		t.Helper()
		r, err := d.system.GetCapabilities(ctx, &pb.GetCapabilitiesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		list := r.ConfigurationWarnings
		if warned := len(list) == 1 && strings.HasPrefix(list[0].Reason, "identity.callers[0].tenant: the tenant acme is not configured"); warned != want || len(list) > 1 {
			t.Errorf("warnings: %v", list)
		}
	}
	wantWarned(true)

	d.write("tenants/acme.yaml", "quotas: {running: 2}\n")
	until(t, "a new file: no effect in time", func() bool { return !d.unknownTenant(acme) })
	wantWarned(false)
	runs := d.begin(acme)
	if limit, used := limitOf(d.tenant("acme"), "running"); limit != 2 || used != 1 {
		t.Errorf("got %d of %d running", used, limit)
	}

	// A quota below the present use.
	d.write("tenants/acme.yaml", "quotas: {running: 1, queued: 0, weight: 5}\n")
	until(t, "a changed file: no effect in time", func() bool { return d.tenant("acme").Weight == 5 })
	wantQuota(t, d.refusalOf(acme, shell("calculator", "true")), "running", 1, "1")

	// A file with mistakes: the former one stays, and the operator gets all of them.
	d.write("tenants/acme.yaml", "quotas: {running: 0}\ncallers: 5\n")
	var found []*pb.TenantProblem
	problems := func(ctx context.Context) []*pb.TenantProblem {
		r, err := d.system.GetCapabilities(ctx, &pb.GetCapabilitiesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return r.TenantProblems
	}
	until(t, "a bad file: no effect in time", func() bool { found = problems(ctx); return len(found) > 0 })
	file := filepath.Join(dir, "tenants/acme.yaml")
	if p := found[0]; len(found) != 1 || p.Tenant != "acme" || p.File != file || !p.Kept ||
		!strings.Contains(p.Reason, "line 1: quotas.running: 0; must be 1 to") || !strings.Contains(p.Reason, `line 2: callers: "5" is not a list`) {
		t.Errorf("got %v", found)
	}
	if got := problems(acme); got != nil {
		t.Errorf("a tenant sees %v", got)
	}
	if d.tenant("acme").Weight != 5 || !strings.Contains(d.log.String(), "tenant not reloaded; its former version stays in force") {
		t.Error("the former version is not in force, or the log does not say so")
	}

	// The caller of another tenant.
	d.write("tenants/globex.yaml", "callers: [{caller: 'uid:4242', role: read}]\n")
	until(t, "another tenant: no effect in time", func() bool { return !d.unknownTenant(globex) })
	d.write("tenants/acme.yaml", "callers: [{caller: 'uid:4242', role: read}]\n")
	until(t, "the same caller: no effect in time", func() bool {
		found = problems(ctx)
		return len(found) == 1 && strings.Contains(found[0].Reason, "callers[0].caller: uid:4242 belongs to tenant globex already; remove one of the two")
	})

	// An admin sees its own tenant only.
	if r, err := d.system.ListTenants(globex, &pb.ListTenantsRequest{}); err != nil || len(r.Tenants) != 1 || r.Tenants[0].Name != "globex" {
		t.Errorf("got %v, %v", r, err)
	}
	_, err := d.system.ListTenants(acme, &pb.ListTenantsRequest{})
	wantReason(t, err, codes.PermissionDenied, "ROLE_REQUIRED", "")
	if b, err := d.system.GetBudget(acme, &pb.GetBudgetRequest{}); err != nil || b.Tenant.GetName() != "acme" {
		t.Errorf("got %v, %v", b, err)
	} else if limit, used := limitOf(b.Tenant, "running"); limit != 1 || used != 1 {
		t.Errorf("got %d of %d running", used, limit)
	}

	// Without its file the tenant gets nothing new. Its execution runs on.
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	until(t, "a removed file: no effect in time", func() bool { return d.unknownTenant(acme) })
	if d.tenant("acme") != nil {
		t.Error("a removed tenant is listed")
	}
	wantWarned(true)
	d.write("tenants/acme.yaml", "")
	until(t, "the file again: no effect in time", func() bool { return !d.unknownTenant(acme) })
	if e, err := d.runs.GetExecution(acme, &pb.GetExecutionRequest{ExecutionId: runs}); err != nil || e.State != pb.ExecutionState_EXECUTION_STATE_RUNNING {
		t.Errorf("got %v, %v", e, err)
	}
	if e, err := d.runs.CancelExecution(acme, &pb.CancelExecutionRequest{ExecutionId: runs}); err != nil {
		t.Errorf("got %v, %v", e, err)
	}

	// SIGHUP reads the main file, too: its tenants only.
	config, err := os.ReadFile(filepath.Join(dir, "skillrund.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	d.write("skillrund.yaml", string(config)+"grace: 5 minutes\ntenants: {initech: {quotas: {weight: 7}}}\n")
	d.cmd.Process.Signal(syscall.SIGHUP)
	until(t, "SIGHUP: no effect in time", func() bool { return d.tenant("initech").GetWeight() == 7 })
	d.write("skillrund.yaml", "tenants: [")
	until(t, "not YAML: no effect in time", func() bool { found = problems(ctx); return len(found) > 0 })
	if p := found[0]; p.Tenant != "" || !p.Kept || d.tenant("initech") == nil || d.tenant("globex") == nil {
		t.Errorf("got %v", found)
	}
}

// Files of tenants and skills that changed while the daemon had no descriptor left are in force soon afterwards, without
// another change.
func TestReloadAfterAMomentWithoutDescriptors(t *testing.T) {
	t.Parallel()
	dir := newTenantsDir(t)
	writeSkill(t, dir, "changing", "", map[string]string{"data": "one"})
	d := startDaemonIn(t, dir, "identity: {tokens: tokens.json}\ntenants_dir: tenants\n")
	d.write("tenants/acme.yaml", "quotas: {weight: 5}\n")
	until(t, "a new file: no effect in time", func() bool { return d.tenant("acme").GetWeight() == 5 })
	acme := d.asTenant(t.Context(), "acme", "invoke")
	digest := func() string {
		sk, err := d.skills.GetSkill(acme, &pb.GetSkillRequest{Skill: "changing"})
		if err != nil {
			t.Fatal(err)
		}
		return sk.Digest
	}
	before := digest()

	var old unix.Rlimit
	if err := unix.Prlimit(d.cmd.Process.Pid, unix.RLIMIT_NOFILE, nil, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Prlimit(d.cmd.Process.Pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Max: old.Max}, nil); err != nil {
		t.Fatal(err)
	}
	d.write("tenants/acme.yaml", "quotas: {weight: 6}\n")
	writeSkill(t, dir, "changing", "", map[string]string{"data": "two"})
	d.untilLogged("tenant not reloaded")
	d.untilLogged("skill not loaded")
	if d.tenant("acme").GetWeight() != 5 || digest() != before {
		t.Error("the former versions are not in force")
	}
	if err := unix.Prlimit(d.cmd.Process.Pid, unix.RLIMIT_NOFILE, &old, nil); err != nil {
		t.Fatal(err)
	}
	until(t, "the tenant has its former version", func() bool { return d.tenant("acme").GetWeight() == 6 })
	until(t, "the skill has its former version", func() bool { return digest() != before })
}

// A thousand tenants come and go while another one works. Each of its executions succeeds.
func TestThousandTenants(t *testing.T) {
	t.Parallel()
	dir := newTenantsDir(t)
	d := startDaemonIn(t, dir, withTokens+"tenants_dir: tenants\ntenants: {steady: {}}\n")
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	steady := d.asTenant(ctx, "steady", "invoke")
	file := func(n int) string { return fmt.Sprintf("tenants/t%d.yaml", n) }
	count := func() int {
		r, err := d.system.ListTenants(ctx, &pb.ListTenantsRequest{PageSize: 300})
		n := len(r.GetTenants())
		for err == nil && r.NextPageToken != "" {
			r, err = d.system.ListTenants(ctx, &pb.ListTenantsRequest{PageSize: 300, PageToken: r.NextPageToken})
			n += len(r.GetTenants())
		}
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	over, rounds := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		defer func() { rounds <- n }()
		for ; ; n++ {
			select {
			case <-over:
				return
			default:
			}
			stream, err := d.runs.Execute(steady, shell("calculator", "echo still here"))
			if err != nil {
				t.Error(err)
				return
			}
			r, err := collect(t, stream, 0, nil)
			if err != nil {
				t.Error(err)
				return
			}
			r.wantStdout(t, "still here\n")
		}
	}()
	const many = 1000
	for n := range many {
		d.write(file(n), fmt.Sprintf("callers: [{caller: 'uid:%d', role: read}]\nquotas: {weight: %d}\n", 5000+n, 1+n%10))
	}
	until(t, "all tenants: no effect in time", func() bool { return count() == many+1 })
	for n := range many {
		if err := os.Remove(filepath.Join(dir, file(n))); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "no other tenant: no effect in time", func() bool { return count() == 1 })
	close(over)
	if n := <-rounds; n == 0 {
		t.Error("no execution ran meanwhile")
	}
}
