package main

import (
	"os"
	"path/filepath"
	"testing"
)

// A lock file with null is a lock file without pins, to which add can write.
func TestReadPinsOfNull(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), lockName)
	if err := os.WriteFile(file, []byte("null\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	pins, err := readPins(file)
	if err != nil {
		t.Fatal(err)
	}
	pins["pdf"] = pin{Version: "1"}
	if len(pins) != 1 {
		t.Errorf("got %v, want one pin", pins)
	}
}
