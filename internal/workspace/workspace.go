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

import "os"

// Owner is the user id and group id of the lower layers' files, which package sandbox
// requires.
const Owner = 1000

// Workspace holds the lower layers of one execution's workspace.
type Workspace struct {
	dir   string // of the staged inputs; empty without inputs
	lower []string
}

// Lower returns the lower layers' host directories, topmost first.
func (w *Workspace) Lower() []string { return w.lower }

// Remove deletes the staged inputs. Calling it again is harmless.
func (w *Workspace) Remove() error {
	if w.dir == "" {
		return nil
	}
	return os.RemoveAll(w.dir)
}
