package durable

import (
	"slices"
	"testing"
)

func TestChecked(t *testing.T) {
	for _, data := range []string{"", "\n", `{"versions":[]}`} {
		file := WithSum([]byte(data))
		if got, err := Checked(file); err != nil || string(got) != data {
			t.Errorf("%q: got %q, %v", data, got, err)
		}
		for i := range file {
			changed := slices.Clone(file)
			changed[i] ^= 1
			if got, err := Checked(changed); err == nil {
				t.Errorf("%q: got %q from %q", data, got, changed)
			}
			if got, err := Checked(file[:i]); err == nil {
				t.Errorf("%q: got %q from %q", data, got, file[:i])
			}
		}
	}
}
