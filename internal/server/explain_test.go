package server

import (
	"errors"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/executor"
)

func TestExplain(t *testing.T) {
	d := startIdle(t, nil)
	full := &executor.QuotaError{Limit: 1, Used: 2}
	if got := d.Explain(full); got != full.Error() {
		t.Errorf("got %q, want %q", got, full)
	}
	got := d.Explain(errors.New("open /var/lib/secret: no such file"))
	reference, ok := strings.CutPrefix(got, "internal error (reference ")
	if !ok || strings.Contains(got, "secret") {
		t.Errorf("got %q", got)
	}
	if len(d.logs.With(strings.TrimSuffix(reference, ")"), "/var/lib/secret")) != 1 {
		t.Error("an error of ours is not in the log")
	}
}
