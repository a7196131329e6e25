package main

import (
	"os"
	"path/filepath"
	"testing"
)

// FuzzConfig checks that a file is either refused with a reason or gives a valid config, and
// that nothing panics.
func FuzzConfig(f *testing.F) {
	documented, err := os.ReadFile(filepath.Join("..", "..", "deploy", "skillrund.yaml"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(documented)
	for _, seed := range []string{
		"", "a: b", "- x", "limits: {default: {memory: 1GiB, wall_time: 0s}}", "listen: {unix: \"\", tcp: 127.0.0.1:0}",
		"ids: {first: 4294967295, count: 2}", "a: &a [*a, *a]", "state_dir: ../../x\n---\nstate_dir: y", "log: {level: none}",
		"grace: -1s", "retention: {age: 99999999h}", "message_bytes: 99999999999999999999", "listen: {unix_mode: 0999}",
	} {
		f.Add([]byte(seed))
	}
	file := filepath.Join(f.TempDir(), "skillrund.yaml")
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := loadConfig(file)
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without a word")
			}
			return
		}
		var found problems
		c.validate(found.bad)
		if err := found.err(); err != nil {
			t.Errorf("loaded, and not valid: %v", err)
		}
	})
}
