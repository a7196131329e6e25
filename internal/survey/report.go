package survey

import (
	"cmp"
	"maps"
	"slices"
)

// A Report counts lines.
type Report struct {
	Skills   map[Class]int `json:"skills"`
	Commands map[Class]int `json:"commands"`
	Scripts  map[Class]int `json:"scripts"`
	// ThroughUs is the number of scripts that failed because of skillrun: see Class.ThroughUs.
	ThroughUs int `json:"scripts_failed_through_us"`
}

// Add counts a line.
func (r *Report) Add(l Line) {
	counts := map[string]*map[Class]int{KindSkill: &r.Skills, KindCommand: &r.Commands, KindScript: &r.Scripts}[l.Kind]
	if *counts == nil {
		*counts = map[Class]int{}
	}
	(*counts)[l.Class]++
	if l.Kind == KindScript && l.Class.ThroughUs() {
		r.ThroughUs++
	}
}

// A Count is the number of lines of a class.
type Count struct {
	Class Class
	N     int // lines
}

// Sorted returns the counts: first the classes of successes, then the others, in both groups the largest first. Equal
// counts are in the order of their names, so that two reports can be compared.
func Sorted(counts map[Class]int) []Count {
	var list []Count
	for _, class := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, Count{class, counts[class]})
	}
	works := func(c Count) int {
		if c.Class == Loaded || c.Class == Allowed || c.Class == Ran {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(list, func(a, b Count) int {
		return cmp.Or(cmp.Compare(works(a), works(b)), cmp.Compare(b.N, a.N))
	})
	return list
}

// Sum returns the number of all lines.
func Sum(counts map[Class]int) (n int) {
	for _, one := range counts {
		n += one
	}
	return n
}
