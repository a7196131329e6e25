package network

import (
	"os/exec"
	"testing"
)

// The reason in the log has no colon without a text of the helper.
func TestLastWords(t *testing.T) {
	for text, want := range map[string]string{"": "signal: killed", "; it did not answer\n": "signal: killed: it did not answer", "panic: ": "signal: killed: panic:"} {
		p := &process{command: exec.Command("/bin/sh", "-c", "kill -9 $$"), stderr: &tail{b: []byte(text)}}
		_ = p.command.Run()
		if got := p.lastWords().Error(); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
