package environment

import (
	"errors"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	version "github.com/aquasecurity/go-pep440-version"

	"github.com/skillrun/skillrun/internal/lazyregexp"
	"github.com/skillrun/skillrun/internal/runtime"
)

// A platform has the values of the variables in environment markers. The table "Environment Markers"
// of PEP 508 has their names and values. No Go module evaluates markers, so this file does;
// go-pep440-version compares the versions in them.
type platform map[string]string

// newPlatform describes CPython of a full version on this kind of machine.
func newPlatform(pythonVersion, machine string) platform {
	return platform{
		"os_name": "posix", "sys_platform": "linux", "platform_system": "Linux", "platform_machine": machine,
		"platform_python_implementation": "CPython", "implementation_name": "cpython",
		"python_version": minorOf(pythonVersion), "python_full_version": pythonVersion, "implementation_version": pythonVersion,
		// A requirement of a skill is not part of an extra of another package, so extra is
		// empty.
		"extra": "", "platform_release": kernel().release, "platform_version": kernel().version,
	}
}

// kernel is what platform.release and platform.version say, also in a sandbox.
var kernel = sync.OnceValue(func() (k struct{ release, version string }) {
	var u unix.Utsname
	if unix.Uname(&u) == nil { // it fails of bad pointers only
		k.release, k.version = unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Version[:])
	}
	return k
})

// minorOf is the first two numbers of a version: "3.11" of "3.11.2".
// python_version of PEP 508 has this form, and so do library directories.
func minorOf(version string) string {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return version
	}
	return parts[0] + "." + parts[1]
}

// maxMarkerDepth bounds the parentheses of a marker.
const maxMarkerDepth = 32

// markerToken is a name, a text in quotes, an operator or a parenthesis.
var markerToken = lazyregexp.New(`^\s*(===|==|~=|!=|<=|>=|<|>|\(|\)|'[^']*'|"[^"]*"|[A-Za-z_][A-Za-z0-9_.]*)`)

var errMarker = errors.New("not a valid environment marker")

// tokens cuts a marker into its words.
func tokens(marker string) ([]string, error) {
	var list []string
	for rest := marker; strings.TrimSpace(rest) != ""; {
		m := markerToken.FindStringSubmatch(rest)
		if m == nil {
			return nil, errMarker
		}
		list = append(list, m[1])
		rest = rest[len(m[0]):]
	}
	return list, nil
}

// A markerReader evaluates a marker by recursive descent.
// One method for each level of the grammar in PEP 508, weakest first: or, and, term,
// comparison, value. Each takes its tokens off the list.
type markerReader struct {
	tokens   []string
	platform platform
	depth    int
}

// applies reports whether a marker holds on a platform. An empty marker holds. The error says
// that the text is not a marker; an unknown name is an error, too.
// With an error the result is true: a requirement whose marker can't be judged counts as
// needed, and the caller reports it.
func (p platform) applies(marker string) (bool, error) {
	list, err := tokens(marker)
	if err != nil || len(list) == 0 {
		return true, err
	}
	r := &markerReader{tokens: list, platform: p}
	v, err := r.or()
	if err == nil && len(r.tokens) > 0 {
		err = errMarker
	}
	return v || err != nil, err
}

// peek returns the next token without taking it, or "" at the end.
func (r *markerReader) peek() string {
	if len(r.tokens) == 0 {
		return ""
	}
	return r.tokens[0]
}

// next takes the next token, or returns "" at the end.
func (r *markerReader) next() string {
	t := r.peek()
	if t != "" {
		r.tokens = r.tokens[1:]
	}
	return t
}

// or and and read both sides always, so that an error on the right is found even if the left
// side decides.
func (r *markerReader) or() (bool, error) {
	v, err := r.and()
	for err == nil && r.peek() == "or" {
		r.next()
		var w bool
		w, err = r.and()
		v = v || w
	}
	return v, err
}

// and binds stronger than or (PEP 508).
func (r *markerReader) and() (bool, error) {
	v, err := r.term()
	for err == nil && r.peek() == "and" {
		r.next()
		var w bool
		w, err = r.term()
		v = v && w
	}
	return v, err
}

// term reads a comparison or a marker in parentheses. The depth is bounded, since the text of a
// requirement is not trusted and each level costs stack.
func (r *markerReader) term() (bool, error) {
	if r.peek() != "(" {
		return r.comparison()
	}
	if r.depth++; r.depth > maxMarkerDepth {
		return false, errMarker
	}
	r.next()
	v, err := r.or()
	if err == nil && r.next() != ")" {
		err = errMarker
	}
	r.depth--
	return v, err
}

var markerOperators = []string{"===", "==", "~=", "!=", "<=", ">=", "<", ">", "in"}

// comparison reads one comparison. PEP 508 compares as versions if both sides are versions,
// else as texts. in and not in always compare texts.
func (r *markerReader) comparison() (bool, error) {
	left, lok := r.value()
	op := r.next()
	not := op == "not" && r.peek() == "in"
	if not {
		op = r.next()
	}
	right, rok := r.value()
	if !lok || !rok || !slices.Contains(markerOperators, op) {
		return false, errMarker
	}
	if op == "in" {
		return strings.Contains(right, left) != not, nil
	}
	if v, ok := compareVersions(left, op, right); ok {
		return v, nil
	}
	switch op {
	case "==", "===":
		return left == right, nil
	case "!=":
		return left != right, nil
	case "<":
		return left < right, nil
	case "<=":
		return left <= right, nil
	case ">":
		return left > right, nil
	case ">=":
		return left >= right, nil
	}
	return false, errMarker // ~= of texts that are not versions
}

// markerNames are spellings from before PEP 508.
var markerNames = map[string]string{
	"os.name": "os_name", "sys.platform": "sys_platform", "platform.machine": "platform_machine",
	"platform.python_implementation": "platform_python_implementation", "python_implementation": "platform_python_implementation",
}

// value reads a quoted text or a variable of the platform. ok is false for a variable that the
// platform does not have.
func (r *markerReader) value() (string, bool) {
	t := r.next()
	if t != "" && (t[0] == '\'' || t[0] == '"') {
		return t[1 : len(t)-1], true
	}
	if name, ok := markerNames[t]; ok {
		t = name
	}
	v, ok := r.platform[t]
	return v, ok
}

// compareVersions compares as PEP 440 has it, if both sides are versions.
func compareVersions(left, op, right string) (result, ok bool) {
	if _, err := version.Parse(left); err != nil {
		return false, false
	}
	return runtime.Satisfies(left, op+right)
}
