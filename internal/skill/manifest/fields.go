package manifest

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/skillrun/skillrun/internal/skill/snapshot"
	"github.com/skillrun/skillrun/internal/spelling"
)

// field is one key of the front matter. line is the line of the key in the file, from 1.
type field struct {
	line  int
	value *yaml.Node
}

// fieldReader reads fields leniently, with one method for each type. A method removes its
// field from rest, so the fields that remain there are unknown. A value of the wrong type
// is a finding and goes to kept, so that nothing is lost.
type fieldReader struct {
	*Findings
	first int // line of the front matter
	lines map[string]int
	known []string // the fields that a method has asked for
	rest  map[string]field
	kept  map[string]any
	// itemLines has the lines of each list's items, by the name of the field.
	itemLines map[string][]int
}

// readFields indexes a mapping. If a key is repeated, the last one counts, as in most
// YAML parsers.
func readFields(root *yaml.Node, f *Findings) *fieldReader {
	r := &fieldReader{
		Findings: f,
		first:    root.Line,
		lines:    map[string]int{},
		rest:     map[string]field{},
		kept:     map[string]any{},

		itemLines: map[string][]int{},
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, line := keyText(root.Content[i]), root.Content[i].Line
		if prev, ok := r.lines[key]; ok {
			f.Error(line, RuleDuplicateKey, "field '%s' is already in line %d: the last one counts", snapshot.Printable(key), prev)
		}
		r.lines[key] = line
		r.rest[key] = field{line, deref(root.Content[i+1])}
	}
	return r
}

// manifest reads every field.
func (r *fieldReader) manifest() Manifest {
	m := Manifest{
		Name:                   r.text("name"),
		Description:            r.text("description"),
		License:                r.text("license"),
		Compatibility:          r.text("compatibility"),
		Metadata:               r.textMap("metadata"),
		Version:                r.text("version"),
		Author:                 r.text("author"),
		Tags:                   r.texts("tags", commas),
		ActivationMode:         r.text("activation_mode"),
		RequiredTools:          r.texts("required_tools", splitTools),
		OptionalTools:          r.texts("optional_tools", splitTools),
		Model:                  r.text("model"),
		Mode:                   r.flag("mode"),
		WhenToUse:              r.text("when_to_use"),
		DisableModelInvocation: r.flag("disable-model-invocation"),
		MaxExecutionTime:       r.seconds("max_execution_time"),
		MaxMemoryBytes:         r.megabytes("max_memory"),
		NetworkAccess:          r.flag("network_access"),
		Python:                 r.word("python", "auto", "system", "embedded"),
		PythonPackages:         r.texts("python_packages", whole),
		SystemPackages:         r.texts("system_packages", commas),
	}
	m.AllowedTools, m.HasAllowedTools = r.tools("allowed-tools")
	m.Unknown = r.unknown()
	return m
}

// take removes a field from rest. A null field counts as absent: ok is false, but f has its line and value.
// All other methods call take first, so that even a field with a wrong value is not reported as
// unknown.
func (r *fieldReader) take(name string) (f field, ok bool) {
	f, ok = r.rest[name]
	r.known = append(r.known, name)
	delete(r.rest, name)
	return f, ok && f.value.ShortTag() != "!!null"
}

// mismatch reports a value of the wrong type and keeps it.
// Callers then return the zero value: a skill loads without the field rather than not at all.
func (r *fieldReader) mismatch(name string, f field, want string) {
	value := ""
	if f.value.Kind == yaml.ScalarNode {
		value = ", not " + snapshot.Printable(f.value.Value)
	}
	r.Error(f.line, RuleFieldType, "Field '%s' must be %s%s", name, want, value)
	r.kept[name] = plain(f.value)
}

// text reads a string. It takes the characters of a number or a date, with a warning: version: 1.0
// means "1.0".
// The warning is needed because YAML drops what it takes as insignificant: 1.10 is the number 1.1
// for other programs that read the same file.
func (r *fieldReader) text(name string) string {
	f, ok := r.take(name)
	if !ok {
		return ""
	}
	if f.value.Kind != yaml.ScalarNode {
		r.mismatch(name, f, "a string")
		return ""
	}
	if f.value.ShortTag() != "!!str" {
		r.Warn(f.line, RuleFieldType, "Field '%s' is not a string: put %s in quotes", name, snapshot.Printable(f.value.Value))
	}
	return strings.TrimSpace(f.value.Value)
}

// word reads a field that allows only a few words. Any other value is reported and ignored.
func (r *fieldReader) word(name string, words ...string) string {
	f, ok := r.take(name)
	if !ok {
		return ""
	}
	if f.value.Kind == yaml.ScalarNode {
		if v := strings.TrimSpace(f.value.Value); slices.Contains(words, v) {
			return v
		}
	}
	r.mismatch(name, f, "one of "+strings.Join(words, ", "))
	return ""
}

// flag reads a boolean. YAML 1.1 words such as yes and off are accepted with a warning.
func (r *fieldReader) flag(name string) bool {
	f, ok := r.take(name)
	if !ok {
		return false
	}
	if f.value.Kind == yaml.ScalarNode {
		if v, ok := boolWord(f.value.Value); ok {
			if f.value.ShortTag() != "!!bool" {
				r.Warn(f.line, RuleFieldType, "Field '%s' is not a boolean: write %t", name, v)
			}
			return v
		}
	}
	r.mismatch(name, f, "true or false")
	return false
}

// amount reads a number above 0. Any other value is reported and ignored. A number in quotes is
// read too. ok is false if no value is usable; a finding then says why.
// unit is for messages only; the callers convert.
func (r *fieldReader) amount(name, unit string) (float64, field, bool) {
	f, ok := r.take(name)
	if !ok {
		return 0, f, false
	}
	want := "a number of " + unit
	if f.value.Kind != yaml.ScalarNode {
		r.mismatch(name, f, want)
		return 0, f, false
	}
	v, ok := number(f.value)
	if tag := f.value.ShortTag(); tag != "!!int" && tag != "!!float" {
		var err error
		if v, err = strconv.ParseFloat(strings.TrimSpace(f.value.Value), 64); err != nil {
			r.mismatch(name, f, want)
			return 0, f, false
		}
		ok = !math.IsInf(v, 0) && !math.IsNaN(v)
		r.Warn(f.line, RuleFieldType, "Field '%s' is not a number: remove the quotes", name)
	}
	if !ok || v <= 0 {
		r.Error(f.line, RuleFieldValue, "Field '%s' must be above 0: it is ignored", name)
		r.kept[name] = plain(f.value)
		return 0, f, false
	}
	return v, f, true
}

// seconds reads a duration in seconds, lowered to MaxExecutionTime. 0 means that none is
// given.
func (r *fieldReader) seconds(name string) time.Duration {
	v, f, ok := r.amount(name, "seconds")
	if !ok {
		return 0
	}
	if v > MaxExecutionTime.Seconds() {
		r.Error(f.line, RuleFieldValue, "Field '%s' must be at most %g: it is lowered to that", name, MaxExecutionTime.Seconds())
		return MaxExecutionTime
	}
	// 0 means that no value is given, so a tiny value becomes 1 ns.
	return max(time.Duration(v*float64(time.Second)), 1)
}

// megabytes reads a size in units of 2^20 bytes and returns bytes. 0 means that none is
// given, or that it is too small for a sandbox.
func (r *fieldReader) megabytes(name string) int64 {
	v, f, ok := r.amount(name, "MB")
	if !ok {
		return 0
	}
	if v > maxMemoryMB {
		r.Error(f.line, RuleFieldValue, "Field '%s' must be at most %d: it is lowered to that", name, maxMemoryMB)
		v = maxMemoryMB
	}
	if v*(1<<20) < MinMemoryBytes {
		r.Error(f.line, RuleFieldValue, "Field '%s' must be at least %d (MB), which a sandbox needs to start: it is ignored", name, MinMemoryBytes>>20)
		return 0
	}
	return int64(v * (1 << 20))
}

// texts reads a list of strings. It splits a single string into a list.
func (r *fieldReader) texts(name string, split func(string) []string) []string {
	f, ok := r.take(name)
	if !ok {
		return nil
	}
	switch f.value.Kind {
	case yaml.ScalarNode:
		r.Warn(f.line, RuleFieldType, "Field '%s' is not a list", name)
		list := split(f.value.Value)
		r.itemLines[name] = slices.Repeat([]int{f.value.Line}, len(list))
		return list
	case yaml.SequenceNode:
		return r.items(name, f)
	}
	r.mismatch(name, f, "a list of strings")
	return nil
}

// items returns the scalars of a list. If the list has anything else, the whole list is
// also kept.
// Null items are dropped: an author who leaves a dash without text means nothing by it.
func (r *fieldReader) items(name string, f field) []string {
	list := make([]string, 0, len(f.value.Content))
	odd := false
	for _, item := range f.value.Content {
		item = deref(item)
		switch {
		case item.Kind != yaml.ScalarNode:
			odd = true
		case item.ShortTag() != "!!null":
			list = append(list, strings.TrimSpace(item.Value))
			r.itemLines[name] = append(r.itemLines[name], item.Line)
		}
	}
	if odd {
		r.mismatch(name, f, "a list of strings")
	}
	return list
}

// tools reads allowed-tools. The value is a string with several entries, or a list of such
// strings.
// given is true even if the value is null, is empty or has the wrong type: the author wanted to restrict
// commands, so a mistake must not lift the restriction.
func (r *fieldReader) tools(name string) (entries []string, given bool) {
	f, ok := r.take(name)
	switch {
	case f.value == nil:
		return nil, false
	case !ok:
		r.Warn(f.line, RuleFieldType, "Field '%s' is empty: no command may run; remove the key, or name rules", name)
		return nil, true
	}
	switch f.value.Kind {
	case yaml.ScalarNode:
		return splitTools(f.value.Value), true
	case yaml.SequenceNode:
		for _, item := range r.items(name, f) {
			entries = append(entries, splitTools(item)...)
		}
		return entries, true
	}
	r.mismatch(name, f, "a string or a list of strings")
	return nil, true
}

// textMap reads metadata. A value that is not a scalar becomes JSON text.
// Published skills have nested metadata for one host, so nothing of it may be lost.
func (r *fieldReader) textMap(name string) map[string]string {
	f, ok := r.take(name)
	if !ok {
		return nil
	}
	if f.value.Kind != yaml.MappingNode {
		r.mismatch(name, f, "a mapping of strings to strings")
		return nil
	}
	m := map[string]string{}
	for i := 0; i+1 < len(f.value.Content); i += 2 {
		key, line, value := keyText(f.value.Content[i]), f.value.Content[i].Line, deref(f.value.Content[i+1])
		if _, ok := m[key]; ok {
			r.Error(line, RuleDuplicateKey, "field '%s.%s' is repeated: the last one counts", name, snapshot.Printable(key))
		}
		switch {
		case value.Kind != yaml.ScalarNode:
			r.Warn(line, RuleFieldType, "Field '%s.%s' must be a string", name, snapshot.Printable(key))
			text, err := json.Marshal(plain(value))
			if err != nil { // plain gives nothing that JSON can't hold
				panic(err)
			}
			m[key] = string(text)
		case value.ShortTag() == "!!null":
			m[key] = ""
		default:
			if value.ShortTag() != "!!str" {
				r.Warn(line, RuleFieldType, "Field '%s.%s' is not a string: put %s in quotes", name, snapshot.Printable(key), snapshot.Printable(value.Value))
			}
			m[key] = value.Value
		}
	}
	return m
}

// unknown returns the fields that no method has taken and the values of the wrong type,
// or nil without any.
// Call it after all others. The sorted order keeps findings equal from load to load.
func (r *fieldReader) unknown() map[string]any {
	for _, name := range slices.Sorted(maps.Keys(r.rest)) {
		f := r.rest[name]
		// Many published skills have fields for one host, so this is no error.
		near := ""
		// Two edits make another word of a short one, and a field that is there is not misspelled.
		if meant := spelling.Closest(name, r.known); len(name) > 4 && meant != "" && r.lines[meant] == 0 {
			near = "; did you mean " + meant + "?"
		}
		r.Warn(f.line, RuleUnknownField, "Unexpected fields in frontmatter: %s%s", snapshot.Printable(name), near)
		r.kept[name] = plain(f.value)
	}
	if len(r.kept) == 0 {
		return nil
	}
	return r.kept
}

// commas splits text at commas and drops blank items.
func commas(text string) []string {
	var list []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			list = append(list, item)
		}
	}
	return list
}

// whole returns text as one item: in a requirement such as pandas>=2,<3 the comma splits
// nothing.
func whole(text string) []string {
	if text = strings.TrimSpace(text); text == "" {
		return nil
	}
	return []string{text}
}
