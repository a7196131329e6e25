package durable

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/skillrun/skillrun/internal/scarcetest"
)

func TestMayPass(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, missing := os.ReadFile(filepath.Join(dir, "none"))
	_, directory := os.ReadFile(dir)
	_, beneath := os.ReadFile(filepath.Join(file, "x"))
	_, content := Checked(nil)
	for _, err := range []error{nil, missing, directory, beneath, content} {
		if MayPass(err) {
			t.Errorf("%v may pass", err)
		}
	}
	scarcetest.WithoutDescriptors(t, func() {
		_, err := os.ReadFile(file)
		if !MayPass(fmt.Errorf("read: %w", errors.Join(content, err))) {
			t.Errorf("%v may not pass", err)
		}
	})
}
