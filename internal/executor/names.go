package executor

import "sync"

// maxNames bounds the names of tenants that an observer is told of without configured tenants. A JSON Web Token can
// name any tenant then, and the observer keeps data for each name.
const maxNames = 100

// names are the first maxNames names. The zero value has none.
type names struct {
	mu   sync.Mutex
	seen map[string]bool
}

// has reports whether a name is one of the first.
func (n *names) has(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.seen[name] && len(n.seen) < maxNames {
		if n.seen == nil {
			n.seen = map[string]bool{}
		}
		n.seen[name] = true
	}
	return n.seen[name]
}
