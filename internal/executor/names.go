package executor

import "sync"

// maxNames bounds the names of tenants that an observer gets if no tenants are configured. A JSON Web Token can then
// name any tenant, and the observer keeps data for each name.
const maxNames = 100

// names remembers the first maxNames names. The zero value is empty.
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
