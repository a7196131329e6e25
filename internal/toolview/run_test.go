package toolview

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/executor"
)

// Advice for a model names no field of a gRPC request, which tools don't have.
func TestAdviceInTheWordsOfTools(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ advice, want string }{
		{"It needed more than its 128 MiB of memory; raise limits.memory_bytes or let it work in smaller pieces.",
			"It needed more than its 128 MiB of memory; raise its memory limit, which the operator sets, or let it work in smaller pieces."},
		{"raise limits.workspace_bytes, and limits.memory_bytes with it: the workspace counts as memory.",
			"raise the size of its workspace, and its memory limit with it: the workspace counts as memory."},
		{"try again later or with a longer queue_timeout.", "try again later or with a longer queue timeout, which the operator sets."},
		{"It was ended by SIGTERM.", "It was ended by SIGTERM."},
	} {
		if got := (run{Outcome: executor.Outcome{End: executor.OOMKilled, Advice: tt.advice}}).why(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
	source, err := os.ReadFile("../executor/advice.go")
	if err != nil {
		t.Fatal(err)
	}
	fields := regexp.MustCompile(`limits\.[a-z]+_?[a-z]*|queue_timeout|artifacts_refused`).FindAllString(string(source), -1)
	if len(fields) < 8 {
		t.Errorf("advice.go names %v; want the limits", fields)
	}
	for _, field := range fields {
		if strings.Contains(toolWords.Replace(field), field) {
			t.Errorf("%s has no word", field)
		}
	}
}
