package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/skillrun/skillrun/internal/ingress/identity"
)

// decode reads a YAML file into *c, which holds the defaults. It continues after a mistake,
// so that one run reports all mistakes. A value that can't be read keeps its default.
// yaml.v3 itself stops at the first error of an Unmarshaler and names no keys.
func (f *problems) decode(data []byte, c any) {
	f.lines = map[string]int{}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return // an empty file
	} else if err != nil {
		f.list = append(f.list, problem{text: strings.TrimPrefix(err.Error(), "yaml: ")})
		return
	}
	f.value("", doc.Content[0], reflect.ValueOf(c).Elem())
	var second yaml.Node
	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		f.list = append(f.list, problem{line: max(second.Line, 1), text: "more than one document; remove the line --- and everything after it"})
	}
}

// value reads one node. A null keeps the default, but empties lists and maps: "skills:" without
// a value is an empty list. Structs and maps are walked here, for the names and lines of their
// keys; yaml.v3 decodes the rest.
// An alias can't nest without end here: the walk follows the struct's fields, which are finite.
func (f *problems) value(key string, node *yaml.Node, out reflect.Value) {
	// An anchor's content may be used in several places, each with its own key.
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if node.ShortTag() == "!!null" {
		if kind := out.Kind(); kind == reflect.Slice || kind == reflect.Map {
			out.SetZero()
		}
		if list, ok := out.Addr().Interface().(*ruleList); ok {
			*list = ruleList{} // nil would be the default
		}
		return
	}
	switch out.Kind() {
	case reflect.Struct:
		if b, ok := out.Addr().Interface().(interface {
			begin(*yaml.Node) bool
			wants() string
		}); ok {
			if b.begin(node) {
				return
			}
			if node.Kind != yaml.MappingNode {
				f.bad(key, "%s is %s", shown(node), b.wants())
				return
			}
		}
		f.eachPair(key, node, func(name string, at *yaml.Node, value *yaml.Node) {
			f.field(join(key, name), name, at, value, out)
		})
	case reflect.Map:
		out.Set(reflect.MakeMap(out.Type()))
		f.eachPair(key, node, func(name string, _ *yaml.Node, value *yaml.Node) {
			entry := reflect.New(out.Type().Elem()).Elem()
			f.value(join(key, name), value, entry)
			out.SetMapIndex(reflect.ValueOf(name), entry)
		})
	case reflect.Slice:
		if out.Type().Elem().Kind() == reflect.Struct {
			f.items(key, node, out)
			return
		}
		f.scalar(key, node, out)
	default:
		f.scalar(key, node, out)
	}
}

// items reads a list of structs. A text stands for a struct with this text in its first field.
func (f *problems) items(key string, node *yaml.Node, out reflect.Value) {
	if node.Kind != yaml.SequenceNode {
		f.bad(key, "%s is not a list; write [a, b]", shown(node))
		return
	}
	out.Set(reflect.MakeSlice(out.Type(), len(node.Content), len(node.Content)))
	for i, item := range node.Content {
		at := index(key, i)
		f.lines[at] = item.Line
		if item.Kind == yaml.ScalarNode {
			f.scalar(at, item, out.Index(i).Field(0))
			continue
		}
		f.value(at, item, out.Index(i))
	}
}

// scalar lets yaml.v3 read a value that has no keys.
// A type with an UnmarshalYAML (size, duration) names the accepted values by its method wants.
func (f *problems) scalar(key string, node *yaml.Node, out reflect.Value) {
	// yaml.v3 would cut a number such as 1.5 down to 1. The types with an UnmarshalYAML do not.
	_, own := out.Addr().Interface().(yaml.Unmarshaler)
	cut := !own && (out.CanInt() || out.CanUint()) && node.ShortTag() == "!!float"
	if err := node.Decode(out.Addr().Interface()); err != nil || cut {
		f.bad(key, "%s is not %s", shown(node), wanted(out.Interface()))
	}
	if node.Kind == yaml.SequenceNode {
		for i, item := range node.Content {
			f.lines[index(key, i)] = item.Line
		}
	}
}

// field reads the value of one key of a struct. The name of a key is the yaml tag of the field.
// An unknown key is a mistake: a misspelled limit would otherwise have no effect and no message.
func (f *problems) field(key, name string, at, value *yaml.Node, out reflect.Value) {
	var names []string
	for i := range out.NumField() {
		tag := out.Type().Field(i).Tag.Get("yaml")
		if tag == "" {
			continue // not a key
		}
		if tag == name {
			f.value(key, value, out.Field(i))
			return
		}
		names = append(names, tag)
	}
	text := "unknown key; the keys here are " + strings.Join(names, ", ")
	if near := closest(name, names); near != "" {
		text = "unknown key; did you mean " + near + "?"
	}
	f.list = append(f.list, problem{key, at.Line, text})
}

// eachPair calls g for every key of a mapping and notes its line. A key with a null is not
// noted: it sets nothing, and resolve must still derive its value. Of a repeated key the first
// counts.
func (f *problems) eachPair(key string, node *yaml.Node, g func(name string, at, value *yaml.Node)) {
	if node.Kind != yaml.MappingNode {
		f.list = append(f.list, problem{key, node.Line, shown(node) + " is not a mapping; write keys with their values"})
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		at, value := node.Content[i], node.Content[i+1]
		if first := seen[at.Value]; first > 0 {
			f.list = append(f.list, problem{join(key, at.Value), at.Line, fmt.Sprintf("the key is on line %d already; remove one of the two", first)})
			continue
		}
		seen[at.Value] = at.Line
		if value.ShortTag() != "!!null" {
			f.lines[join(key, at.Value)] = at.Line
		}
		g(at.Value, at, value)
	}
}

// index is the key of one item of a list.
func index(key string, i int) string { return fmt.Sprintf("%s[%d]", key, i) }

// join is a key's name within its parent: "limits.max"; at the top level the name alone.
func join(key, name string) string { return strings.Trim(key+"."+name, ".") }

// shown formats a value for a message. It does not show lists and mappings, which are too
// long.
func shown(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	return fmt.Sprintf("%.80q", node.Value)
}

// wanted says which values v's type accepts. Its text follows "is not" in the message.
func wanted(v any) string {
	switch v := v.(type) {
	case interface{ wants() string }:
		return v.wants()
	case identity.Role:
		return "a role; write read, invoke, admin or operator"
	case slog.Level:
		return "a log level; write debug, info, warn or error"
	case bool:
		return "true or false"
	case []string:
		return "a list of texts; write [a, b]"
	}
	switch t := reflect.TypeOf(v); t.Kind() {
	case reflect.Int, reflect.Int32, reflect.Int64:
		return fmt.Sprintf("a whole number from 0 to %d", uint64(1)<<(t.Bits()-1)-1)
	case reflect.Uint, reflect.Uint32, reflect.Uint64:
		return fmt.Sprintf("a whole number from 0 to %d", ^uint64(0)>>(64-t.Bits()))
	}
	return "a text"
}

// closest returns the name that is at most two edits away from a misspelled name. It returns "" if
// no name is that close.
// Two edits find a swapped or a missing letter and still tell memory from message_bytes.
func closest(word string, names []string) string {
	best, at := "", 3
	for _, name := range names {
		if d := edits(word, name); d < at {
			best, at = name, d
		}
	}
	return best
}

// edits is the Levenshtein distance of two words. It counts bytes: the keys are ASCII.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = slices.Min([]int{cost, row[j] + 1, row[j+1] + 1})
		}
	}
	return row[len(b)]
}
