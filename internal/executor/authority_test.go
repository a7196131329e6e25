package executor

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/network/policy"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/workspace"
	"github.com/skillrun/skillrun/sandbox"
)

// A grant that approves nothing makes no Spec, whatever the settings say.
func TestNoSpecWithoutAGrant(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("newSpec made a Spec from the zero Grant")
		}
	}()
	newSpec(permission.Grant{}, settings{id: "x", args: []string{"a"}, workspace: &workspace.Workspace{}})
}

// The checked request is the one that runs: a caller who changes the request between the
// check and the start changes nothing of its execution.
func TestRequestChangedAfterTheCheckHasNoEffect(t *testing.T) {
	x := newExecutor(t, t.TempDir(), nil)
	request := func() Request {
		req := scriptRequest("one", "two")
		req.Dir, req.Network = "data", &policy.Config{Allow: []string{"none"}}
		req.Env, req.SecretEnv = map[string]string{"APP_A": "1"}, map[string]Secret{"APP_B": "2"}
		req.Labels = map[string]string{"label": "kept"}
		return req
	}
	sk, err := x.Skills.Resolve("demo")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		source permission.Source
	}{
		{"script", permission.Source{Kind: permission.Script, Script: "scripts/go.py"}},
		{"code", permission.Source{Kind: permission.Code, Code: "print(2)"}},
		{"command", permission.Source{Kind: permission.Command, Command: "python -c 1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := specOf(t, x, request(), tt.source, func(*Request) {})
			got := specOf(t, x, request(), tt.source, func(req *Request) {
				req.Principal = permission.Principal{Tenant: "other", Name: "mallory"}
				req.Skill = "other"
				req.Source = permission.Source{Kind: permission.Code, Code: "evil"}
				req.Network = &policy.Config{Allow: []string{"public"}}
			})
			if !reflect.DeepEqual(got, want) {
				t.Errorf("source, skill or principal changed after the check:\n got %+v\nwant %+v", got, want)
			}
		})
	}
	t.Run("maps and slices", func(t *testing.T) {
		req := request()
		e := newTestExecution(t, x, req, sk.Name, req.Source)
		before := newSpec(e.grant, e.settings)
		req.Args[0] = "evil"
		req.Env["LD_PRELOAD"], req.SecretEnv["APP_B"], req.Labels["label"] = "evil.so", "evil", "evil"
		if after := newSpec(e.grant, e.settings); !reflect.DeepEqual(after, before) || e.labels["label"] != "kept" {
			t.Errorf("got %+v with labels %v,\nwant %+v", after, e.labels, before)
		}
		if slices.ContainsFunc(before.Env, func(v string) bool { return strings.Contains(v, "evil") }) {
			t.Errorf("environment %v", before.Env)
		}
	})
}

// Different principals are different callers of the sandboxes.
func TestCallersOfSandboxes(t *testing.T) {
	seen := map[string]permission.Principal{}
	for _, who := range []permission.Principal{{}, {Tenant: "a", Name: "b"}, {Tenant: "a b"}, {Name: "a b"}, {Tenant: "a\" \"b"}, {Tenant: "a", Name: "uid:1"}, {Tenant: "b", Name: "uid:1"}} {
		caller := callerOf(who)
		if other, ok := seen[caller]; ok {
			t.Errorf("%+v and %+v are both %s", who, other, caller)
		}
		seen[caller] = who
	}
	x := newExecutor(t, t.TempDir(), nil)
	req := scriptRequest()
	e := newTestExecution(t, x, req, req.Skill, req.Source)
	if got, want := newSpec(e.grant, e.settings).Caller, callerOf(req.Principal); got != want {
		t.Errorf("got caller %s, want %s", got, want)
	}
}

// specOf checks a source, changes the rest of the request, and returns the resulting Spec without the
// ID, which always differs.
func specOf(t *testing.T, x *Executor, req Request, source permission.Source, change func(*Request)) sandbox.Spec {
	t.Helper()
	if req.Source = source; source.Kind == permission.Command {
		req.Args = nil
	}
	sk, err := x.Skills.Resolve(req.Skill)
	if err != nil {
		t.Fatal(err)
	}
	grant, err := x.Check(req.Principal, sk, req.Source, req.Network)
	if err != nil {
		t.Fatal(err)
	}
	change(&req)
	e, err := x.newExecution(x.Tenants.All()[0], req, grant)
	if err != nil {
		t.Fatal(err)
	}
	e.workspace = &workspace.Workspace{}
	if got := e.grant.Principal(); got != who {
		t.Errorf("principal %+v, want %+v", got, who)
	}
	spec := newSpec(e.grant, e.settings)
	spec.ID = ""
	return spec
}

func newTestExecution(t *testing.T, x *Executor, req Request, name string, source permission.Source) *execution {
	t.Helper()
	sk, err := x.Skills.Resolve(name)
	if err != nil {
		t.Fatal(err)
	}
	grant, err := x.Check(who, sk, source, nil)
	if err != nil {
		t.Fatal(err)
	}
	e, err := x.newExecution(x.Tenants.All()[0], req, grant)
	if err != nil {
		t.Fatal(err)
	}
	e.workspace = &workspace.Workspace{}
	return e
}

// Each source reaches the Spec through its grant: the request is empty here.
func TestSpecIsMadeOfTheGrant(t *testing.T) {
	x := newExecutor(t, t.TempDir(), nil)
	sources := map[string]permission.Source{
		"script":  {Kind: permission.Script, Script: "scripts/go.py"},
		"code":    {Kind: permission.Code, Code: "print(2)"},
		"command": {Kind: permission.Command, Command: "python -c 1"},
	}
	want := map[string]string{"script": "/workspace/scripts/go.py", "code": "print(2)", "command": "1"}
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		e := newTestExecution(t, x, Request{Principal: who, Skill: "demo"}, "demo", sources[name])
		spec := newSpec(e.grant, e.settings)
		if args := spec.Program[0].Pipeline[0].Args; args[len(args)-1] != want[name] {
			t.Errorf("%s: got %q, want %q at the end", name, args, want[name])
		}
		if spec.Network != nil || spec.Mounts[0].Source != e.grant.Skill().Dir {
			t.Errorf("%s: network %v, mounts %v", name, spec.Network, spec.Mounts)
		}
	}
}
