package manifest

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/skillrun/skillrun/internal/yamlerror"
)

// parseYAML parses front matter into nodes. It checks that the front matter is a mapping,
// and it checks the limits of size and depth, so that later walks of the nodes need no
// limits. An alias counts as much as the node that it stands for.
func parseYAML(src source, f *Findings) (*yaml.Node, bool) {
	// With blank lines in front, yaml.v3 reports the line numbers of the file.
	text := strings.Repeat("\n", src.yamlLine-1) + src.yaml
	doc, more, err := decodeYAML(text)
	if err != nil {
		line, message := yamlerror.Split(err, strings.Split(strings.TrimRight(text, "\n"), "\n"))
		f.Stop(max(line, src.yamlLine), RuleYAML, "Invalid YAML in frontmatter: %s", message)
		return nil, false
	}
	if doc == nil || len(doc.Content) != 1 || deref(doc.Content[0]).Kind != yaml.MappingNode {
		f.Stop(src.yamlLine, RuleFrontMatter, "SKILL.md frontmatter must be a YAML mapping")
		return nil, false
	}
	if more {
		f.Error(src.yamlLine, RuleYAML, "frontmatter holds more than one YAML document: only the first is read")
	}
	root := deref(doc.Content[0])
	if err := new(yamlBudget).spend(root, 0); err != nil {
		f.Stop(src.yamlLine, RuleYAMLBounds, "frontmatter: %v", err)
		return nil, false
	}
	return root, true
}

// decodeYAML returns the first document, or nil, and whether another document follows.
// It recovers from panics: yaml.v3 has panicked on malformed input before
// (CVE-2022-28948), is no longer maintained, and a SKILL.md must not end the daemon.
func decodeYAML(text string) (doc *yaml.Node, more bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the parser gave up: %v", p)
		}
	}()
	d := yaml.NewDecoder(strings.NewReader(text))
	doc = new(yaml.Node)
	if err := d.Decode(doc); errors.Is(err, io.EOF) {
		return nil, false, nil
	} else if err != nil {
		return nil, false, err
	}
	return doc, !errors.Is(d.Decode(new(yaml.Node)), io.EOF), nil
}

// yamlBudget counts the nodes and bytes of a walk, see maxYAMLNodes and maxYAMLBytes.
type yamlBudget struct{ nodes, bytes int }

// spend counts a node and everything below it. Aliases are counted at every use, since a
// few nested aliases can stand for billions of nodes.
func (b *yamlBudget) spend(n *yaml.Node, depth int) error {
	n = deref(n)
	b.nodes++
	b.bytes += len(n.Value)
	switch {
	case depth > maxYAMLDepth:
		return fmt.Errorf("nested deeper than %d levels", maxYAMLDepth)
	case b.nodes > maxYAMLNodes:
		return fmt.Errorf("more than %d values with aliases expanded", maxYAMLNodes)
	case b.bytes > maxYAMLBytes:
		return fmt.Errorf("more than %d bytes with aliases expanded", maxYAMLBytes)
	}
	for _, c := range n.Content {
		if err := b.spend(c, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// deref returns the node that an alias stands for. An alias never refers to another alias.
func deref(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// plain converts a node into a JSON value: nil, bool, float64, string, []any or
// map[string]any. A value that JSON cannot hold exactly (large integer, infinity, date,
// binary) stays text as written.
func plain(n *yaml.Node) any {
	n = deref(n)
	switch n.Kind {
	case yaml.SequenceNode:
		list := make([]any, 0, len(n.Content))
		for _, c := range n.Content {
			list = append(list, plain(c))
		}
		return list
	case yaml.MappingNode:
		m := make(map[string]any, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			m[keyText(n.Content[i])] = plain(n.Content[i+1])
		}
		return m
	}
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!bool":
		if v, ok := boolWord(n.Value); ok {
			return v
		}
	case "!!int", "!!float":
		if v, ok := number(n); ok && math.Abs(v) < 1<<53 {
			return v
		}
	}
	return n.Value
}

// keyText returns a mapping's key as text. A key that is not a scalar is formatted by fmt.
func keyText(n *yaml.Node) string {
	n = deref(n)
	if n.Kind == yaml.ScalarNode {
		return n.Value
	}
	return fmt.Sprint(plain(n))
}

// number returns the finite value of a scalar that is written as a number.
func number(n *yaml.Node) (float64, bool) {
	var v float64
	if err := n.Decode(&v); err != nil || math.IsInf(v, 0) || math.IsNaN(v) {
		return 0, false
	}
	return v, true
}

// boolWord parses the booleans of YAML 1.1. ok is false for any other word.
func boolWord(s string) (value, ok bool) {
	switch strings.ToLower(s) {
	case "true", "yes", "on":
		return true, true
	case "false", "no", "off":
		return false, true
	}
	return false, false
}
