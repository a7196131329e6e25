package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/skillrun/skillrun/internal/ingress/identity"
	"github.com/skillrun/skillrun/internal/spelling"
	"github.com/skillrun/skillrun/internal/yamlerror"
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
		f.list = append(f.list, syntaxProblem(err, strings.Split(strings.TrimRight(string(data), "\n"), "\n")))
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
		switch {
		case out.Type().Elem().Kind() == reflect.Struct:
			f.items(key, node, out)
		case node.Kind == yaml.SequenceNode:
			f.texts(key, node, out)
		default:
			f.scalar(key, node, out)
		}
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

// texts reads a list of texts. An item that can't be read becomes an empty text, so that the others keep their places
// and are checked, too.
func (f *problems) texts(key string, node *yaml.Node, out reflect.Value) {
	list := reflect.MakeSlice(out.Type(), len(node.Content), len(node.Content))
	wants := "a text; write it in quotes"
	if _, ok := out.Interface().(ruleList); ok {
		wants = `a rule; write it in quotes, such as "example.com:443" or "[2001:db8::7]:443"`
	}
	out.Set(list)
	for i, item := range node.Content {
		at := index(key, i)
		f.lines[at] = item.Line
		if item.Kind == yaml.AliasNode {
			item = item.Alias
		}
		if item.ShortTag() == "!!null" {
			f.bad(at, "the item is empty; write a text, or remove the item")
		} else if err := item.Decode(list.Index(i).Addr().Interface()); err != nil {
			f.bad(at, "%s is not %s", shown(item), wants)
		}
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
	if near := spelling.Closest(name, names); near != "" {
		text = "unknown key; did you mean " + near + "?"
	}
	if nested := nestedKeys(name, out.Type()); nested != "" {
		text = "unknown key; write " + nested
	}
	f.list = append(f.list, problem{key, at.Line, text})
}

// nestedKeys returns how to write the path of a key, such as limits.max.memory, as mappings in YAML. It returns "" if name
// has no dot, or is not the path of a key in a struct of the type t.
func nestedKeys(name string, t reflect.Type) string {
	parts := strings.Split(name, ".")
	if len(parts) == 1 {
		return ""
	}
	for _, part := range parts {
		if t.Kind() == reflect.Map {
			t = t.Elem()
			continue
		}
		if t.Kind() != reflect.Struct {
			return ""
		}
		ok := false
		for _, f := range reflect.VisibleFields(t) {
			if ok = f.Tag.Get("yaml") == part; ok {
				t = f.Type
				break
			}
		}
		if !ok {
			return ""
		}
	}
	last := len(parts) - 1
	return strings.Join(parts[:last], ": {") + ": {" + parts[last] + ": ..." + strings.Repeat("}", last)
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
	case reflect.Int:
		return "a whole number; write one such as 100" // its range, which validate checks, is smaller than the type's
	case reflect.Uint, reflect.Uint32, reflect.Uint64:
		return fmt.Sprintf("a whole number from 0 to %d", ^uint64(0)>>(64-t.Bits()))
	}
	return "a text"
}

// syntaxProblem explains an error of yaml.v3 about the lines of a file.
func syntaxProblem(err error, lines []string) problem {
	line, text := yamlerror.Split(err, lines)
	switch {
	case strings.Contains(text, "found a tab") || strings.Contains(text, "cannot start any token"):
		if line > 0 && line <= len(lines) && yamlerror.TabIndent(lines[line-1]) {
			return problem{line: line, text: "a tab; indent with spaces"}
		}
		text += "; write the text in quotes"
	case strings.Contains(text, "alphabetic or numeric character") || strings.Contains(text, "unknown anchor"):
		text += `; write a text that begins with * or & in quotes, such as "*.example.com"`
	case strings.Contains(text, "control characters"):
		text += `; remove the character, or write it as "\x01" in quotes`
	case yamlerror.Encoding(text):
		text += "; save the file in UTF-8"
	}
	return problem{line: line, text: text}
}
