package main

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/skillrun/skillrun/internal/admission"
	"github.com/skillrun/skillrun/internal/ingress/identity"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/tenant"
)

// writeTenants writes a configuration with files in the directory t.
func writeTenants(t *testing.T, text string, files map[string]string) (path string) {
	t.Helper()
	path = writeConfig(t, text)
	dir := filepath.Join(filepath.Dir(path), "t")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// A tenant that sets nothing gets the daemon's values.
func TestTenantInherits(t *testing.T) {
	path := writeTenants(t, `
shell: true
without_allowed_tools: [scripts, "Bash(ls:*)"]
limits: {default: {memory: 1GiB, cpus: 0.5}, max: {memory: 2GiB, wall_time: 100s}, command_wall_time: 90s}
concurrency: {running: 7, queued: 70, queue_timeout: 7s}
tenants_dir: t
tenants: {acme: {}}
`, map[string]string{"globex.yaml": "", "README": "not a tenant", ".old.yaml": "not: one"})
	c, err := loadConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	all := c.tenantSet().All()
	if len(all) != 2 || all[0].Name != "acme" || all[1].Name != "globex" || c.tenantSet().IsSingle() {
		t.Fatalf("got %v", all)
	}
	for _, got := range all {
		b := c.bounds()
		b.SetBy = "tenant"
		if got.Bounds != b || got.QueueTimeout != 7*time.Second || got.Quota != (admission.Quota{Weight: 1, Running: 7, Queued: 70, CallsPerSecond: float64(50 * runtime.NumCPU())}) {
			t.Errorf("got %+v", got)
		}
		if p := got.Policy; !p.Network.None() || !p.Shell || p.NoCode || !p.Unlisted.Scripts || len(p.Unlisted.Rules) != 1 {
			t.Errorf("policy: got %+v", p)
		}
		if got.Runtimes != nil || got.Images != nil || !got.SeesShared("a/b") || got.Cgroup != (tenant.Cgroup{}) {
			t.Errorf("got %+v", got)
		}
	}
}

func TestTenantKeys(t *testing.T) {
	path := writeTenants(t, "tenants_dir: t\nshell: true\nstate_dir: state\n", map[string]string{"acme.yaml": `
callers: [{caller: "uid:1000", role: invoke}, {caller: "gid:7", role: admin}]
skills: [../own, {path: /srv/x, namespace: x, recursive: true}]
shared_skills: [pdf, "team/*"]
policy: {shell: false, code: false, without_allowed_tools: nothing, runtimes: [python], images: [host], skill_sources: ["*.example.com"]}
limits: {default: {wall_time: 10s}, max: {memory: 256MiB, processes: 10, cpus: 2}}
quotas: {weight: 3, starts_per_second: 2.5, burst: 5, calls_per_second: 30, running: 2, queued: 3, queue_timeout: 4s, memory: 1GiB, cpus: 4, streams: 6, state_bytes: 1MiB, skill_bytes: 2MiB, skill_versions: 8, sessions: 9, session_bytes: 3MiB}
cgroup: {memory: 2GiB, processes: 100, cpu_weight: 50}
`})
	c, err := loadConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(path)
	got, _ := c.tenantSet().Get("acme")
	want := &tenant.Tenant{
		Name: "acme", Runtimes: []string{"python"}, Images: []string{"host"}, Bounds: c.bounds(),
		Quota:        admission.Quota{Weight: 3, Running: 2, Queued: 3, StartsPerSecond: 2.5, Burst: 5, CallsPerSecond: 30, Resources: admission.Resources{MemoryBytes: 1 << 30, MilliCPUs: 4000}},
		QueueTimeout: 4 * time.Second, Streams: 6, StateBytes: 1 << 20, SkillBytes: 2 << 20, SkillVersions: 8, Sessions: 9, SessionBytes: 3 << 20,
		SharedSkills: []string{"pdf", "team/*"}, SkillSources: []string{"*.example.com"},
		Cgroup: tenant.Cgroup{MemoryBytes: 2 << 30, Processes: 100, CPUWeight: 50},
	}
	want.Policy.NoCode = true
	want.Bounds.SetBy = "tenant"
	want.Bounds.Max.MemoryBytes, want.Bounds.Max.Processes, want.Bounds.Max.MilliCPUs = 256<<20, 10, 2000
	want.Bounds.Default.Wall = 10 * time.Second
	want.Bounds.Default.MemoryBytes, want.Bounds.Default.Processes = 256<<20, 10 // at most the tenant's maximum
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got := privateRoots(c.loaded); !reflect.DeepEqual(got["acme"], []skill.Root{{Dir: dir + "/own", NoLinks: true}, {Dir: "/srv/x", Namespace: "x", Recursive: true, NoLinks: true}}) {
		t.Errorf("got %v", got)
	}
	rows := c.identity(nil).Rows
	if !reflect.DeepEqual(rows, []identity.Row{{Caller: "uid:1000", Tenant: "acme", Role: identity.Invoke}, {Caller: "gid:7", Tenant: "acme", Role: identity.Admin}}) {
		t.Errorf("got %+v", rows)
	}
}

// Each mistake of a tenant has its place, its key and a remedy.
func TestTenantErrorsSayWhereAndWhat(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"unknown key", "quotas: {runing: 3}", "line 1: quotas.runing: unknown key; did you mean running?"},
		{"not a number", "quotas:\n  weight: heavy\n", `line 2: quotas.weight: "heavy" is not a whole number`},
		{"no list", "callers: 5", `line 1: callers: "5" is not a list`},
		{"no caller", "callers: [{caller: bob, role: read}]", `line 1: callers[0].caller: "bob" is no caller; write uid:N`},
		{"no role", "callers: [{caller: 'uid:1'}]", "line 1: callers[0].role: is not set; write read, invoke or admin"},
		{"an operator", "callers: [{caller: 'uid:1', role: operator}]", "line 1: callers[0].role: operator is a role for the whole daemon; write read, invoke or admin, or add the caller to identity.callers"},
		{"twice", "callers: [{caller: 'uid:1', role: read}, {caller: 'uid:1', role: admin}]", "line 1: callers[1].caller: uid:1 is listed twice; remove one of the two"},
		{"a subject without authority", "callers: [{caller: 'subject:CN=a', role: read}]", "identity.authorities is not set"},
		{"root", "callers: [{caller: 'uid:0', role: read}]", "line 1: callers[0].caller: uid:0 is the daemon's operator, whom a tenant's file can't take; add the row to identity.callers or to tenants"},
		{"an ID of another tenant", "callers: [{caller: 'spiffe://e.org/a/agent', role: read}]", "line 1: callers[0].caller: spiffe://e.org/a/agent overlaps with spiffe://e.org/a/* of tenant a; give each tenant IDs that nobody else has"},
		{"IDs of another tenant", "callers: [{caller: 'spiffe://e.org/a/x/*', role: read}]", "spiffe://e.org/a/x/* overlaps with spiffe://e.org/a/* of tenant a"},
		{"all IDs of a domain", "callers: [{caller: 'spiffe://e.org/*', role: read}]", "spiffe://e.org/* overlaps with spiffe://e.org/a/admin of tenant a"},
		{"an ID of the daemon's rows", "callers: [{caller: 'spiffe://e.org/ops/*', role: read}]", "spiffe://e.org/ops/* overlaps with spiffe://e.org/ops/root of identity.callers[1]"},
		{"the daemon's row", "callers: [{caller: 'uid:7', role: read}]", "line 1: callers[0].caller: uid:7 belongs to identity.callers[0] already; remove one of the two"},
		{"the caller of another tenant", "callers: [{caller: 'uid:8', role: read}]", "line 1: callers[0].caller: uid:8 belongs to tenant a already; remove one of the two"},
		{"a folder of another tenant", "skills: [/srv/a]", "line 1: skills[0]: /srv/a shares files with skills[0] of tenant a, /srv/a; give each tenant folders that nobody else has"},
		{"a folder in one of another tenant", "skills: [/srv/a/b/c]", "/srv/a/b/c shares files with skills[0] of tenant a, /srv/a"},
		{"a folder above one of another tenant", "skills: [/srv/x, /srv]", "line 1: skills[1]: /srv shares files with skills[0] of tenant a"},
		{"a shared folder", "skills: [/shared/.]", "/shared shares files with the daemon's skills[0]"},
		{"a folder of the daemon", "skills: [../state/snapshots]", "which belongs to the daemon; write a folder outside of it"},
		{"a folder above the daemon's", "skills: [{path: .., recursive: true}]", "shares files with state_dir"},
		{"an empty folder", "skills: ['']", "line 1: skills[0].path: is empty"},
		{"a namespace", "skills: [{path: /x, namespace: A B}]", `line 1: skills[0].namespace: "A B" is not a namespace`},
		{"a pattern", "shared_skills: ['[']", `line 1: shared_skills[0]: "[" is not a pattern of names; write names such as pdf, team/* or *`},
		{"a network", "policy: {network: bridge}", `line 1: policy.network: "bridge" is not a mapping; write none, or {allow: [public]}`},
		{"a wider network", "policy: {network: {}}", "line 1: policy.network: rules are wider than the daemon's network, none"},
		{"a wider shell", "policy: {shell: true}", "line 1: policy.shell: true is wider than the daemon's shell, false"},
		{"wider command lines", `policy: {without_allowed_tools: [scripts, "Bash(ls:*)"]}`, `line 1: policy.without_allowed_tools[1]: "Bash(ls:*)" is wider than the daemon's without_allowed_tools`},
		{"no rule", "policy: {without_allowed_tools: [Baash]}", "line 1: policy.without_allowed_tools[0]: "},
		{"a source of skills", "policy: {skill_sources: ['[']}", `line 1: policy.skill_sources[0]: "[" is not a pattern; write a host such as skills.example.com`},
		{"a language", "policy: {runtimes: [lua]}", `line 1: policy.runtimes[0]: "lua" is unknown; write python, bash`},
		{"an image", "policy: {images: [host, data]}", `line 1: policy.images[1]: "data" is not a root file system of the daemon's runtimes; write host`},
		{"a limit above the daemon's", "limits: {max: {memory: 5GiB}}", "line 1: limits.max.memory: 5GiB is above the daemon's limits.max.memory, 4GiB; lower it"},
		{"processors above the daemon's", "limits: {max: {cpus: 3}}", "line 1: limits.max.cpus: 3 is above the daemon's limits.max.cpus, 2; lower it"},
		{"no limit of processors", "limits: {max: {cpus: 0}}", "line 1: limits.max.cpus: 0 is above the daemon's limits.max.cpus, 2; lower it"},
		{"a default above the maximum", "limits: {default: {memory: 2GiB}, max: {memory: 1GiB}}", "line 1: limits.default.memory: 2GiB is above limits.max.memory, 1GiB"},
		{"a default of nothing", "limits: {default: {processes: 0}}", "line 1: limits.default.processes: 0; must be more than 0"},
		{"a small default", "limits: {default: {memory: 1MiB}}", "is too small to start a sandbox"},
		{"more running than the daemon", "quotas: {running: 11}", "line 1: quotas.running: 11; must be 1 to 10, the daemon's concurrency.running"},
		{"nothing running", "quotas: {running: 0}", "line 1: quotas.running: 0; must be 1 to 10"},
		{"a longer queue than the daemon", "quotas: {queued: 1001}", "line 1: quotas.queued: 1001; must be 0 to 1000, the daemon's concurrency.queued"},
		{"no time in the queue", "quotas: {queue_timeout: 0s}", "line 1: quotas.queue_timeout: 0s; must be more than 0s and at most 10m0s"},
		{"no weight", "quotas: {weight: 0}", "line 1: quotas.weight: 0; must be 1 to 10000"},
		{"a negative rate", "quotas: {starts_per_second: -1}", `line 1: quotas.starts_per_second: "-1" is not a number in a second; write 0.001 to 1000000, or 0 for no limit`},
		{"not a rate", "quotas: {starts_per_second: .nan}", "is not a number in a second"},
		{"a negative rate of calls", "quotas: {calls_per_second: -1}", `line 1: quotas.calls_per_second: "-1" is not a number in a second; write 0.001 to 1000000, or 0 for no limit`},
		{"a burst alone", "quotas: {burst: 5}", "line 1: quotas.burst: 5, but quotas.starts_per_second is not set"},
		{"negative streams", "quotas: {streams: -1}", "line 1: quotas.streams: -1 is negative; write 0 or more"},
		{"memory for nothing", "quotas: {memory: 256MiB}", "line 1: quotas.memory: 256MiB is less than one execution gets by default (limits.default.memory), 512MiB"},
		{"processors for nothing", "quotas: {cpus: 0.5}", "line 1: quotas.cpus: 0.5 is less than one execution counts by default (limits.default.cpus), 2"},
		{"more memory than the daemon", "quotas: {memory: 9GiB}", "line 1: quotas.memory: 9GiB is above the daemon's concurrency.memory, 8GiB; lower it"},
		{"more state than the daemon", "quotas: {state_bytes: 11GiB}", "line 1: quotas.state_bytes: 11GiB is above the daemon's retention.bytes, 10GiB; lower it"},
		{"a small cgroup", "cgroup: {memory: 1MiB, processes: 3}", "line 1: cgroup.memory: 1MiB is less than one execution gets by default"},
		{"a cgroup of few processes", "cgroup: {processes: 3}", "line 1: cgroup.processes: 3 are less than one execution gets by default (limits.default.processes, its program and an init), 66"},
		{"a heavy cgroup", "cgroup: {cpu_weight: 10001}", "line 1: cgroup.cpu_weight: 10001; must be 0 to 10000"},
		{"not YAML", "callers: [", "line 1: "},
		{"two documents", "{}\n---\n{}\n", "more than one document"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := writeTenants(t, `
state_dir: state
skills: [/shared]
concurrency: {running: 10, memory: 8GiB}
limits: {max: {cpus: 2}}
identity: {callers: [{caller: "uid:7", tenant: a, role: read}, {caller: "spiffe://e.org/ops/root", tenant: a, role: operator}], spiffe: {e.org: ca.pem}}
tenants_dir: t
`, map[string]string{"a.yaml": "callers: [{caller: 'uid:8', role: read}, {caller: 'spiffe://e.org/a/*', role: read}, {caller: 'spiffe://e.org/a/admin', role: admin}]\nskills: [/srv/a]\n", "b.yaml": tt.text})
			_, err := loadConfig(path)
			if err == nil {
				t.Fatal("it is accepted")
			}
			file := filepath.Join(filepath.Dir(path), "t/b.yaml")
			if !strings.HasPrefix(err.Error(), "config "+file+": ") || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v\nwant %s", err, tt.want)
			}
		})
	}
}

// The mistakes of all files are reported together, each with its file.
func TestTenantErrorsAreReportedTogether(t *testing.T) {
	path := writeTenants(t, `grace: -1s
identity:
  callers:
    - {caller: "uid:1", tenant: nobody, role: read}
    - {caller: "uid:0", tenant: default, role: operator}
  issuers: [{issuer: "https://example.org", audience: a, tenant_claim: t, tenants: [acme, globex], role: read}]
tenants_dir: t
tenants:
  acme:
    quotas: {running: 0, queues: 3}
  Acme_2: {}
  twice: {}
`, map[string]string{"twice.yaml": "", "bad.yaml": "skills: 5\n", "No Name.yaml": "{}"})
	if err := os.Mkdir(filepath.Join(filepath.Dir(path), "t/folder.yaml"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := loadConfig(path)
	if err == nil {
		t.Fatal("it is accepted")
	}
	dir := filepath.Dir(path)
	want := `config ` + path + `: 4 errors
  line 1: grace: -1s is negative; write 0 or more
  line 10: tenants.acme.quotas.queues: unknown key; did you mean queued?
  line 10: tenants.acme.quotas.running: 0; must be 1 to ` + number(defaultConfig().Concurrency.Running).String() + `, the daemon's concurrency.running
  line 11: tenants.Acme_2: "Acme_2" is not a name of a tenant; write up to 64 of a-z, 0-9 and '-', with no '-' at an end
config ` + dir + `/t/No Name.yaml: "No Name" is not a name of a tenant; write up to 64 of a-z, 0-9 and '-', with no '-' at an end
config ` + dir + `/t/bad.yaml: line 1: skills: "5" is not a list; write [a, b]
config ` + dir + `/t/folder.yaml: is not a file; write a file with the keys of a tenant
config ` + dir + `/t/twice.yaml: the tenant twice is in tenants of ` + path + ` already; remove one of the two`
	if err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
	if _, err := loadConfig(writeConfig(t, "tenants_dir: none\n")); err == nil || !strings.Contains(err.Error(), "line 1: tenants_dir: open ") {
		t.Errorf("got %v", err)
	}
}

// An operator removes a tenant by its file. If identity still names it, the configuration is valid, with a warning: the
// next daemon must start.
func TestIdentityNamesRemovedTenants(t *testing.T) {
	path := writeTenants(t, `identity:
  callers:
    - {caller: "uid:1", tenant: nobody, role: read}
    - {caller: "uid:2", tenant: acme, role: read}
    - {caller: "uid:0", tenant: default, role: operator}
  issuers:
    - {issuer: "https://example.org", audience: a, tenant_claim: t, tenants: [acme, globex], role: read}
    - {issuer: "https://example.net", audience: a, tenant: gone, role: read}
tenants_dir: t
`, map[string]string{"acme.yaml": ""})
	c, found, err := readConfig(path)
	if err := errors.Join(err, found.err()); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	c.printWarnings(&out, found)
	const why = " is not configured, so its credentials are refused; remove the name, or configure the tenant\n"
	warning := "skillrund: warning: config " + path + ": line "
	want := warning + "3: identity.callers[0].tenant: the tenant nobody" + why +
		warning + "7: identity.issuers[0].tenants[1]: the tenant globex" + why +
		warning + "8: identity.issuers[1].tenant: the tenant gone" + why
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
	// Without configured tenants, identity may name any.
	c, _, err = readConfig(writeConfig(t, "identity: {callers: [{caller: 'uid:1', tenant: nobody, role: read}]}\n"))
	if list := c.unknownTenants(c.configured); err != nil || len(list) > 0 {
		t.Errorf("got %v, %v", list, err)
	}
}

// --check looks at the folders of each tenant.
func TestInspectLooksAtTenants(t *testing.T) {
	path := writeTenants(t, "tenants_dir: t\ntenants:\n  b: {skills: [gone]}\n", map[string]string{"a.yaml": "\nskills: [gone]\n"})
	c, found, err := readConfig(path)
	if err != nil || found.err() != nil {
		t.Fatal(err, found.err())
	}
	c.inspect(t.Context(), "", found.bad)
	dir := filepath.Dir(path)
	for _, want := range []string{
		"config " + dir + "/t/a.yaml: line 2: skills[0]: stat " + dir + "/t/gone: no such file or directory; write the folder that holds the skills",
		"line 3: tenants.b.skills[0]: stat " + dir + "/gone: no such file or directory",
	} {
		if err := found.err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
}

// The folder of a tenant's skills is its path without links, also of a folder that does not exist yet.
func TestRealPath(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "real"), 0o755), os.Symlink("real", filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"": "", "/": "/", dir + "/link": dir + "/real", dir + "/link/": dir + "/real", dir + "/link/new/x": dir + "/real/new/x", dir + "/none": dir + "/none",
	} {
		if got := realPath(path); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
}

// Without configured tenants, the quotas of pushed skills that callers see are those of snapshots, which pushes obey.
func TestQuotasOfPushedSkillsWithoutTenants(t *testing.T) {
	t.Parallel()
	c, err := loadConfig(writeConfig(t, "snapshots:\n  pushed_versions: 3\n  pushed_bytes: 5MiB\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.onlyTenant(); got.SkillVersions != 3 || got.SkillBytes != 5<<20 {
		t.Errorf("got %d versions and %d bytes, want 3 and 5 MiB", got.SkillVersions, got.SkillBytes)
	}
}
