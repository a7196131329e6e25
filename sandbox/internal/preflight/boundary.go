package preflight

import (
	"fmt"
	"slices"
)

// A Boundary is a feature of this machine that sandboxes need, or a protection that
// was tried inside a sandbox.
type Boundary struct {
	Name   string // never changes, because configurations use it
	Group  string // "machine" for features of the machine; else the kind of protection
	Why    string // its purpose
	Detail string // the finding, or the cause of the failure and the remedy
	Found  bool
}

// Lowerable lists the boundaries that a caller may go without: sandboxes can still be
// made. Without any other boundary no sandbox can be made, or its defects stay unknown.
func Lowerable() []string {
	names := slices.Clone(optional)
	for _, c := range allChecks() {
		if c != checkReport {
			names = append(names, c.name)
		}
	}
	return names
}

// Missing returns an error for each boundary of the machine that was not found, except for
// optional ones that tolerated names.
func Missing(all []Boundary, tolerated []string) (errs []error) {
	for _, b := range all {
		if !b.Found && !(slices.Contains(optional, b.Name) && slices.Contains(tolerated, b.Name)) {
			errs = append(errs, fmt.Errorf("%s is missing (%s): %s", b.Name, b.Why, b.Detail))
		}
	}
	return errs
}

// InBoth returns the boundaries that hold in the sandboxes of both makers. The lists have the
// same order. If cloned is empty, there is only one maker.
func InBoth(direct, cloned []Boundary) []Boundary {
	for i, b := range cloned {
		if i < len(direct) && direct[i].Found && !b.Found {
			direct[i].Found, direct[i].Detail = false, "in a sandbox that the zygote made: "+b.Detail
		}
	}
	return direct
}
