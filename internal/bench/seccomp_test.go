package bench

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"gopkg.in/yaml.v3"
)

// runc gets the same filter as the sandboxes. With SKILLRUN_UPDATE=1 the test writes the
// file.
func TestRuncHasTheSandboxesFilter(t *testing.T) {
	const path = "runc_seccomp.json"
	want := filterForRunc(t, "../../sandbox/internal/seccomp/seccomp.yaml")
	if os.Getenv("SKILLRUN_UPDATE") != "" {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s does not match ../../sandbox/internal/seccomp/seccomp.yaml; SKILLRUN_UPDATE=1 go test -run %s writes it", path, t.Name())
	}
}

func filterForRunc(t *testing.T, path string) []byte {
	t.Helper()
	var profile struct {
		Allow       []struct{ Calls []string }
		AllowWhen   []conditional `yaml:"allow_when"`
		PretendWhen []conditional `yaml:"pretend_when"`
		RefuseWhen  []conditional `yaml:"refuse_when"`
		Deny        []struct{ Calls []string }
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(data, &profile); err != nil {
		t.Fatal(err)
	}
	type m = map[string]any
	var rules []m
	for _, a := range profile.Allow {
		rules = append(rules, m{"names": a.Calls, "action": "SCMP_ACT_ALLOW"})
	}
	for _, c := range profile.AllowWhen {
		for _, args := range c.combinations() {
			rules = append(rules, m{"names": []string{c.Call}, "action": "SCMP_ACT_ALLOW", "args": args})
		}
	}
	for _, c := range append(profile.PretendWhen, profile.RefuseWhen...) {
		for _, args := range c.combinations() {
			rules = append(rules, m{"names": []string{c.Call}, "action": "SCMP_ACT_ERRNO", "errnoRet": c.Errno, "args": args})
		}
	}
	for _, d := range profile.Deny {
		rules = append(rules, m{"names": d.Calls, "action": "SCMP_ACT_ERRNO", "errnoRet": 1})
	}
	const notThere = 38 // ENOSYS
	out, err := json.MarshalIndent(m{"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": notThere, "architectures": []string{}, "syscalls": rules}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return append(out, '\n')
}

type conditional struct {
	Call  string
	Errno int
	Args  []struct {
		Index int
		Mask  uint64
		Value yaml.Node
		Not   *uint64
	}
}

type condition struct {
	Index    int    `json:"index"`
	Value    uint64 `json:"value"`
	ValueTwo uint64 `json:"valueTwo"`
	Op       string `json:"op"`
}

// combinations returns rules with one value each that together equal the condition with
// several values.
func (c conditional) combinations() [][]condition {
	all := [][]condition{{}}
	for _, a := range c.Args {
		var values []uint64
		if a.Value.Decode(&values) != nil {
			values = make([]uint64, 1)
			a.Value.Decode(&values[0])
		}
		var next [][]condition
		for _, before := range all {
			if a.Not != nil {
				next = append(next, append(before[:len(before):len(before)], condition{a.Index, *a.Not, 0, "SCMP_CMP_NE"}))
				continue
			}
			for _, v := range values {
				next = append(next, append(before[:len(before):len(before)], condition{a.Index, a.Mask, v, "SCMP_CMP_MASKED_EQ"}))
			}
		}
		all = next
	}
	return all
}
