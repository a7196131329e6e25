package manifest

import (
	"strings"
	"testing"
)

func TestWrappers(t *testing.T) {
	for line, want := range map[string]string{
		"nohup x -y": "x -y", "nice x": "x", "nice -n 5 x": "x", "nice -n5 x": "x", "nice -n -5 x": "x", "nice -10 x": "x", "nice --adjustment=5 x": "x",
		"timeout 5 x": "x", "timeout 0.5s x": "x", "timeout -s KILL 5 x": "x", "timeout -k 1s 5m x -k": "x -k", "timeout --signal INT 1 x": "x", "timeout --signal=INT --kill-after=5 --foreground --preserve-status 9 x": "x",
		"nohup timeout -k 1 5 nice -n 5 uv run x": "uv run x",
		// A word that is no known option, and a wrapper that starts nothing, end the search.
		"nohup timeout 5 nice -x y": "nice -x y", "nohup nice": "nice", "x nohup y": "x nohup y", "nohup": "nohup", "nohup -- x": "nohup -- x", "nice": "nice", "nice -n": "nice -n", "nice -n 5": "nice -n 5",
		"nice -n x y": "nice -n x y", "nice -n5x y": "nice -n5x y", "nice --adjustment 5 x": "nice --adjustment 5 x", "timeout x": "timeout x", "timeout 5": "timeout 5", "timeout 5x y": "timeout 5x y",
		"timeout 5 -s KILL x": "timeout 5 -s KILL x", "timeout -s 5 x": "timeout -s 5 x", "timeout -s": "timeout -s", "timeout -sKILL 5 x": "timeout -sKILL 5 x", "timeout -s=KILL 5 x": "timeout -s=KILL 5 x", "timeout -v 5 x": "timeout -v 5 x", "/usr/bin/nice x": "/usr/bin/nice x",
	} {
		words := strings.Fields(line)
		if got := strings.Join(words[AfterWrappers(words):], " "); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	if words := []string{"nohup", ""}; AfterWrappers(words) != 0 {
		t.Error("an empty word is no command")
	}
}
