package policy

import "slices"

// Kinds of refusals in metrics, in addition to the names of the blocks of addresses. They are a closed set, so
// that a program can't add label values to Prometheus.
const (
	KindOwn      = "own"      // an address of the daemon's machine or proxy
	KindResolver = "resolver" // another name server
	KindDeny     = "deny"     // a deny rule
	KindUnlisted = "unlisted" // no rule allows it
	KindOther    = "other"    // bounds, names that do not match, and packets that are not TCP or UDP
)

// Kinds are all values of [Denial.Kind].
var Kinds = kinds()

func kinds() []string {
	all := []string{KindOwn, KindResolver, KindDeny, KindUnlisted, KindOther}
	for _, b := range blocks {
		if !b.isPublic() {
			all = append(all, b.name)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Kind returns the kind under which metrics count the refusal.
func (d Denial) Kind() string {
	// The rule of a refusal is the name of a block, or the text of a deny rule. Such a text must not become a label.
	_, known := slices.BinarySearch(Kinds, d.Rule)
	switch {
	case known:
		return d.Rule
	case d.Rule != "":
		return KindDeny
	case d.Missing != "":
		return KindUnlisted
	}
	return KindOther
}
