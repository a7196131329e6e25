package seccomp

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"

	libseccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"
)

// Compile returns the filter of p for this machine. It also allows the calls in extra. The result
// is the array of struct sock_filter that seccomp(2) loads. A call that this libseccomp does not
// know answers ENOSYS.
func (p *Policy) Compile(extra []string) ([]byte, error) {
	native, err := libseccomp.GetNativeArch()
	if err != nil {
		return nil, err
	}
	return p.compileFor(native, extra)
}

// compileFor returns the filter for any architecture. Each call with conditions is
// compiled in a separate filter: libseccomp 2.5.4 merges equal comparisons of different
// calls, although one of them has another argument loaded. A common filter would let calls
// pass that no rule allows.
func (p *Policy) compileFor(arch libseccomp.ScmpArch, extra []string) ([]byte, error) {
	plain, err := export(arch, func(f *libseccomp.ScmpFilter) error { return p.fillPlain(f, extra) })
	if err != nil {
		return nil, err
	}
	parts := map[uint32][]bpfInstruction{}
	for _, name := range p.conditional() {
		number, err := libseccomp.GetSyscallFromNameByArch(name, arch)
		if err != nil || number < 0 {
			continue // this architecture lacks the call: ENOSYS
		}
		part, err := export(arch, func(f *libseccomp.ScmpFilter) error { return p.fillConditional(f, name) })
		if err != nil {
			return nil, err
		}
		parts[uint32(number)] = decodeBPF(part)
	}
	joined := joinFilters(decodeBPF(plain), parts)
	if len(joined) > MaxInstructions {
		return nil, fmt.Errorf("%d instructions: the kernel loads at most %d", len(joined), MaxInstructions)
	}
	return encodeBPF(joined), nil
}

// export compiles one filter. A call without a rule answers ENOSYS. Programs take that for an old
// kernel and use an older call.
func export(arch libseccomp.ScmpArch, fill func(*libseccomp.ScmpFilter) error) ([]byte, error) {
	nosys := libseccomp.ActErrno.SetReturnCode(int16(unix.ENOSYS))
	f, err := libseccomp.NewFilter(nosys)
	if err != nil {
		return nil, err
	}
	defer f.Release()
	if native, err := libseccomp.GetNativeArch(); err != nil {
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
	b, err := exportBPF(f)
	if err == nil && !startsWithHead(decodeBPF(b)) {
		err = errors.New("this version of libseccomp writes filters that begin in another way; sandbox/internal/seccomp/join.go must learn it")
	}
	return b, err
}

// conditional returns the calls that have a rule with conditions.
func (p *Policy) conditional() (names []string) {
	for _, w := range slices.Concat(p.AllowWhen, p.PretendWhen, p.RefuseWhen) {
		names = append(names, w.Call)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// fillPlain adds the rules without conditions to f, for each architecture of f. A call in extra
// is allowed even if deny lists it.
func (p *Policy) fillPlain(f *libseccomp.ScmpFilter, extra []string) error {
	eperm := libseccomp.ActErrno.SetReturnCode(int16(unix.EPERM))
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
			if err := addRules(f, name, libseccomp.ActAllow, nil); err != nil {
				return err
			}
		}
	}
	for _, name := range extra {
		if err := addRules(f, name, libseccomp.ActAllow, nil); err != nil {
			return err
		}
	}
	return nil
}

// fillConditional adds the rules of one call with conditions. A rule of refuse_when has its
// errno; pretend_when answers 0 and does nothing.
func (p *Policy) fillConditional(f *libseccomp.ScmpFilter, call string) error {
	add := func(rules []Rule, action func(Rule) libseccomp.ScmpAction) error {
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
		add(p.AllowWhen, func(Rule) libseccomp.ScmpAction { return libseccomp.ActAllow }),
		add(p.PretendWhen, func(Rule) libseccomp.ScmpAction { return libseccomp.ActErrno.SetReturnCode(0) }),
		add(p.RefuseWhen, func(w Rule) libseccomp.ScmpAction { return libseccomp.ActErrno.SetReturnCode(w.Errno) }),
	)
}

// addRules adds one rule for each combination of the arguments' values.
func addRules(f *libseccomp.ScmpFilter, name string, action libseccomp.ScmpAction, args []Arg) error {
	call, err := libseccomp.GetSyscallFromName(name)
	if err != nil {
		return nil // the architecture or the library doesn't know the call: ENOSYS
	}
	// All conditions of one rule must hold, so each choice of values is a separate rule.
	combinations := [][]libseccomp.ScmpCondition{nil}
	for _, a := range args {
		conditions, err := a.conditions()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		var next [][]libseccomp.ScmpCondition
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
func (a Arg) conditions() (all []libseccomp.ScmpCondition, err error) {
	if a.Not != nil {
		c, err := libseccomp.MakeCondition(a.Index, libseccomp.CompareNotEqual, *a.Not)
		return []libseccomp.ScmpCondition{c}, err
	}
	for _, v := range a.Value {
		c, err := libseccomp.MakeCondition(a.Index, libseccomp.CompareMaskedEqual, a.Mask, v)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// exportBPF returns the compiled filter. It uses a file, because libseccomp before 2.6
// can't export to memory.
func exportBPF(f *libseccomp.ScmpFilter) ([]byte, error) {
	fd, err := unix.MemfdCreate("filter", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "filter")
	defer file.Close()
	if err := f.ExportBPF(file); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.NewSectionReader(file, 0, math.MaxInt64))
	if err == nil && (len(b) == 0 || len(b)%InstructionSize != 0) {
		err = fmt.Errorf("exported %d bytes: not a list of instructions", len(b))
	}
	return b, err
}
