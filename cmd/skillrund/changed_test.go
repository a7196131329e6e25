package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"syscall"
	"testing"
)

// Each key of the configuration says how a change of it takes effect.
func TestEveryKeySaysHowItChanges(t *testing.T) {
	known := map[string]bool{}
	for _, key := range hashedKeys(t, "", reflect.TypeFor[config]()) {
		known[key] = true
		if _, ok := changes[key]; !ok {
			t.Errorf("changes does not have %s; add it to byTakeover, or to the way in which a change of it takes effect", key)
		}
	}
	for key := range changes {
		if !known[key] {
			t.Errorf("changes has %s, which is no key", key)
		}
	}
}

// hashedKeys returns the keys for which inForce.add makes hashes.
func hashedKeys(t *testing.T, key string, in reflect.Type) (keys []string) {
	switch in.Kind() {
	case reflect.Struct:
		own := false
		for i := range in.NumField() {
			if name := in.Field(i).Tag.Get("yaml"); name != "" {
				keys = append(keys, hashedKeys(t, join(key, name), in.Field(i).Type)...)
			} else {
				own = key != ""
			}
		}
		if own {
			keys = append(keys, key)
		}
		return keys
	case reflect.Map:
		key = join(key, "*")
	}
	wantNoPointers(t, key, in)
	return []string{key}
}

// wantNoPointers checks that %#v prints the value and not its address.
func wantNoPointers(t *testing.T, key string, in reflect.Type) {
	switch in.Kind() {
	case reflect.Pointer, reflect.Interface, reflect.Func, reflect.Chan, reflect.UnsafePointer:
		t.Errorf("%s has a %v, whose hash would not be of the value", key, in)
	case reflect.Slice, reflect.Array, reflect.Map:
		wantNoPointers(t, key, in.Elem())
	case reflect.Struct:
		for i := range in.NumField() {
			wantNoPointers(t, key, in.Field(i).Type)
		}
	}
}

func TestChangedKeys(t *testing.T) {
	for _, tt := range []struct {
		name, before, after string
		want                map[change][]string
	}{
		{"nothing", "log: {level: warn}\n", "drain: 30s\nlog:\n  level: warn\n", nil},
		{"a value", "drain: 10s\n", "grace: 1s\n", map[change][]string{byTakeover: {"drain", "grace"}}},
		{"a restart", "", "cgroup_parent: /a\nrun_dir: /r\n", map[change][]string{byRestart: {"cgroup_parent", "run_dir"}}},
		{"a word", "", "network: {}\n", map[change][]string{byTakeover: {"network"}}},
		{"an empty list", "network: {}\n", "network: {allow: }\n", map[change][]string{byTakeover: {"network.allow"}}},
		{"a list", "skills: [/a, /b]\n", "skills: ['/a /b']\n", map[change][]string{byTakeover: {"skills"}}},
		{"entries", "runtimes: {python: a}\nnetwork: {skills: {x.y: none}}\n", "network: {skills: {x.z: none}}\n",
			map[change][]string{byTakeover: {"network.skills.x.y", "network.skills.x.z", "runtimes.python"}}},
		{"tenants", "tenants: {a: {}, b: {}, c: {}}\n", "tenants: {a: {}, b: {shared_skills: [x]}, d: {}}\n",
			map[change][]string{byReload: {"tenants.b", "tenants.c", "tenants.d"}}},
		{"the first tenant", "", "tenants: {a: {}}\n", map[change][]string{byTakeover: {"tenants.a"}}},
		{"the last tenant", "tenants: {a: {}}\n", "", map[change][]string{byTakeover: {"tenants.a"}}},
		// A tenant inherits the daemon's keys only when these are in force.
		{"inherited", "tenants: {a: {}}\n", "tenants: {a: {}}\nshell: true\n", map[change][]string{byTakeover: {"shell"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before, _, err := readConfig(writeConfig(t, "state_dir: /s\n"+tt.before))
			if err != nil {
				t.Fatal(err)
			}
			after, _, err := readConfig(writeConfig(t, "state_dir: /s\n"+tt.after))
			if err != nil {
				t.Fatal(err)
			}
			got := before.inForce([]byte("salt"), before.Tenants).changed(&after)
			if len(got)+len(tt.want) > 0 && !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// Another version of the daemon has other keys, which no one has changed.
func TestKeysOfAnotherVersion(t *testing.T) {
	c := defaultConfig()
	f := c.inForce(nil, nil)
	f.Keys["no_more"] = "1"
	delete(f.Keys, "drain")
	if got := f.changed(&c); len(got) > 0 {
		t.Errorf("got %v", got)
	}
}

// A daemon says which keys of its file have changed: in the log after SIGHUP, and to --check, also for a file that
// the daemon does not read yet. No file has a value.
func TestChangedConfiguration(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	const secret = "https://user:hunter2@packages.invalid/simple"
	d := startDaemonIn(t, dir, withTokens+"environments: {index: '"+secret+"'}\ntenants: {acme: {}}\n")
	path := dir + "/skillrund.yaml"
	written, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	check := func(file, want string) {
		t.Helper()
		out, err := exec.Command(binary(t, "skillrund"), "--config", file, "--check").CombinedOutput()
		if err != nil || string(out) != want {
			t.Errorf("--check: %v, %q, want %q", err, out, want)
		}
	}
	check(path, "")
	info, err := os.Stat(dir + "/state/config.json")
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("config.json: %v, %v, want mode 0600", info.Mode(), err)
	}
	if data, err := os.ReadFile(dir + "/state/config.json"); err != nil || !json.Valid(data) || strings.Contains(string(data), "hunter2") || !strings.Contains(string(data), `"environments.index"`) {
		t.Errorf("config.json: %v, %s", err, data)
	}

	const note = "skillrund: note: differs from the running daemon, in force after "
	changed := strings.ReplaceAll(string(written), "hunter2", "hunter3") + "run_dir: run2\ndrain: 7s\n"
	changed = strings.Replace(changed, "run_dir: run\n", "", 1)
	d.write("next.yaml", strings.Replace(changed, "tenants: {acme: {}}", "tenants: {acme: {quotas: {weight: 2}}}", 1))
	check(dir+"/next.yaml", note+"SIGHUP: tenants.acme\n"+
		note+"a takeover (systemctl reload skillrund, or kill -USR2): drain, environments.index\n"+
		note+"a restart (systemctl restart skillrund): run_dir\n")

	// The daemon watches its file, and reloads changed tenants without a signal.
	d.write("skillrund.yaml", strings.Replace(string(written), "tenants: {acme: {}}", "tenants: {acme: {quotas: {weight: 3}}}", 1))
	d.untilLogged("tenants reloaded")
	until(t, "--check still reports the tenant", func() bool {
		out, _ := exec.Command(binary(t, "skillrund"), "--config", path, "--check").CombinedOutput()
		return len(out) == 0
	})
	// A daemon that has started with tenants keeps the last ones: without any it would refuse every caller.
	d.write("skillrund.yaml", strings.Replace(string(written), "tenants: {acme: {}}\n", "", 1))
	d.untilLogged("the file has no tenants any longer; a takeover (systemctl reload skillrund, or kill -USR2) lets the daemon go on without tenants")
	check(path, note+"a takeover (systemctl reload skillrund, or kill -USR2): tenants.acme\n")
	if d.unknownTenant(d.asTenant(t.Context(), "acme", "read")) {
		t.Error("the caller of the kept tenant is refused")
	}
	if err := os.Rename(dir+"/next.yaml", path); err != nil {
		t.Fatal(err)
	}
	d.cmd.Process.Signal(syscall.SIGHUP)
	d.untilLogged(`keys="drain environments.index" restart_only=run_dir`)
	d.write("skillrund.yaml", string(written)+"drian: 7s\n")
	d.cmd.Process.Signal(syscall.SIGHUP)
	d.untilLogged("the configuration file has mistakes; only its tenants are reloaded")
	if strings.Contains(d.log.String(), "hunter") {
		t.Error("the log has a value")
	}

	// Without a daemon there is nothing to compare.
	d.stop()
	d.write("skillrund.yaml", changed)
	check(path, "")
}
