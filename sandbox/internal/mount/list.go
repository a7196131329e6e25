package mount

import "golang.org/x/sys/unix"

// A List is a list of detached mounts, which no process sees yet. The sandbox's init attaches
// them to the targets, in that order.
type List struct {
	Trees   []int // descriptors
	Targets []string
}

// add takes over the result of a function that made a mount: the list closes the descriptor. If
// err is not nil, add only returns it.
func (l *List) add(tree int, err error, target string) error {
	if err != nil {
		return err
	}
	l.Trees = append(l.Trees, tree)
	l.Targets = append(l.Targets, target)
	return nil
}

// Release closes the descriptors. The kernel removes a detached mount with its last descriptor;
// an attached one stays.
func (l *List) Release() {
	for _, tree := range l.Trees {
		unix.Close(tree)
	}
}
