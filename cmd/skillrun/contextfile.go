package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"unicode"

	"gopkg.in/yaml.v3"

	"github.com/skillrun/skillrun/internal/durable"
	"github.com/skillrun/skillrun/internal/yamlerror"
)

// contextFileVariable names the environment variable with the path of the file of contexts.
const contextFileVariable = "SKILLRUN_CONTEXT_FILE"

const (
	maxContextName = 64
	// maxContextFile is the most that is read of the file, in bytes.
	maxContextFile = 1 << 20
)

// A target is a context of the file: a daemon, and the caller's credentials for it. It has no secret, only
// where one is.
type target struct {
	Address    string `yaml:"address,omitempty" json:"address,omitempty"`
	MCPAddress string `yaml:"mcp_address,omitempty" json:"mcp_address,omitempty"`

	TLS           bool   `yaml:"tls,omitempty" json:"tls,omitempty"`
	TLSCA         string `yaml:"tls_ca,omitempty" json:"tls_ca,omitempty"`
	TLSCert       string `yaml:"tls_cert,omitempty" json:"tls_cert,omitempty"`
	TLSKey        string `yaml:"tls_key,omitempty" json:"tls_key,omitempty"`
	TLSServerName string `yaml:"tls_server_name,omitempty" json:"tls_server_name,omitempty"`

	// At most one of these: a file, a program with its arguments, the name of a variable.
	TokenFile     string   `yaml:"token_file,omitempty" json:"token_file,omitempty"`
	TokenCommand  []string `yaml:"token_command,omitempty,flow" json:"token_command,omitempty"`
	TokenVariable string   `yaml:"token_variable,omitempty" json:"token_variable,omitempty"`
}

// credential says in a word or two where the caller's credential comes from.
func (t *target) credential() string {
	switch {
	case t.TokenFile != "":
		return "token file"
	case len(t.TokenCommand) > 0:
		return "token command"
	case t.TokenVariable != "":
		return "token in $" + t.TokenVariable
	case t.TLSCert != "":
		return "certificate"
	}
	return "-"
}

// contextFile is the file of contexts.
// Two commands that write it at the same time do not see each other's change: the last one wins. A
// person runs these commands, so the file has no lock.
type contextFile struct {
	Current  string             `yaml:"current,omitempty"`
	Contexts map[string]*target `yaml:"contexts"`

	path string
}

// contextPath returns the file's path. It returns an error if the user has no home directory.
func contextPath() (string, error) {
	if path := os.Getenv(contextFileVariable); path != "" {
		return path, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("no directory for the file of contexts: %w; set %s", err, contextFileVariable)
	}
	return filepath.Join(dir, "skillrun", "contexts.yaml"), nil
}

// readContexts reads the file. One that does not exist has no contexts.
func readContexts() (*contextFile, error) {
	path, err := contextPath()
	if err != nil {
		return nil, err
	}
	f := &contextFile{Contexts: map[string]*target{}, path: path}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	// A file that another user can write could send this user's token anywhere, or name a program
	// as its token command. The check is on the open file, so the file can't be exchanged in
	// between.
	if err := onlyOurs(file); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(file, maxContextFile))
	if err != nil {
		return nil, err
	}
	if err := f.decode(data); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, f.check()
}

// decode reads the text of the file. Its errors name the line, the key and the value, and say what would be right. A
// mistyped key must not be ignored: without its tls_ca, a context would trust other authorities.
func (f *contextFile) decode(data []byte) error {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	if err := decoder.Decode(&doc); err == io.EOF {
		return nil
	} else if err != nil {
		line, text := yamlerror.Split(err, strings.Split(strings.TrimRight(string(data), "\n"), "\n"))
		if line == 0 {
			return errors.New(text)
		}
		return fmt.Errorf("line %d: %s", line, text)
	}
	if err := decodeKeys("", doc.Content[0], reflect.ValueOf(f).Elem()); err != nil {
		return err
	}
	if decoder.Decode(&second) != io.EOF {
		return fmt.Errorf("line %d: more than one document; remove the line --- and everything after it", max(second.Line, 1))
	}
	return nil
}

// decodeKeys reads a mapping with the name at into a struct, by the yaml tags of its fields, or into a map of pointers to
// structs. A key without a value sets nothing in a struct.
func decodeKeys(at string, node *yaml.Node, out reflect.Value) error {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if node.ShortTag() == "!!null" {
		return nil
	}
	if node.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: %swant keys with their values", node.Line, at)
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		name := at + key.Value + ": "
		if first := seen[key.Value]; first > 0 {
			return fmt.Errorf("line %d: %sthe key is on line %d already; remove one of the two", key.Line, name, first)
		}
		seen[key.Value] = key.Line
		if out.Kind() == reflect.Map {
			entry := reflect.Zero(out.Type().Elem())
			if value.ShortTag() != "!!null" {
				entry = reflect.New(out.Type().Elem().Elem())
				if err := decodeKeys(name, value, entry.Elem()); err != nil {
					return err
				}
			}
			out.SetMapIndex(reflect.ValueOf(key.Value), entry)
			continue
		}
		if err := decodeField(name, key, value, out); err != nil {
			return err
		}
	}
	return nil
}

// decodeField reads the value of a key of a struct.
func decodeField(name string, key, value *yaml.Node, out reflect.Value) error {
	var known []string
	for i := range out.NumField() {
		tag, _, _ := strings.Cut(out.Type().Field(i).Tag.Get("yaml"), ",")
		if tag != key.Value {
			known = append(known, tag)
			continue
		}
		field := out.Field(i)
		if field.Kind() == reflect.Map {
			return decodeKeys(name, value, field)
		}
		if value.Decode(field.Addr().Interface()) != nil {
			want := map[reflect.Kind]string{reflect.Bool: "true or false", reflect.Slice: "a list of texts, such as [vault, read, secret]", reflect.String: "a text"}[field.Kind()]
			return fmt.Errorf("line %d: %s%.80q is not %s", value.Line, name, value.Value, want)
		}
		return nil
	}
	return fmt.Errorf("line %d: %sunknown key; the keys here are %s", key.Line, name, strings.Trim(strings.Join(known, ", "), ", "))
}

// check finds mistakes that a person made in an editor.
// The commands write nothing that fails here.
func (f *contextFile) check() error {
	for name, t := range f.Contexts {
		if err := contextName(name); err != nil {
			return fmt.Errorf("%s: %w", f.path, err)
		}
		if t == nil {
			return fmt.Errorf("%s: context %s is empty; delete it or give it an address", f.path, name)
		}
		sources := 0
		for _, set := range []bool{t.TokenFile != "", len(t.TokenCommand) > 0, t.TokenVariable != ""} {
			if set {
				sources++
			}
		}
		if sources > 1 {
			return fmt.Errorf("%s: context %s: give one of token_file, token_command and token_variable", f.path, name)
		}
	}
	return nil
}

// write replaces the file as a whole. It has mode 0600, in a directory of mode 0700.
func (f *contextFile) write() error {
	path := f.path
	// A link is kept, and the file that it leads to is replaced.
	if to, err := filepath.EvalSymlinks(path); err == nil {
		path = to
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	var text bytes.Buffer
	text.WriteString("# Written by skillrun context. It has no secrets; 'skillrun context --help' explains it.\n")
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	if err := encoder.Encode(f); err != nil {
		return err
	}
	return durable.WriteFile(path, text.Bytes())
}

// named returns a context that must exist.
func (f *contextFile) named(name string) (*target, error) {
	t := f.Contexts[name]
	if t == nil {
		return nil, fmt.Errorf("no context %q in %s; 'skillrun context list' shows those there are", name, f.path)
	}
	return t, nil
}

// contextName checks a name: it is written in shells and tables.
func contextName(name string) error {
	bad := func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }
	if name == "" || len(name) > maxContextName || strings.HasPrefix(name, "-") || strings.ContainsFunc(name, bad) {
		return fmt.Errorf("%q can't be the name of a context; use 1 to %d letters, digits and marks, without blanks", name, maxContextName)
	}
	return nil
}
