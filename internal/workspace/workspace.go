// Package workspace says what /workspace is made of and what is kept of it.
//
// Before the start, Stage puts the input files beside the skill's snapshot: both
// become lower layers of an overlay, and stay as they are. Afterwards Collect
// takes from the overlay's upper layer what the program made or changed.
//
// What a program left is hostile. It is reached from one descriptor, a component
// at a time, never through a link; only regular files are opened, and what was
// opened is looked at again before it is read. Names are bytes, and become part
// of no path outside: an artifact's file is named by its number.
package workspace

import "os"

// Owner is the user and group that lower layers belong to, as the sandbox wants
// them.
const Owner = 1000

// Workspace is the lower layers of one execution's workspace.
type Workspace struct {
	dir   string // of the staged inputs; empty: there are none
	lower []string
}

// Lower returns the lower layers' host directories, topmost first.
func (w *Workspace) Lower() []string { return w.lower }

// Remove deletes the staged inputs. It can be called again.
func (w *Workspace) Remove() error {
	if w.dir == "" {
		return nil
	}
	return os.RemoveAll(w.dir)
}
