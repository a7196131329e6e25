package seccomp_test

import (
	"slices"
	"strings"
	"testing"

	libseccomp "github.com/seccomp/libseccomp-golang"
	"github.com/skillrun/skillrun/sandbox/internal/seccomp"
)

// newer are calls that libseccomp 2.5.4 doesn't know by name. It must know all
// other names in seccomp.yaml, so that none is misspelt.
var newer = []string{
	"cachestat", "fchmodat2", "futex_requeue", "futex_wait", "futex_wake", "getxattrat", "listmount", "listxattrat",
	"lsm_get_self_attr", "lsm_list_modules", "lsm_set_self_attr", "map_shadow_stack", "mseal", "removexattrat", "setxattrat",
	"statmount", "uretprobe",
}

func TestPolicyNames(t *testing.T) {
	p, err := seccomp.ParsePolicy()
	if err != nil {
		t.Fatal(err)
	}
	where := map[string]string{}
	note := func(list string, calls ...string) {
		for _, c := range calls {
			if _, err := libseccomp.GetSyscallFromName(c); err != nil && !slices.Contains(newer, c) {
				t.Errorf("%s: unknown call %s", list, c)
			}
			if before, ok := where[c]; ok && before != list {
				t.Errorf("%s stands under %s and under %s", c, before, list)
			}
			where[c] = list
		}
	}
	for _, a := range p.Allow {
		note("allow", a.Calls...)
		if a.Why == "" {
			t.Errorf("allow %v: no reason", a.Calls)
		}
	}
	for _, d := range p.Deny {
		note("deny", d.Calls...)
		if d.Why == "" {
			t.Errorf("deny %v: no reason", d.Calls)
		}
	}
	for list, rules := range map[string][]seccomp.Rule{"allow_when": p.AllowWhen, "pretend_when": p.PretendWhen, "refuse_when": p.RefuseWhen} {
		for _, w := range rules {
			// A call may have rules of all three kinds, if also the default answer.
			if w.Call != "splice" {
				note("one with conditions", w.Call)
			}
			if w.Why == "" || len(w.Args) == 0 && list != "refuse_when" {
				t.Errorf("%s %s: no reason or no condition", list, w.Call)
			}
			if (w.Errno > 0) != (list == "refuse_when") {
				t.Errorf("%s %s: errno %d", list, w.Call, w.Errno)
			}
			for _, a := range w.Args {
				// A condition with neither value would drop the rule silently.
				if (len(a.Value) > 0) == (a.Not != nil) || (a.Mask != 0) != (a.Not == nil) {
					t.Errorf("%s %s: argument %d has not either a mask and values or a not", list, w.Call, a.Index)
				}
			}
		}
	}
	for _, c := range p.Init {
		if where[c] != "deny" {
			t.Errorf("init: %s is not denied to the script", c)
		}
	}
	for _, c := range p.Unknown {
		if where[c] != "" {
			t.Errorf("unknown: %s stands under %s", c, where[c])
		}
	}
}

// Init, the zygote, the fork server and the kernel refuse a filter of more instructions.
func TestFiltersAreSmallEnough(t *testing.T) {
	f, err := seccomp.Compile()
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"init": f.Init, "script": f.Script, "zygote": f.Zygote, "python": f.Python} {
		n := len(b) / seccomp.InstructionSize
		if n == 0 || n > seccomp.MaxInstructions || len(b)%seccomp.InstructionSize != 0 {
			t.Errorf("%s: %d bytes, %d instructions", name, len(b), n)
		}
		t.Logf("%s: %d instructions", name, n)
	}
}

// A policy that can't be compiled is an error, not a weaker filter.
func TestOddPolicies(t *testing.T) {
	was := *seccomp.ScriptText
	defer func() { *seccomp.ScriptText = was }()
	for _, tt := range []struct{ name, text, want string }{
		{"unknown key", "alow: []\n", "seccomp.yaml"},
		{"no YAML", "allow: [", "seccomp.yaml"},
		{"seventh argument", "allow_when: [{call: read, args: [{index: 6, mask: 1, value: 1}]}]\n", "script's filter: read"},
		{"refused with the default", "refuse_when: [{call: read, errno: 38}]\n", "script's filter: read"},
		{"init alone", "deny: [{calls: [mount]}]\ninit: [mount]\nallow_when: [{call: mount, args: [{index: 9, mask: 1, value: 1}]}]\n", "filter: mount"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			*seccomp.ScriptText = []byte(tt.text)
			if _, err := seccomp.Compile(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want it to say %q", err, tt.want)
			}
		})
	}
}
