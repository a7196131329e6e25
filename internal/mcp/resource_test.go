package mcp

import (
	"net/url"
	"strings"
	"testing"
)

// A URI made from a name and a path can be parsed back to both.
func FuzzTarget(f *testing.F) {
	for _, name := range []string{"demo", "odd name", "ä", "a%b", "a?b#c", "100", "a:b@c", "~x", "[::1]", "a&b=c+d", "%zz"} {
		f.Add(name, "SKILL.md")
		f.Add(name, "a b/"+name+"?offset=3")
	}
	f.Add("x", "\xff\x00/..")
	f.Fuzz(func(t *testing.T, name, path string) {
		if name == "" || path == "" || strings.ContainsAny(name, "/") {
			t.Skip("not a valid name or path")
		}
		uri := skillURI(name, path)
		if _, err := url.Parse(uri); err != nil {
			t.Fatalf("%q: %v", uri, err) // the SDK would panic on it
		}
		got, ok := parseTarget(uri, skillScheme)
		if !ok || got.owner != name || got.path != path || got.offset != 0 || got.base != uri {
			t.Errorf("%q: got %+v, %v; want %q, %q", uri, got, ok, name, path)
		}
		if piece, ok := parseTarget(uri+"?offset=7", skillScheme); !ok || piece.offset != 7 || piece.base != uri {
			t.Errorf("%q from 7: %+v, %v", uri, piece, ok)
		}
	})
}

// Every URI from a client is either refused or parsed to a valid target.
func FuzzParseTarget(f *testing.F) {
	for _, uri := range []string{"skill://a/b", "skill:///a/b", "skill://", "skill:////", "skill://a/b?offset=1", "skill://a/%", "x"} {
		f.Add(uri)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		got, ok := parseTarget(uri, skillScheme)
		if ok && (got.owner == "" && !strings.Contains(uri, "%") || got.offset < 0 || !strings.HasPrefix(uri, got.base)) {
			t.Errorf("%q: %+v", uri, got)
		}
	})
}
