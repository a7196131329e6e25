package snapshot

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

// RefusedWhy is the reason why an entry is refused.
type RefusedWhy uint8

const (
	// LeavesSkill: a link that leads out of the skill, directly or through other links.
	LeavesSkill RefusedWhy = iota + 1
	// VenvInterpreter: a link that leaves the skill, but is the interpreter of a virtual
	// environment (venv/bin/python*, .venv/bin/python*), which venv creates that way.
	// Only refused entries of this kind are kept in the snapshot, unchanged.
	VenvInterpreter
	// LinkLoop: a link that leads back to itself or exceeds maxLinks or maxLinkSteps.
	LinkLoop
	// SetID: a file with the setuid or setgid bit.
	SetID
	// NotRegular: a device, FIFO or socket.
	NotRegular
	// BadName: a name that is not UTF-8 or has control characters.
	BadName
	// TooDeep: nested deeper than MaxPathDepth, or with a path longer than MaxPathBytes.
	TooDeep
	// Unreadable: the daemon has no permission to read it.
	Unreadable
)

// String returns the reason's text. The texts are part of the digest and never change.
func (w RefusedWhy) String() string {
	switch w {
	case LeavesSkill:
		return "leaves-skill"
	case VenvInterpreter:
		return "venv-interpreter"
	case LinkLoop:
		return "link-loop"
	case SetID:
		return "set-id"
	case NotRegular:
		return "not-regular"
	case BadName:
		return "bad-name"
	case TooDeep:
		return "too-deep"
	case Unreadable:
		return "unreadable"
	}
	return "unknown"
}

// Refused is an entry of a skill that must not be used. The snapshot does not hold
// it, except for a VenvInterpreter.
type Refused struct {
	Path   string // fit for printing: a BadName is escaped
	Why    RefusedWhy
	Reason string // a sentence whose subject is the entry
	Mode   uint32 // st_mode; only for a SetID
	// Target is the final target of a LeavesSkill or VenvInterpreter link: an absolute
	// path, or one relative to the skill that starts with "..".
	Target string

	raw    string // the path's bytes
	target string // a link's target as written
}

// refuse makes the entry for a reason without further facts.
func refuse(raw string, why RefusedWhy, reason string) Refused {
	return Refused{Path: displayPath(raw), Why: why, Reason: reason, raw: raw}
}

// refusedLink builds the entry for a link that leaves the skill or forms a loop. outside is
// where the link leads. Links of a virtual environment to its interpreter get their own
// reason, because venvs are made that way.
func refusedLink(e Entry, why RefusedWhy, outside string) Refused {
	reason := "is a link that leads back to itself or takes too many steps"
	if why == LeavesSkill {
		reason = fmt.Sprintf("is a link that leaves the skill: it leads to %s", Printable(outside))
		if isVenvInterpreter(e.Path) {
			why = VenvInterpreter
		}
	}
	r := refuse(e.Path, why, reason)
	r.Target, r.target = outside, e.Target
	return r
}

// refusedSetID keeps the mode, which the published contract shows.
func refusedSetID(raw string, mode uint32) Refused {
	r := refuse(raw, SetID, fmt.Sprintf("has the setuid or setgid bit: mode 0o%o", mode))
	r.Mode = mode
	return r
}

// isVenvInterpreter reports whether a path is where venv puts its link to the interpreter.
func isVenvInterpreter(p string) bool {
	dir, name := path.Split(p)
	return (dir == "venv/bin/" || dir == ".venv/bin/") && strings.HasPrefix(name, "python")
}

// displayPath returns a path fit for messages: escaped as in Go source if it is a BadName.
func displayPath(raw string) string {
	if badName(raw) {
		q := strconv.Quote(raw)
		return q[1 : len(q)-1]
	}
	return raw
}
