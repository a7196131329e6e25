// Package manifest reads a skill's SKILL.md, with [Parse] and [Validate], and the list of packages
// that the skill requires, with [ReadNeeds].
//
// A SKILL.md is split into front matter and body (frontmatter.go). The front matter is parsed
// as YAML within limits (yaml.go) and read leniently, one field at a time (fields.go). Then the
// published rules are checked (rules.go). Each step adds to [Findings] and goes on where it
// can, so that one run reports everything. Only a finding of Findings.Stop keeps a skill from
// loading.
//
// Requirements come from the front matter, from files in pip's format (requirements.go) and
// from metadata blocks of Python scripts (metadata.go). These files are found in the
// snapshot.Tree of the skill, so a link cannot lead out of it.
package manifest
