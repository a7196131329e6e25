// Package skill imports skills. A skill is a folder with a SKILL.md; it is imported once
// into an immutable snapshot that is named by its digest. Start with [Registry], which
// finds and loads skills, and [Skill], one loaded version.
//
// Data flows one way. A Registry finds skill folders in its roots. Package snapshot reads a
// folder into a tree: its entries, the refused entries, and the digest of both. Package
// manifest parses SKILL.md and collects the skill's requirements. Package snapshot copies the
// tree into its store under the digest. The result is a Skill, which never changes. Its
// methods Lookup, Has, Activate and Validate answer from memory; only Open reads the
// snapshot.
//
// Skill folders are untrusted input: a folder may be broken, hostile, or changing during
// the read. A folder that cannot be loaded is a [Problem]. An entry that must not be used
// is refused, and the rest of its skill works.
package skill
