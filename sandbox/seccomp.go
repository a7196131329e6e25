package sandbox

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	seccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"
	"gopkg.in/yaml.v3"
)

//go:embed seccomp.yaml
var seccompText []byte

// Further calls of the zygote, and of Python zygotes (seccompPythonText).
//
//go:embed seccomp_zygote.yaml
var seccompZygoteText []byte

//go:embed seccomp_python.yaml
var seccompPythonText []byte

// seccompPolicy is seccomp.yaml.
type seccompPolicy struct {
	Allow       []seccompCalls `yaml:"allow"`
	AllowWhen   []seccompWhen  `yaml:"allow_when"`
	PretendWhen []seccompWhen  `yaml:"pretend_when"`
	RefuseWhen  []seccompWhen  `yaml:"refuse_when"`
	Deny        []seccompCalls `yaml:"deny"`
	Unknown     []string       `yaml:"unknown"` // for the reader only: a call in no list answers ENOSYS anyway
	Init        []string       `yaml:"init"`
}

type seccompCalls struct {
	Why   string   `yaml:"why"`
	Calls []string `yaml:"calls"`
}

type seccompWhen struct {
	Why   string       `yaml:"why"`
	Call  string       `yaml:"call"`
	Errno int16        `yaml:"errno"` // for refuse_when
	Args  []seccompArg `yaml:"args"`
}

// seccompArg is a condition on one argument. It holds if the bits in Mask have a value
// in Value. If Not is set, the condition holds if the argument differs from Not.
type seccompArg struct {
	Index uint         `yaml:"index"`
	Mask  uint64       `yaml:"mask"`
	Value seccompValue `yaml:"value"`
	Not   *uint64      `yaml:"not"`
}

// seccompValue is a value or a list of values. One of them must match.
type seccompValue []uint64

func (v *seccompValue) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.SequenceNode {
		return n.Decode((*[]uint64)(v))
	}
	*v = make([]uint64, 1)
	return n.Decode(&(*v)[0])
}

// filters are the compiled filter programs, each the bytes of a struct sock_filter array
// (seccomp(2)). They are compiled once: libseccomp takes longer than the rest of a start.
type filters struct {
	init, script []byte
	zygote       []byte // for the zygote; its descendants inherit it
	python       []byte // for Python zygotes, in addition to zygote; their children inherit both
}

func compileFilters() (filters, error) {
	p, err := parsePolicy()
	if err != nil {
		return filters{}, err
	}
	script, err := p.compile(nil)
	if err != nil {
		return filters{}, fmt.Errorf("script's filter: %w", err)
	}
	init, err := p.compile(p.Init)
	if err != nil {
		return filters{}, fmt.Errorf("init's filter: %w", err)
	}
	zygote, err := p.compileMore("seccomp_zygote.yaml", seccompZygoteText)
	if err != nil {
		return filters{}, err
	}
	python, err := p.compileMore("seccomp_python.yaml", seccompPythonText)
	return filters{init: init, script: script, zygote: zygote, python: python}, err
}

func parsePolicy() (p seccompPolicy, err error) { return parsePolicyOf("seccomp.yaml", seccompText) }

func parsePolicyOf(name string, text []byte) (p seccompPolicy, err error) {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&p); err != nil {
		return p, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

// compileMore returns a filter that allows the calls of p and those in text.
func (p seccompPolicy) compileMore(name string, text []byte) ([]byte, error) {
	more, err := parsePolicyOf(name, text)
	if err != nil {
		return nil, err
	}
	all := p.with(more)
	b, err := all.compile(nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return b, nil
}

// with returns p with the rules of more added. For each call in more, p's refusals are
// dropped. If more allows the call with any arguments, p's conditions are dropped, too.
func (p seccompPolicy) with(more seccompPolicy) seccompPolicy {
	var whole, some []string
	for _, a := range more.Allow {
		whole = append(whole, a.Calls...)
	}
	for _, w := range more.AllowWhen {
		some = append(some, w.Call)
	}
	either := slices.Concat(whole, some)
	without := func(rules []seccompWhen, calls []string) []seccompWhen {
		return slices.DeleteFunc(slices.Clone(rules), func(w seccompWhen) bool { return slices.Contains(calls, w.Call) })
	}
	all := seccompPolicy{
		Allow:       slices.Concat(p.Allow, more.Allow),
		AllowWhen:   slices.Concat(without(p.AllowWhen, whole), more.AllowWhen),
		PretendWhen: without(p.PretendWhen, either),
		RefuseWhen:  without(p.RefuseWhen, either),
	}
	for _, d := range p.Deny {
		d.Calls = slices.DeleteFunc(slices.Clone(d.Calls), func(c string) bool { return slices.Contains(either, c) })
		all.Deny = append(all.Deny, d)
	}
	return all
}

// compile returns the filter of p. It also allows the calls in extra.
func (p *seccompPolicy) compile(extra []string) ([]byte, error) {
	native, err := seccomp.GetNativeArch()
	if err != nil {
		return nil, err
	}
	long, err := p.compileLong(native, extra)
	return shorten(long), err
}

// compileLong returns the same filter as libseccomp writes it, for any architecture. Each
// call with conditions is compiled in a separate filter: libseccomp 2.5.4 merges equal
// comparisons of different calls, although one of them has another argument loaded. A
// common filter would let calls pass that no rule allows.
func (p *seccompPolicy) compileLong(arch seccomp.ScmpArch, extra []string) ([]byte, error) {
	plain, err := export(arch, func(f *seccomp.ScmpFilter) error { return p.fillPlain(f, extra) })
	if err != nil {
		return nil, err
	}
	parts := map[uint32][]bpfInstruction{}
	for _, name := range p.conditional() {
		number, err := seccomp.GetSyscallFromNameByArch(name, arch)
		if err != nil || number < 0 {
			continue // this architecture lacks the call: ENOSYS
		}
		part, err := export(arch, func(f *seccomp.ScmpFilter) error { return p.fillConditional(f, name) })
		if err != nil {
			return nil, err
		}
		parts[uint32(number)] = decodeBPF(part)
	}
	return encodeBPF(joinFilters(decodeBPF(plain), parts)), nil
}

// export compiles one filter.
func export(arch seccomp.ScmpArch, fill func(*seccomp.ScmpFilter) error) ([]byte, error) {
	nosys := seccomp.ActErrno.SetReturnCode(int16(unix.ENOSYS))
	f, err := seccomp.NewFilter(nosys)
	if err != nil {
		return nil, err
	}
	defer f.Release()
	if native, err := seccomp.GetNativeArch(); err != nil {
		return nil, err
	} else if arch != native {
		if err := errors.Join(f.AddArch(arch), f.RemoveArch(native)); err != nil {
			return nil, err
		}
	}
	// A call of another architecture (int 0x80, x32) answers ENOSYS as well. Killing
	// the program would be as safe, but an error tells the program more.
	if err := f.SetBadArchAction(nosys); err != nil {
		return nil, err
	}
	// A binary tree instead of a list; older libraries only know the list.
	_ = f.SetOptimize(2)
	if err := fill(f); err != nil {
		return nil, err
	}
	return exportBPF(f)
}

// conditional returns the calls that have a rule with conditions.
func (p *seccompPolicy) conditional() (names []string) {
	for _, w := range slices.Concat(p.AllowWhen, p.PretendWhen, p.RefuseWhen) {
		names = append(names, w.Call)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// fillPlain adds the rules without conditions to f, for each architecture of f.
func (p *seccompPolicy) fillPlain(f *seccomp.ScmpFilter, extra []string) error {
	eperm := seccomp.ActErrno.SetReturnCode(int16(unix.EPERM))
	for _, d := range p.Deny {
		for _, name := range d.Calls {
			if slices.Contains(extra, name) {
				continue
			}
			if err := addRules(f, name, eperm, nil); err != nil {
				return err
			}
		}
	}
	for _, a := range p.Allow {
		for _, name := range a.Calls {
			if err := addRules(f, name, seccomp.ActAllow, nil); err != nil {
				return err
			}
		}
	}
	for _, name := range extra {
		if err := addRules(f, name, seccomp.ActAllow, nil); err != nil {
			return err
		}
	}
	return nil
}

// fillConditional adds the rules of one call with conditions.
func (p *seccompPolicy) fillConditional(f *seccomp.ScmpFilter, call string) error {
	add := func(rules []seccompWhen, action func(seccompWhen) seccomp.ScmpAction) error {
		for _, w := range rules {
			if w.Call != call {
				continue
			}
			if err := addRules(f, w.Call, action(w), w.Args); err != nil {
				return err
			}
		}
		return nil
	}
	return errors.Join(
		add(p.AllowWhen, func(seccompWhen) seccomp.ScmpAction { return seccomp.ActAllow }),
		add(p.PretendWhen, func(seccompWhen) seccomp.ScmpAction { return seccomp.ActErrno.SetReturnCode(0) }),
		add(p.RefuseWhen, func(w seccompWhen) seccomp.ScmpAction { return seccomp.ActErrno.SetReturnCode(w.Errno) }),
	)
}

// addRules adds one rule for each combination of the arguments' values.
func addRules(f *seccomp.ScmpFilter, name string, action seccomp.ScmpAction, args []seccompArg) error {
	call, err := seccomp.GetSyscallFromName(name)
	if err != nil {
		return nil // the architecture or the library doesn't know the call: ENOSYS
	}
	combinations := [][]seccomp.ScmpCondition{nil}
	for _, a := range args {
		conditions, err := a.conditions()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		var next [][]seccomp.ScmpCondition
		for _, c := range combinations {
			for _, cond := range conditions {
				next = append(next, append(slices.Clone(c), cond))
			}
		}
		combinations = next
	}
	for _, c := range combinations {
		if c == nil {
			err = f.AddRule(call, action)
		} else {
			err = f.AddRuleConditional(call, action, c)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// conditions returns the conditions of a in libseccomp's form. One of them must hold.
func (a seccompArg) conditions() (all []seccomp.ScmpCondition, err error) {
	if a.Not != nil {
		c, err := seccomp.MakeCondition(a.Index, seccomp.CompareNotEqual, *a.Not)
		return []seccomp.ScmpCondition{c}, err
	}
	for _, v := range a.Value {
		c, err := seccomp.MakeCondition(a.Index, seccomp.CompareMaskedEqual, a.Mask, v)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// exportBPF returns the compiled filter. It uses a file, because libseccomp before 2.6
// can't export to memory.
func exportBPF(f *seccomp.ScmpFilter) ([]byte, error) {
	fd, err := unix.MemfdCreate("filter", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "filter")
	defer file.Close()
	if err := f.ExportBPF(file); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.NewSectionReader(file, 0, maxProgramBytes))
	if err == nil && (len(b) == 0 || len(b)%sockFilterSize != 0) {
		err = fmt.Errorf("exported %d bytes: not a list of instructions", len(b))
	}
	return b, err
}
