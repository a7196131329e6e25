// Package snapshot reads skill folders and keeps immutable copies of them, named by their
// digest. It knows nothing of SKILL.md. Start with [Scan], [Tree] and [Store].
//
// Scan reads a folder that other processes may change at the same time (scan.go). The result
// is a Tree: the entries, the scripts among them (script.go), the entries that must not be
// used (refused.go), and the digest of all (tree.go). Paths in a Tree are followed as the
// kernel would, but in memory and never out of the folder (resolve.go, lookup.go).
//
// Store.Stage scans the folder a second time and copies it (copy.go), then Store.Publish makes
// the copies durable under their digests (store.go). Snapshots belong to the store's [Owner].
package snapshot
