// Package workspace prepares /workspace for an execution and collects the results. Start
// with [Stage], which returns a [Workspace], and [Workspace.Collect].
//
// /workspace is an overlay. Before the program starts, Stage prepares the lower layers: the
// input files, above the skill's snapshot. The program cannot change them. After the
// program, Collect copies the files that it created or changed from the upper layer.
//
// The upper layer is untrusted. Collect opens it through one descriptor, one component at a
// time, and follows no link. It opens only regular files and checks each again after
// opening it. It never uses a program's file name in a path on the host: the copies have
// numbers as names.
package workspace

import (
	"os"
	"slices"
)

// Owner is a user id and a group id on this machine. Staged inputs belong to the ids that
// package sandbox shows as the script's. To give files to another user, the daemon needs
// CAP_CHOWN; a test that runs as a normal user gives them to that user.
type Owner struct{ UID, GID int }

// Valid reports whether inputs can belong to o. Root is refused: it is the owner that a
// caller gets by giving none.
func (o Owner) Valid() bool { return o.UID > 0 && o.GID > 0 }

// Workspace holds the lower layers of one execution's workspace.
type Workspace struct {
	dir   string // of the staged inputs; empty without inputs
	lower []string
}

// Lower returns the lower layers' host directories, topmost first.
func (w *Workspace) Lower() []string { return w.lower }

// Over returns the same workspace above one more directory, which is below all others. Remove of one of
// them removes the inputs of both.
func (w *Workspace) Over(dir string) *Workspace {
	return &Workspace{dir: w.dir, lower: append(slices.Clip(w.lower), dir)}
}

// Remove deletes the staged inputs. Calling it again is harmless.
func (w *Workspace) Remove() error {
	if w.dir == "" {
		return nil
	}
	return os.RemoveAll(w.dir)
}
