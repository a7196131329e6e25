package sandbox

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skillrun/skillrun/sandbox/internal/pyzygote"
)

// zygotePool is a pool of fake zygotes, which start at once and have no process.
type zygotePool struct {
	*pool
	now time.Time
}

func newZygotePool(size int) *zygotePool {
	return &zygotePool{&pool{pythonZygotes: size, pythons: map[pythonKey]*pythonEntry{}, buckets: map[profile]*bucket{}}, time.Now()}
}

// keyOf returns the key of a Python that needs modules, separated by blanks.
func keyOf(modules string) pythonKey {
	return pythonKey{Key: pyzygote.NewKey("python3", pythonSpec(nil).Env, strings.Fields(modules))}
}

// ask asks for a zygote with modules on behalf of a caller, some seconds after the last
// request. It returns the modules of the zygote that serves the caller, or "" if the program
// is executed.
func (p *zygotePool) ask(caller, modules string) string { return p.askIn("", caller, modules) }

// askIn is ask of a caller of a group.
func (p *zygotePool) askIn(group, caller, modules string) string {
	p.now = p.now.Add(2 * time.Second)
	k := keyOf(modules)
	k.group = group
	at := p.serving(k, caller)
	if own := p.pythons[k]; own != nil {
		own.ask(caller, p.now)
	} else {
		if start, ok := p.choose(k, caller, !at.none(), p.now); ok {
			p.pythons[start] = &pythonEntry{zygote: &pyzygote.Zygote{}, has: start.Imports(), asked: map[string]time.Time{caller: p.now}}
		}
	}
	if r := p.pythons[at]; r != nil {
		r.ask(caller, p.now)
		return strings.Join(at.Modules(), " ")
	}
	return ""
}

// stand lists the zygotes: the modules and the callers of each.
func (p *zygotePool) stand() (all []string) {
	for k, r := range p.pythons {
		users := r.users(p.now)
		slices.Sort(users)
		all = append(all, fmt.Sprintf("%s: %s", strings.Join(k.Modules(), " "), strings.Join(users, " ")))
	}
	slices.Sort(all)
	return all
}

var tenKinds = []string{"csv", "html", "copy", "glob", "json", "math", "random", "shlex", "string", "uuid"}

// A caller that asks for many kinds of zygotes gives up its own, not other callers'.
func TestCallersKeepTheirZygotes(t *testing.T) {
	for _, tt := range []struct {
		name  string
		size  int
		steps string // caller:modules, several times
		want  []string
	}{
		{"another comes", 4, "a:pandas a:numpy " + kindsOf("b") + kindsOf("b"), []string{"numpy: a", "pandas: a"}},
		{"another was first", 4, kindsOf("b") + "a:pandas a:numpy " + kindsOf("b"), []string{"numpy: a", "pandas: a"}},
		{"one of few", 2, "a:pandas " + kindsOf("b") + kindsOf("b"), []string{"pandas: a"}},
		{"three callers", 4, "a:pandas c:sympy " + kindsOf("b") + kindsOf("b"), []string{"pandas: a", "sympy: c"}},
		{"more callers than zygotes", 2, "a:pandas c:sympy " + kindsOf("b"), []string{"pandas: a", "sympy: c"}},
		{"what both use", 2, "a:pandas b:pandas " + kindsOf("b"), []string{"pandas: a b"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newZygotePool(tt.size)
			for _, step := range strings.Fields(tt.steps) {
				caller, modules, _ := strings.Cut(step, ":")
				p.ask(caller, modules)
				p.rest = time.Time{}
				if len(p.pythons) > tt.size {
					t.Fatalf("after %s there are %d zygotes: %q", step, len(p.pythons), p.stand())
				}
			}
			stand := p.stand()
			for _, want := range tt.want {
				if !slices.Contains(stand, want) {
					t.Errorf("got %q, want among them %q", stand, want)
				}
			}
		})
	}
}

func kindsOf(caller string) string {
	var steps strings.Builder
	for _, kind := range tenKinds {
		steps.WriteString(caller + ":" + kind + " ")
	}
	return steps.String()
}

// One caller uses more kinds than zygotes may run. A new zygote also imports the modules of
// the one that it replaces, so that soon all kinds are served.
func TestZygotesServeManyKinds(t *testing.T) {
	p := newZygotePool(4)
	for range 2 {
		for _, kind := range tenKinds {
			p.ask("a", kind)
			p.rest = time.Time{}
		}
	}
	before := p.stand()
	for _, kind := range tenKinds {
		if p.ask("a", kind) == "" {
			t.Errorf("%s is executed; there are %q", kind, p.stand())
		}
	}
	if after := p.stand(); !slices.Equal(after, before) {
		t.Errorf("got %q, and then %q", before, after)
	}
}

// Which other kinds a zygote serves.
func TestZygoteThatServes(t *testing.T) {
	for _, tt := range []struct{ name, there, users, caller, asked, want string }{
		{"the same", "csv", "a", "a", "csv", "csv"},
		{"the same, of another caller", "csv", "b", "a", "csv", "csv"},
		{"more than is needed", "csv html", "a", "a", "csv", "csv html"},
		{"more, of another caller", "csv html", "b", "a", "csv", ""}, // a would see which modules b imports
		{"less than is needed", "csv", "a", "a", "csv html", ""},
		{"with a slow end", "csv sqlite3", "a", "a", "csv", ""},
		{"with a slow end that is needed", "csv html sqlite3", "a", "a", "csv sqlite3", "csv html sqlite3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newZygotePool(1)
			p.pythons[keyOf(tt.there)] = &pythonEntry{zygote: &pyzygote.Zygote{}, has: keyOf(tt.there).Imports(), asked: map[string]time.Time{tt.users: p.now}}
			got := strings.Join(p.serving(keyOf(tt.asked), tt.caller).Modules(), " ")
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			other := pythonKey{Key: pyzygote.NewKey("python3", pythonSpec(nil).Env[:3], strings.Fields(tt.asked))}
			if at := p.serving(other, tt.caller); !at.none() {
				t.Errorf("with other settings: got %q", at.Modules())
			}
		})
	}
}

// Between two starts there is a rest. A caller that was refused during the rest comes before
// the caller of the last start.
func TestZygoteStartsInTurns(t *testing.T) {
	p := newZygotePool(8)
	starts := ""
	for _, step := range []struct {
		caller, modules string
		rest            bool // the rest is not over
	}{
		{"a", "csv", false}, {"a", "html", true}, {"b", "copy", true},
		{"a", "html", false}, // it is b's turn
		{"b", "copy", false}, {"b", "glob", true}, {"b", "glob", false}, {"a", "html", false},
	} {
		p.rest = time.Time{}
		if step.rest {
			p.rest = p.now.Add(time.Hour)
		}
		before := len(p.pythons)
		p.ask(step.caller, step.modules)
		if len(p.pythons) > before {
			starts += step.caller + ":" + step.modules + " "
		}
	}
	if want := "a:csv b:copy b:glob a:html "; starts != want {
		t.Errorf("started: got %q, want %q", starts, want)
	}
}

// A group's burst of kinds leaves another group its share of the Python zygotes. A group without any
// gets one of the largest group, or one that was not used for a while, but no other.
func TestGroupsKeepTheirPythonZygotes(t *testing.T) {
	for _, tt := range []struct {
		name  string
		size  int
		steps string // group:modules, several times; "wait" is poolIdle
		want  map[string]int
	}{
		{"a burst, another comes", 4, kindsOf("b") + "a:pandas a:numpy", map[string]int{"a": 2, "b": 2}},
		{"another was first", 4, "a:pandas a:numpy " + kindsOf("b") + kindsOf("b"), map[string]int{"a": 2, "b": 2}},
		{"one of few", 2, "a:pandas " + kindsOf("b") + kindsOf("b"), map[string]int{"a": 1, "b": 1}},
		{"three groups", 4, "a:pandas c:sympy " + kindsOf("b"), map[string]int{"a": 1, "b": 2, "c": 1}},
		{"more groups than zygotes", 2, "a:pandas c:sympy " + kindsOf("b"), map[string]int{"a": 1, "c": 1}},
		{"and then one is idle", 2, "a:pandas wait c:sympy b:csv", map[string]int{"b": 1, "c": 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newZygotePool(tt.size)
			for _, step := range strings.Fields(tt.steps) {
				group, modules, ok := strings.Cut(step, ":")
				if !ok {
					p.now = p.now.Add(poolIdle)
					continue
				}
				p.askIn(group, "same caller", modules)
				p.rest, p.turnEnds = time.Time{}, time.Time{}
			}
			got := map[string]int{}
			for k := range p.pythons {
				got[k.group]++
			}
			if !maps.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			for k, e := range p.pythons {
				other := pythonKey{"another", k.Key}
				if at := p.serving(other, "same caller"); !at.none() {
					t.Errorf("a Python zygote of group %q serves another group (%v)", k.group, e.asked)
				}
			}
		})
	}
}
