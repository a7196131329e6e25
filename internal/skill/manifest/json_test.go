package manifest

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestFrontMatterAsJSON(t *testing.T) {
	for _, tt := range []struct{ yaml, want string }{
		{"name: demo\ndescription: d", `{"name":"demo","description":"d"}`},
		{"z: 1\na: {c: 2, b: [3, x]}", `{"z":1,"a":{"c":2,"b":[3,"x"]}}`},
		{"a: yes\nb: no\nc: on\nd: True\ne: FALSE\nf: y", `{"a":"yes","b":"no","c":"on","d":true,"e":false,"f":"y"}`},
		{"a:\nb: ~\nc: Null\nd: ''", `{"a":null,"b":null,"c":null,"d":""}`},
		{"a: 010\nb: +7\nc: 0o17\nd: 0xfF\ne: -0\nf: 1_000", `{"a":10,"b":7,"c":15,"d":255,"e":-0,"f":"1_000"}`},
		{"a: 1.0\nb: .5\nc: 1.\nd: 1e3\ne: -1.5E-3\nf: +1.25\ng: 01.5", `{"a":1.0,"b":0.5,"c":1,"d":1e3,"e":-1.5E-3,"f":1.25,"g":1.5}`},
		{"a: 123456789012345678901234567890\nb: .inf\nc: .nan\nd: 1:30", `{"a":123456789012345678901234567890,"b":".inf","c":".nan","d":"1:30"}`},
		{"a: 2026-09-13\nb: 2026-09-13T10:00:00Z", `{"a":"2026-09-13","b":"2026-09-13T10:00:00Z"}`},
		{"a: '7'\nb: \"true\"\nc: !!str 7\nd: !!int \"7\"\ne: !custom 7\nf: !!binary aGk=", `{"a":"7","b":"true","c":"7","d":7,"e":"7","f":"aGk="}`},
		{"a: |\n  one\n  two\nb: >\n  one\n  two\nc: >-\n  one", `{"a":"one\ntwo\n","b":"one two\n","c":"one"}`},
		{"a: &x {k: 1}\nb: *x\nc: [*x]", `{"a":{"k":1},"b":{"k":1},"c":[{"k":1}]}`},
		{"a: 1\nb: 2\na: 3", `{"b":2,"a":3}`},
		{"1: a\ntrue: b\n~: c\n? [x]\n: d", `{"1":"a","true":"b","~":"c","[x]":"d"}`},
		{"<<: {a: 1}\nb: 2", `{"<<":{"a":1},"b":2}`},
		{"a: <b> & \"c\" \\ é", `{"a":"<b> & \"c\" \\ é"}`},
	} {
		d := Parse([]byte("---\n"+tt.yaml+"\n---\n"), "SKILL.md", "")
		if string(d.JSON) != tt.want || !json.Valid(d.JSON) {
			t.Errorf("%q: got  %s\nwant %s", tt.yaml, d.JSON, tt.want)
		}
	}
	// CRLF line ends and a byte order mark are not part of the values.
	if d := Parse([]byte("\ufeff---\r\na: |\r\n  x\r\n  y\r\n---\r\n"), "SKILL.md", ""); string(d.JSON) != `{"a":"x\ny\n"}` {
		t.Errorf("got %s", d.JSON)
	}
	for name, text := range map[string]string{
		"no front matter": "text", "a list": "---\n- a\n---\n", "not YAML": "---\na: [\n---\n",
		"a line separator": "---\na: b\u2028c\n---\n", "large by its aliases": "---\na: &a " + strings.Repeat("x", 30<<10) + "\nb: [" + strings.Repeat("*a, ", 10) + "]\n---\n",
	} {
		if d := Parse([]byte(text), "SKILL.md", ""); d.JSON != nil {
			t.Errorf("%s: %.100s", name, d.JSON)
		}
	}
}

func TestPublishedName(t *testing.T) {
	for _, name := range []string{"a", "pdf", "pdf-2", "2pdf", strings.Repeat("a", 64)} {
		if !PublishedName(name) {
			t.Errorf("%q is refused", name)
		}
	}
	for _, name := range []string{"", "A", "a_b", "a b", "-a", "a-", "a--b", "ä", "a.b", "a\n", strings.Repeat("a", 65)} {
		if PublishedName(name) {
			t.Errorf("%q is accepted", name)
		}
	}
}
