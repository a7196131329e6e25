package manifest

import (
	"bytes"
	"encoding/json"
	"math/big"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/skillrun/skillrun/internal/lazyregexp"
)

// maxJSONBytes bounds the front matter as JSON. Front matter of MaxFrontMatterBytes stays below
// it, unless aliases repeat much of it.
const maxJSONBytes = 256 << 10

// asJSON returns the front matter as a JSON object: every field that the author wrote, in the
// order of the document. It returns nil if the object is larger than maxJSONBytes, or if the text has
// a character that ends a line in YAML 1.1, as in yaml.v3, but not in YAML 1.2.
//
// Scalars without quotes follow the core schema of YAML 1.2 (section 10.3), which the parsers of
// MCP's own clients use: yes and 2024-01-02 are texts, 010 is ten. A number keeps its digits. A
// value that JSON cannot hold, such as .inf, is a text as written. Of equal keys the last counts.
func asJSON(root *yaml.Node, text string) json.RawMessage {
	if strings.ContainsAny(text, "\u0085\u2028\u2029") {
		return nil
	}
	var w jsonWriter
	w.node(root)
	if w.Len() > maxJSONBytes {
		return nil
	}
	return w.Bytes()
}

// A jsonWriter writes nodes as JSON text. encoding/json alone can't do it: a Go map loses the order
// of the fields, and a float64 loses digits of large numbers.
type jsonWriter struct{ bytes.Buffer }

// node writes a node. yamlBudget has bounded its depth and its size.
func (w *jsonWriter) node(n *yaml.Node) {
	n = deref(n)
	switch n.Kind {
	case yaml.SequenceNode:
		w.list('[', ']', len(n.Content), func(i int) { w.node(n.Content[i]) })
	case yaml.MappingNode:
		fields := lastOfEach(n)
		w.list('{', '}', len(fields), func(i int) {
			w.text(keyText(n.Content[fields[i]]))
			w.WriteByte(':')
			w.node(n.Content[fields[i]+1])
		})
	default:
		w.scalar(n)
	}
}

func (w *jsonWriter) list(open, end byte, count int, item func(int)) {
	w.WriteByte(open)
	for i := range count {
		if i > 0 {
			w.WriteByte(',')
		}
		item(i)
	}
	w.WriteByte(end)
}

// lastOfEach returns the positions of a mapping's keys, without keys that come again later.
func lastOfEach(n *yaml.Node) []int {
	last := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		last[keyText(n.Content[i])] = i
	}
	var at []int
	for i := 0; i+1 < len(n.Content); i += 2 {
		if last[keyText(n.Content[i])] == i {
			at = append(at, i)
		}
	}
	return at
}

// quoted are the styles of scalars that are texts whatever they look like: "1" is not a number.
const quoted = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle

// An explicit tag wins over the style: !!int "1" is a number, !!str 1 is a text (YAML 1.2, section
// 6.9.1).
func (w *jsonWriter) scalar(n *yaml.Node) {
	plain := n.Style&quoted == 0
	if n.Style&yaml.TaggedStyle != 0 {
		switch n.ShortTag() {
		case "!!null", "!!bool", "!!int", "!!float":
			plain = true
		default:
			plain = false
		}
	}
	if value := coreValue(n.Value); plain && value != "" {
		w.WriteString(value)
		return
	}
	w.text(n.Value)
}

// <, > and & are written as such, since the text is not embedded in HTML.
func (w *jsonWriter) text(s string) {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic("manifest: " + err.Error()) // cannot happen: a string always encodes
	}
	w.Truncate(w.Len() - 1) // Encode ends the line
}

// The numbers of YAML's core schema, and of these the ones that JSON writes in the same way.
var (
	jsonNumber = lazyregexp.New(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)
	coreInt    = lazyregexp.New(`^[-+]?[0-9]+$`)
	coreBased  = lazyregexp.New(`^(0o[0-7]+|0x[0-9a-fA-F]+)$`)
	coreFloat  = lazyregexp.New(`^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`)
)

// coreValue returns the JSON of a plain scalar that is not a text in the core schema of YAML 1.2,
// else "".
func coreValue(s string) string {
	switch s {
	case "", "~", "null", "Null", "NULL":
		return "null"
	case "true", "True", "TRUE":
		return "true"
	case "false", "False", "FALSE":
		return "false"
	}
	// base 0 lets big.Int read the prefixes 0o and 0x. Without a prefix the base must be 10: for
	// base 0, 010 would be eight.
	base := 10
	if coreBased.MatchString(s) {
		base = 0
	}
	switch {
	case jsonNumber.MatchString(s):
		return s
	case base == 0, coreInt.MatchString(s):
		if v, ok := new(big.Int).SetString(s, base); ok {
			return v.String()
		}
	case coreFloat.MatchString(s):
		if v, err := strconv.ParseFloat(s, 64); err == nil {
			if text, err := json.Marshal(v); err == nil {
				return string(text)
			}
		}
	}
	return ""
}
