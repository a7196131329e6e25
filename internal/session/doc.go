// Package session keeps files between executions of one tenant. Start with [Open], [Store.Create] and
// [Store.Acquire].
//
// Theory of operation. A session is a list of versions. A version is a set of regular files, and never
// changes. [Store.Acquire] makes the caller the session's only writer, and [Writer.Open] gives it the files of
// one version as a directory, which becomes a lower layer of the execution's workspace. [Writer.Commit]
// makes the next version from the changes of the execution.
//
// On disk a session is a directory, Config.Dir/TENANT/ID, with:
//
//	settings      labels, bounds and times to live; its modification time is the last use
//	versions/N    the list of the files of version N (manifest.go)
//	objects/V-I   the content of a file; version V was the first to have it
//	tree/         the files of one version as hard links to objects
//
// A commit costs as much as its changes: unchanged files keep their objects. The order of writes makes
// it happen at once or not at all, also if the machine loses its power:
//
//  1. The new objects are written and synced, then the directory objects.
//  2. versions/N is written under another name, synced, renamed, and the directory versions synced.
//
// The rename in step 2 is the commit. Before it, the new objects belong to no version, and loading the
// session removes them. After it, [Writer.Release] removes versions beyond those to keep, and then
// objects that no version has. The tree is only a cache. Release changes it to the new version by
// replacing the changed links, and loading a session after a start of the daemon removes it, because
// nobody synced it.
//
// Only the daemon writes here. The program writes to the upper layer of its workspace, a tmpfs, so the
// kernel enforces the bounds while it runs; [Writer.Room] is the bound that the session adds. Commit
// computes the size of the next version before it writes a byte. So no quota is polled
// (docs/decisions/0018-quotas-of-sessions.md).
//
// The paths are untrusted. They have been components in a workspace, and may be no UTF-8. Each path is
// checked (checkPath), stored as bytes, and only used beneath an [os.Root]. Objects have numbers as names.
//
// Locks. session.turn is held by the writer from Acquire to Release, and by Delete. Store.mu guards all
// maps and numbers in memory, and is never held during I/O, except by Purge.
//
// Lock order: session.turn, then session.updating, then Store.mu. The bound on lists that are read
// (Store.beginReading) is taken with a turn and never with Store.mu.
//
// During a takeover two daemons have the store open; takeover.go says which of them writes what.
package session
