package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
)

// The tests of conversations are in cmd/skillrun, whose command mcp they run.

func requests(id any, method string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%v,"method":"%s"}`, id, method)
}

func calls(id any, tool string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%v,"method":"tools/call","params":{"name":"%s"}}`, id, tool)
}

func cancels(id any) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%v}}`, id)
}

func replies(id any) string { return fmt.Sprintf(`{"jsonrpc":"2.0","id":%v,"result":{}}`, id) }

func refuses(id any) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%v,"error":{"code":-32000,"message":"the daemon stops","data":{"reason":"leave"}}}`, id)
}

// Without a daemon, at most maxWaiting messages are read from the agent.
func TestWaitingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		b := &bridge{Config: Config{Stdout: io.Discard}, ctx: ctx, connecting: true}
		b.room.L = &b.mu
		take := func(lines ...string) {
			for _, line := range lines {
				b.take(readMessage([]byte(line)))
			}
		}
		for id := range maxWaiting {
			take(calls(id, "bash"))
		}
		go take(calls("65", "bash"), calls("66", "bash"))
		synctest.Wait()
		if n := len(b.waiting); n != maxWaiting {
			t.Errorf("%d messages wait, want %d", n, maxWaiting)
		}
		take(cancels(0))
		synctest.Wait()
		if n, last := len(b.waiting), b.waiting[maxWaiting-1].id; n != maxWaiting || last != "65" {
			t.Errorf("%d messages wait, the last is %s, want %d, 65", n, last, maxWaiting)
		}
		cancel()
		b.room.Broadcast()
	})
}

func TestMessages(t *testing.T) {
	for _, tt := range []struct {
		line, id, method, cancels string
		repeats                   bool
	}{
		{requests(1, "tools/list"), "1", "tools/list", "", true},
		{requests(`"\u0061\/b"`, "x"), `"a/b"`, "x", "", false},
		{calls(1, "list_files"), "1", "tools/call", "", true},
		{calls(1, "write_file"), "1", "tools/call", "", false},
		{`{"id":1,"method":"tools/call","params":[]}`, "1", "tools/call", "", false},
		{`{"id":1,"method":7}`, "", "", "", false},
		{replies(`"a"`), `"a"`, "", "", false},
		{cancels(7), "", "notifications/cancelled", "7", false},
		{cancels(`"x"`), "", "notifications/cancelled", `"x"`, false},
		{`{"method":"notifications/cancelled","params":7}`, "", "notifications/cancelled", "", false},
		{`[]`, "", "", "", false},
	} {
		m := readMessage([]byte(tt.line))
		if m.id != tt.id || m.method != tt.method || m.cancels() != tt.cancels || m.mayRepeat() != tt.repeats {
			t.Errorf("%s: got %q, %q, cancels %q, repeats %v", tt.line, m.id, m.method, m.cancels(), m.mayRepeat())
		}
	}
	for line, want := range map[string]bool{
		refuses(1): true, replies(1): false, `{"id":1,"result":{"reason":"leave"}}`: false,
		strings.Replace(refuses(1), "leave", "other", 1): false, strings.Replace(refuses(1), "-32000", "-32602", 1): false,
	} {
		if got := readMessage([]byte(line)).refused(); got != want {
			t.Errorf("%s: refused: got %v", line, got)
		}
	}
	var answer map[string]any
	if err := json.Unmarshal(readMessage([]byte(requests(`"<"`, "x"))).answer(1, "text"), &answer); err != nil || answer["id"] != "<" {
		t.Errorf("got %v, %v", answer, err)
	}
}
