package skill

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

// RefusedWhy is the reason for which an entry is refused.
type RefusedWhy uint8

const (
	// LeavesSkill: a link that leads out of the skill, directly or through others.
	LeavesSkill RefusedWhy = iota + 1
	// VenvInterpreter: LeavesSkill, but it is the interpreter of a virtual
	// environment (venv/bin/python*, .venv/bin/python*), where that is how they are
	// made. It is the one kind that is kept in the snapshot, as it was written.
	VenvInterpreter
	// LinkLoop: a link that leads back to itself, or takes too many steps.
	LinkLoop
	// SetID: a file with the setuid or setgid bit.
	SetID
	// NotRegular: a device, FIFO or socket.
	NotRegular
	// BadName: a name that is not UTF-8 or has control characters.
	BadName
	// TooDeep: nested too deep, or its path is too long.
	TooDeep
	// Unreadable: it may not be read.
	Unreadable
)

// String is part of the digest and therefore never changes.
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

// Refused is an entry that is known but must not be used. The snapshot doesn't
// hold it, except for a VenvInterpreter.
type Refused struct {
	Path   string // printable: a BadName is escaped
	Why    RefusedWhy
	Reason string // a sentence about the entry
	Mode   uint32 // st_mode, of a SetID
	// Target is where a link that LeavesSkill or a VenvInterpreter leads in the end:
	// an absolute path, or one relative to the skill that starts with "..".
	Target string

	raw    string // the path's bytes
	target string // a link's text
}

func refuse(raw string, why RefusedWhy, reason string) Refused {
	return Refused{Path: displayPath(raw), Why: why, Reason: reason, raw: raw}
}

func refusedLink(e Entry, why RefusedWhy, outside string) Refused {
	reason := "is a link that leads back to itself or takes too many steps"
	if why == LeavesSkill {
		reason = fmt.Sprintf("is a link that leaves the skill: it leads to %s", printable(outside))
		if isVenvInterpreter(e.Path) {
			why = VenvInterpreter
		}
	}
	r := refuse(e.Path, why, reason)
	r.Target, r.target = outside, e.Target
	return r
}

func refusedSetID(raw string, mode uint32) Refused {
	r := refuse(raw, SetID, fmt.Sprintf("has the setuid or setgid bit: mode 0o%o", mode))
	r.Mode = mode
	return r
}

func isVenvInterpreter(p string) bool {
	dir, name := path.Split(p)
	return (dir == "venv/bin/" || dir == ".venv/bin/") && strings.HasPrefix(name, "python")
}

// displayPath is a path as text: as it is, or escaped as in Go source.
func displayPath(raw string) string {
	if badName(raw) {
		q := strconv.Quote(raw)
		return q[1 : len(q)-1]
	}
	return raw
}
