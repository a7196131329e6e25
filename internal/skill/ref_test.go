package skill

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/skill/manifest"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

func TestParseRef(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0a", 32)
	tests := []struct {
		ref, name, digest string
		wantName, wantPin bool // expected type of the error
	}{
		{ref: "demo", name: "demo"},
		{ref: "demo@" + digest, name: "demo", digest: digest},
		{ref: "a@b", name: "a@b"},
		{ref: "a@b@" + digest, name: "a@b", digest: digest},
		{ref: "ns/demo", name: "ns/demo"},
		{ref: "ns/a b@" + digest, name: "ns/a b", digest: digest},
		{ref: "", wantName: true},
		{ref: "ns/", wantName: true},
		{ref: "/demo", wantName: true},
		{ref: "NS/demo", wantName: true},
		{ref: "ns/../demo", wantName: true},
		{ref: "ns/inner/demo", wantName: true},
		{ref: "@" + digest, wantName: true},
		{ref: "../x@" + digest, wantName: true},
		{ref: "demo@sha256:", wantPin: true},
		{ref: "demo@sha256:12", wantPin: true},
		{ref: "demo@" + strings.ToUpper(digest), name: "demo@" + strings.ToUpper(digest), wantName: true}, // the name is too long
		{ref: "demo@sha256:" + strings.Repeat("0A", 32), wantPin: true},
		{ref: "demo@" + digest + "\n", wantPin: true},
		{ref: "demo@" + digest + "@" + digest, wantPin: true},
	}
	for _, tt := range tests {
		name, got, err := ParseRef(tt.ref)
		var invalid *manifest.InvalidNameError
		var pin *InvalidPinError
		if errors.As(err, &invalid) != tt.wantName || errors.As(err, &pin) != tt.wantPin {
			t.Errorf("ParseRef(%q): %v, want name error %t, pin error %t", tt.ref, err, tt.wantName, tt.wantPin)
			continue
		}
		if err == nil && (name != tt.name || got != tt.digest) {
			t.Errorf("ParseRef(%q) = %q, %q, want %q, %q", tt.ref, name, got, tt.name, tt.digest)
		}
	}
}

func TestErrorTexts(t *testing.T) {
	zeros := "sha256:" + strings.Repeat("0", 64)
	tests := []struct {
		err  error
		want string
	}{
		{&DigestMismatch{"demo", zeros, "sha256:1"}, "demo: digest mismatch: want " + zeros + ", have sha256:1"},
		{&InvalidPinError{"demo", "sha256:x\n"}, `demo: 'sha256:x\u000a' is not a digest: want sha256: and 64 lowercase hex digits`},
		{&AmbiguousError{"demo", []string{"a/demo", "b/demo"}}, `"demo" is the name of several skills; use one of a/demo, b/demo`},
		{&NamespaceError{"a"}, `"a" is the namespace of another root; rename the skill, or give its root a namespace, too`},
		{&DuplicateError{"demo", "/a/demo", "/b/demo"}, `skill "demo" is already loaded from /a/demo; /b/demo is ignored`},
		{&snapshot.BoundError{What: "bytes", Most: 10}, "skill has more than 10 bytes"},
		{&manifest.ManifestError{Finding: manifest.Finding{Severity: manifest.SeverityError, File: "SKILL.md", Line: 3, Rule: manifest.RuleYAML, Message: "x"}}, "SKILL.md:3: x"},
		{&manifest.ManifestError{Finding: manifest.Finding{Severity: manifest.SeverityError, File: "SKILL.md", Line: 0, Rule: manifest.RuleYAML, Message: "x"}}, "SKILL.md: x"},
	}
	for _, tt := range tests {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}

// Every valid name is a single directory beneath /skills.
func FuzzName(f *testing.F) {
	for _, s := range []string{"demo", "..", "a/b", ".", "a\x00", "\u2028", "a@sha256:b", "...", strings.Repeat("😀", 64)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if manifest.ValidName(name) != nil {
			namespace, _ := manifest.SplitName(name)
			if _, _, err := ParseRef(name); err == nil && namespace == "" && !strings.Contains(name, manifest.PinMark) {
				t.Errorf("%q is not valid, but a reference", name)
			}
			return
		}
		p := (&Skill{Name: name}).BaseDir()
		if in := (&Skill{Name: "ns/" + name}).BaseDir(); in != p {
			t.Errorf("%q in a namespace gives %q", name, in)
		}
		if filepath.Clean(p) != p || filepath.Dir(p) != "/skills" || filepath.Base(p) != name || len(name) > unix.NAME_MAX {
			t.Errorf("%q gives %q", name, p)
		}
		got, digest, err := ParseRef(name + "@sha256:" + strings.Repeat("0", 64))
		if err != nil || got != name || len(digest) != 71 {
			t.Errorf("pinned %q: %q, %q, %v", name, got, digest, err)
		}
	})
}
