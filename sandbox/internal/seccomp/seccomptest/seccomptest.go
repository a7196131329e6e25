// Package seccomptest computes the answer of a policy to a system call. It reads only the
// policy. Tests compare the answer with a compiled filter and with the kernel.
package seccomptest

import (
	"fmt"
	"math"
	"slices"

	"github.com/skillrun/skillrun/sandbox/internal/seccomp"
	"golang.org/x/sys/unix"
)

// Says returns the answer of p to a call, and whether the answer is unique. extra has calls
// that are allowed in addition. The answer is a name that ActionName returns.
func Says(p *seccomp.Policy, name string, extra []string, args [6]uint64) (said string, clear bool) {
	var all []string
	if slices.Contains(extra, name) {
		all = append(all, "allowed")
	} else if listed(p.Deny, name) {
		all = append(all, "EPERM")
	}
	if listed(p.Allow, name) {
		all = append(all, "allowed")
	}
	for _, rules := range []struct {
		when   []seccomp.Rule
		answer func(seccomp.Rule) string
	}{
		{p.AllowWhen, func(seccomp.Rule) string { return "allowed" }},
		{p.PretendWhen, func(seccomp.Rule) string { return "pretended" }},
		{p.RefuseWhen, func(w seccomp.Rule) string { return errnoName(w.Errno) }},
	} {
		for _, w := range rules.when {
			if w.Call == name && holds(w, args) {
				all = append(all, rules.answer(w))
			}
		}
	}
	slices.Sort(all)
	if all = slices.Compact(all); len(all) == 0 {
		return "ENOSYS", true
	}
	return all[0], len(all) == 1
}

func listed(lists []seccomp.Calls, name string) bool {
	return slices.ContainsFunc(lists, func(l seccomp.Calls) bool { return slices.Contains(l.Calls, name) })
}

// holds reports whether every condition of a rule is true for these arguments. A condition
// compares the bits of its mask, or the whole argument.
func holds(w seccomp.Rule, args [6]uint64) bool {
	return !slices.ContainsFunc(w.Args, func(a seccomp.Arg) bool {
		if a.Not != nil {
			return args[a.Index] == *a.Not
		}
		return !slices.Contains(a.Value, args[a.Index]&a.Mask)
	})
}

// errnoName returns the name that ActionName has for an error.
func errnoName(errno int16) string { return ActionName(unix.SECCOMP_RET_ERRNO | uint32(errno)) }

// ActionName returns the name of a filter's answer (SECCOMP_RET_*, seccomp(2)).
func ActionName(action uint32) string {
	switch action {
	case unix.SECCOMP_RET_ALLOW:
		return "allowed"
	case unix.SECCOMP_RET_ERRNO:
		return "pretended"
	case unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM):
		return "EPERM"
	case unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS):
		return "ENOSYS"
	case unix.SECCOMP_RET_ERRNO | uint32(unix.EINVAL):
		return "EINVAL"
	default:
		return fmt.Sprintf("%#x", action)
	}
}

// Critical returns, for each argument of a call, the values that a filter of p may
// distinguish: each constant and its neighbors, also with the bits outside of a
// mask set, with one bit inverted, and with several upper halves.
func Critical(p *seccomp.Policy, name string) (values [6][]uint64) {
	for i := range values {
		values[i] = []uint64{0, math.MaxUint64}
	}
	for _, w := range slices.Concat(p.AllowWhen, p.PretendWhen, p.RefuseWhen) {
		if w.Call != name {
			continue
		}
		for _, a := range w.Args {
			mask, constants := a.Mask, []uint64(a.Value)
			if a.Not != nil {
				mask, constants = math.MaxUint64, []uint64{*a.Not}
			}
			v := &values[a.Index]
			for _, k := range constants {
				*v = append(*v, k, k-1, k+1, k|^mask, k|1<<63, k|1<<32, k|0xffffffff<<32, k^1<<31)
				for _, bit := range []int{1, 7, 12, 19, 63} { // a sample
					if mask>>bit&1 == 1 && len(constants) < 3 {
						*v = append(*v, k^1<<bit)
					}
				}
			}
		}
	}
	for i := range values {
		slices.Sort(values[i])
		values[i] = slices.Compact(values[i])
	}
	return values
}

// Product calls do with every combination of values.
func Product(values [6][]uint64, do func([6]uint64)) {
	var args [6]uint64
	var next func(int)
	next = func(i int) {
		if i == len(args) {
			do(args)
			return
		}
		for _, v := range values[i] {
			args[i] = v
			next(i + 1)
		}
	}
	next(0)
}
