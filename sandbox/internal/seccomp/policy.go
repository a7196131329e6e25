package seccomp

import (
	"bytes"
	"fmt"
	"slices"

	"gopkg.in/yaml.v3"
)

// Policy is seccomp.yaml, or a file with further calls of a zygote. The files explain their
// lists.
type Policy struct {
	Allow       []Calls  `yaml:"allow"`
	AllowWhen   []Rule   `yaml:"allow_when"`
	PretendWhen []Rule   `yaml:"pretend_when"`
	RefuseWhen  []Rule   `yaml:"refuse_when"`
	Deny        []Calls  `yaml:"deny"`
	Unknown     []string `yaml:"unknown"` // for the reader only: a call in no list answers ENOSYS anyway
	Init        []string `yaml:"init"`    // calls that only init's filter allows in addition
}

// Calls are calls with the same answer for all arguments. Why is for readers of the file.
type Calls struct {
	Why   string   `yaml:"why"`
	Calls []string `yaml:"calls"`
}

// Rule is the answer to one call if its arguments meet all conditions of Args. Only a rule of refuse_when may have no
// conditions.
type Rule struct {
	Why   string `yaml:"why"`
	Call  string `yaml:"call"`
	Errno int16  `yaml:"errno"` // for refuse_when
	Args  []Arg  `yaml:"args"`
}

// Arg is a condition on one argument. It holds if the bits in Mask have a value
// in Value. If Not is set, the condition holds if the argument differs from Not. Index counts
// from 0. A filter sees every argument as 64 bits (seccomp(2)), also an int, whose upper half the
// kernel ignores: Mask leaves such bits out.
type Arg struct {
	Index uint    `yaml:"index"`
	Mask  uint64  `yaml:"mask"`
	Value Values  `yaml:"value"`
	Not   *uint64 `yaml:"not"`
}

// Values is a value or a list of values. One of them must match.
type Values []uint64

// UnmarshalYAML takes a single number as a list of one.
func (v *Values) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.SequenceNode {
		return n.Decode((*[]uint64)(v))
	}
	*v = make([]uint64, 1)
	return n.Decode(&(*v)[0])
}

// ParsePolicy returns seccomp.yaml, the policy of scripts and of init.
func ParsePolicy() (Policy, error) { return parse("seccomp.yaml", scriptText) }

// parse refuses unknown keys: a misspelled one would silently change the filter.
func parse(name string, text []byte) (p Policy, err error) {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&p); err != nil {
		return p, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

// with returns p with the rules of more added. For each call in more, p's refusals are
// dropped. If more allows the call with any arguments, p's conditions are dropped, too. p itself
// does not change.
func (p Policy) with(more Policy) Policy {
	var whole, some []string
	for _, a := range more.Allow {
		whole = append(whole, a.Calls...)
	}
	for _, w := range more.AllowWhen {
		some = append(some, w.Call)
	}
	either := slices.Concat(whole, some)
	without := func(rules []Rule, calls []string) []Rule {
		return slices.DeleteFunc(slices.Clone(rules), func(w Rule) bool { return slices.Contains(calls, w.Call) })
	}
	all := Policy{
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
