package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A problem is one mistake in the configuration. text has the value and what would be
// right. Line 0 means that the file does not have the key.
type problem struct {
	key  string
	line int
	text string
}

// String has the parts in the order of a compiler's message: place, key, text.
func (p problem) String() string {
	var b strings.Builder
	if p.line > 0 {
		fmt.Fprintf(&b, "line %d: ", p.line)
	}
	if p.key != "" {
		b.WriteString(p.key + ": ")
	}
	return b.String() + p.text
}

// A configError holds every problem of one configuration.
type configError struct {
	path     string // empty if no file was read
	problems []problem
}

// Error lists all problems, one on a line if there are several.
func (e *configError) Error() string {
	head := strings.TrimSpace("config " + e.path)
	if len(e.problems) == 1 {
		return head + ": " + e.problems[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d errors", head, len(e.problems))
	for _, p := range e.problems {
		b.WriteString("\n  " + p.String())
	}
	return b.String()
}

// problems collects the mistakes of one configuration.
type problems struct {
	path  string
	lines map[string]int // the line of every key that the file sets; see decode
	list  []problem
	files []*problems // of other files, and of tenants
}

// take returns the problems of a key and of the keys beneath it, and removes them from f. f reports
// them, too, because the result is one of f.files.
func (f *problems) take(key string) *problems {
	part := &problems{path: f.path, lines: f.lines}
	f.list = slices.DeleteFunc(f.list, func(p problem) bool {
		mine := p.key == key || strings.HasPrefix(p.key, key+".")
		if mine {
			part.list = append(part.list, p)
		}
		return mine
	})
	return part
}

// bad adds a problem, unless the key or a parent of the key has a problem already: then the new
// problem only follows from the first one. So decode must report before validate, and validate
// before inspect.
func (f *problems) bad(key, format string, args ...any) {
	for _, p := range f.list {
		if p.key == key || p.key != "" && strings.HasPrefix(key, p.key+".") {
			return
		}
	}
	// Joined errors have line breaks, and each problem is one line.
	text := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "; ")
	f.list = append(f.list, problem{key, f.lineOf(key), text})
}

// lineOf returns the line of a key, or the line of its parent if the file does not have the
// key.
func (f *problems) lineOf(key string) int {
	// The parent of "images.a.rootfs" is "images.a", and of "skills[2]" it is "skills".
	for key != "" {
		if line := f.lines[key]; line > 0 {
			return line
		}
		key = key[:max(0, strings.LastIndexAny(key, ".["))]
	}
	return 0
}

// ofDaemon returns the mistakes in the daemon's own keys. It leaves out mistakes of tenants, and a
// tenants_dir that cannot be read.
func (f *problems) ofDaemon() error {
	mine := slices.DeleteFunc(slices.Clone(f.list), func(p problem) bool { return p.key == "tenants_dir" })
	return (&problems{path: f.path, list: mine}).err()
}

// byKey compares keys, with [2] before [10].
func byKey(a, b string) int {
	parts := func(key string) []string {
		return strings.FieldsFunc(key, func(c rune) bool { return c == '[' || c == ']' })
	}
	return slices.CompareFunc(parts(a), parts(b), func(a, b string) int {
		n, notA := strconv.Atoi(a)
		m, notB := strconv.Atoi(b)
		if notA == nil && notB == nil {
			return cmp.Compare(n, m)
		}
		return strings.Compare(a, b)
	})
}

// err returns all problems, file by file and in the order of each file, or nil. It is a *configError if
// one file has all problems.
func (f *problems) err() error {
	var errs []error
	paths, lists := []string{f.path}, map[string][]problem{f.path: slices.Clone(f.list)}
	for _, part := range f.files {
		if !slices.Contains(paths, part.path) {
			paths = append(paths, part.path)
		}
		lists[part.path] = append(lists[part.path], part.list...)
	}
	for _, path := range paths {
		list := lists[path]
		if len(list) == 0 {
			continue
		}
		slices.SortStableFunc(list, func(a, b problem) int {
			return cmp.Or(cmp.Compare(a.line, b.line), byKey(a.key, b.key))
		})
		errs = append(errs, &configError{path, list})
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}
