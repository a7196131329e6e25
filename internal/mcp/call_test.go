package mcp

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/toolview"
)

func TestCutText(t *testing.T) {
	long := strings.Repeat("€", maxText)
	got := cutText(long, maxText, "x://y")
	if !utf8.ValidString(got) || len(got) > maxText+100 {
		t.Errorf("%d bytes, valid %v", len(got), utf8.ValidString(got))
	}
	head, rest, _ := strings.Cut(got, "\n[... ")
	note, tail, _ := strings.Cut(rest, " ...]\n")
	var missing int
	fmt.Sscanf(note, "%d bytes left out; they are in the resource x://y", &missing)
	if len(head)+missing+len(tail) != len(long) || !strings.HasSuffix(note, "x://y") {
		t.Errorf("%d + %d + %d bytes, want %d: %s", len(head), missing, len(tail), len(long), note)
	}
}

func TestCutFields(t *testing.T) {
	long := strings.Repeat("<é>", maxText)
	quoted, err := json.Marshal(long)
	if err != nil {
		t.Fatal(err)
	}
	object := json.RawMessage(`{"z": 1.50, "stdout": ` + string(quoted) + `, "a": {"b": [` + string(quoted) + `]}, "other": ` + string(quoted) + `, "last": null}`)
	short, cuts := cutFields(object, "id")
	if fmt.Sprint(cuts) != "[stdout other]" {
		t.Errorf("cut %v", cuts)
	}
	if !strings.HasPrefix(string(short), `{"z": 1.50, "stdout": "<é>`) || !strings.HasSuffix(string(short), `, "last": null}`) {
		t.Errorf("got %.60s ... %s", short, short[len(short)-60:])
	}
	var m map[string]any
	if err := json.Unmarshal(short, &m); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(m["stdout"].(string), "execution://id/stdout") || strings.Contains(m["other"].(string), "execution://") {
		t.Error("the text does not name the resource that has the rest")
	}
	if m["a"].(map[string]any)["b"].([]any)[0] != long {
		t.Error("a field that is not a string has changed")
	}
	for _, same := range []string{`{"stdout": "short"}`, `{}`, `[` + string(quoted) + `]`, string(quoted), `{"a": ` + string(quoted[:len(quoted)-1])} {
		if got, cuts := cutFields(json.RawMessage(same), "id"); string(got) != same || cuts != nil {
			t.Errorf("%.40s changed to %.40s, %v", same, got, cuts)
		}
	}
}

func TestResultOfText(t *testing.T) {
	long := strings.Repeat("x", 3*maxText)
	r := result(toolview.Result{Content: long, Extras: toolview.Extras{ExecutionID: "id"}}, true, func() []string { return []string{"stdout"} })
	got := r.Content[0].(*sdk.TextContent).Text
	if len(got) > 2*maxText+100 || len(r.Content) != 2 {
		t.Errorf("%d bytes, %d contents", len(got), len(r.Content))
	}
	if r := result(toolview.Result{Content: long}, true, nil); len(r.Content) != 1 || r.Content[0].(*sdk.TextContent).Text != long {
		t.Error("the text of a tool that runs no program was cut")
	}
}

func TestLinksAreBounded(t *testing.T) {
	many := toolview.Result{Extras: toolview.Extras{ExecutionID: "id", Artifacts: make([]executor.Artifact, 3*maxLinks)}}
	if r := result(many, true, nil); len(r.Content) != 1+maxLinks {
		t.Errorf("%d contents", len(r.Content))
	}
}
