package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/skillrun/skillrun/internal/executor"
)

// An invalid message gets an answer with a protocol code. The answer does not mention
// internals of the daemon.
func TestReadEnvelope(t *testing.T) {
	const request = `{"jsonrpc":"2.0","id":%s,"method":"x","params":%s}`
	for _, tt := range []struct {
		name, body string
		code       int64  // 0: the message is valid
		id         string // in the answer
	}{
		{"a text as id", fmt.Sprintf(request, `"é"`, "{}"), 0, ""},
		{"zero", fmt.Sprintf(request, "0", "{}"), 0, ""},
		{"2^53", fmt.Sprintf(request, "9007199254740992", "{}"), 0, ""},
		{"-2^53", fmt.Sprintf(request, "-9007199254740992", "{}"), 0, ""},
		{"2^53+1", fmt.Sprintf(request, "9007199254740993", "{}"), -32600, "9007199254740993"},
		{"-2^53-1", fmt.Sprintf(request, "-9007199254740993", "{}"), -32600, "-9007199254740993"},
		{"past 64 bits", fmt.Sprintf(request, "18446744073709551617", "{}"), -32600, "18446744073709551617"},
		{"1.2", fmt.Sprintf(request, "1.2", "{}"), -32600, "1.2"},
		{"1.0", fmt.Sprintf(request, "1.0", "{}"), -32600, "1.0"},
		{"1e3", fmt.Sprintf(request, "1e3", "{}"), -32600, "1e3"},
		{"-0", fmt.Sprintf(request, "-0", "{}"), -32600, "-0"},
		{"an object as id", fmt.Sprintf(request, "{}", "{}"), -32600, ""},
		{"true as id", fmt.Sprintf(request, "true", "{}"), -32600, ""},
		{"no params", `{"jsonrpc":"2.0","id":1,"method":"x"}`, 0, ""},
		{"a list as params", fmt.Sprintf(request, "1", "[]"), -32602, "1"},
		{"a number as name", fmt.Sprintf(request, "1", `{"name":1}`), -32602, "1"},
		{"a text as _meta", fmt.Sprintf(request, "1", `{"_meta":"x"}`), -32602, "1"},
		{"a text as token", fmt.Sprintf(request, "1", `{"_meta":{"progressToken":"x"}}`), 0, ""},
		{"a number as token", fmt.Sprintf(request, "1", `{"_meta":{"progressToken":7}}`), 0, ""},
		{"a large number as token", fmt.Sprintf(request, "1", `{"_meta":{"progressToken":9007199254740993}}`), -32600, "1"},
		{"a list as token", fmt.Sprintf(request, "1", `{"_meta":{"progressToken":[]}}`), -32600, "1"},
		{"a fraction cancelled", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1.5}}`, -32600, ""},
		{"no method", `{"jsonrpc":"2.0","id":1}`, -32600, "1"},
		{"params and no method", `{"jsonrpc":"2.0","id":"a","params":{}}`, -32600, `"a"`},
		{"a number as method", `{"jsonrpc":"2.0","id":1,"method":2}`, -32600, "1"},
		{"a response", `{"jsonrpc":"2.0","id":1,"result":{}}`, 0, ""},
		{"an error", `{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}`, 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, bad := readEnvelope([]byte(tt.body))
			if bad == nil {
				bad = &refusal{}
			}
			if bad.code != tt.code || string(bad.id) != tt.id {
				t.Errorf("got code %d for %q (%s), want %d for %q", bad.code, bad.id, bad.reason, tt.code, tt.id)
			}
			for _, inner := range []string{"Go ", "map[", "json.", "mcp."} {
				if strings.Contains(bad.reason, inner) {
					t.Errorf("%q in %q", inner, bad.reason)
				}
			}
		})
	}
}

func TestCoded(t *testing.T) {
	own := &jsonrpc.Error{Code: codeBusy, Message: "busy"}
	for _, tt := range []struct {
		err  error
		code int64
	}{
		{errors.New("plain"), -32600}, {own, codeBusy}, {fmt.Errorf("more: %w", own), codeBusy}, {&jsonrpc.Error{Message: "no code"}, -32600},
	} {
		wire := (*jsonrpc.Error)(nil)
		if got := coded(tt.err); !errors.As(got, &wire) || wire.Code != tt.code || got.Error() != tt.err.Error() {
			t.Errorf("%v: got %v", tt.err, got)
		}
	}
	if coded(nil) != nil {
		t.Error("no error became one")
	}
}

// Errors of the SDK about requests at the wrong time have a protocol code, and ids come
// back unchanged.
func TestLinesCodes(t *testing.T) {
	d := startIdle(t, nil)
	conn, r, err := upgrade(d.mine)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	p := &pipe{t, conn, r}
	code := func(m map[string]any) any {
		e, _ := m["error"].(map[string]any)
		return e["code"]
	}
	p.send(`{"jsonrpc":"2.0","id":"early","method":"tools/list"}`)
	if m := p.receive(); m["id"] != "early" || code(m) != -32600.0 {
		t.Errorf("before initialize: %v", m)
	}
	p.send(initialize)
	if m := p.receive(); m["result"] == nil {
		t.Fatalf("initialize: %v", m)
	}
	p.send(strings.Replace(initialize, `"id":1`, `"id":"twice"`, 1))
	if m := p.receive(); code(m) != -32600.0 {
		t.Errorf("a second initialize: %v", m)
	}
	p.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	p.send(`{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}`)
	line, err := p.r.ReadString('\n')
	if err != nil || !strings.Contains(line, `"id":9007199254740993`) || !strings.Contains(line, "up to 2^53") {
		t.Errorf("an id that a double changes: %s, %v", line, err)
	}
}

// The contents of a resource have a text or a blob, even an empty one.
func TestEmptyResources(t *testing.T) {
	d := startDaemon(t, nil)
	d.write("demo/assets/empty.txt", "")
	d.write("demo/assets/latin.txt", "na\xefve")
	d.reload()
	p := d.pipe(t)
	read := func(uri string) map[string]any {
		t.Helper()
		p.send(`{"jsonrpc":"2.0","id":"r","method":"resources/read","params":{"uri":"` + uri + `"}}`)
		m := p.receive()
		result, _ := m["result"].(map[string]any)
		contents, _ := result["contents"].([]any)
		if len(contents) != 1 {
			t.Fatalf("%s: %v", uri, m)
		}
		return contents[0].(map[string]any)
	}
	p.send(`{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"run_skill_script","arguments":{"skill":"demo","script_path":"scripts/once.py"}}}`)
	p.receive()
	for _, uri := range []string{"skill://demo/assets/empty.txt", "skill://demo/SKILL.md?offset=" + fmt.Sprint(len(skillFiles["demo/SKILL.md"])), "execution://" + d.newest() + "/stderr"} {
		got := read(uri)
		if text, ok := got["text"].(string); !ok || text != "" || got["uri"] != uri || got["blob"] != nil {
			t.Errorf("%s: %v", uri, got)
		}
	}
	if got := read("skill://demo/assets/latin.txt"); got["mimeType"] != "application/octet-stream" || got["blob"] == nil || got["text"] != nil {
		t.Errorf("no UTF-8: %v", got)
	}
	r := &raw{t: t, http: httpClient(t, d.mine), version: "2026-07-28"}
	const params = `{"uri":"skill://demo/assets/empty.txt","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"raw","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}`
	r.exchange("POST", `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":`+params+`}`, nil, "Mcp-Method", "resources/read", "Mcp-Name", "skill://demo/assets/empty.txt")
	if got := r.log.String(); !strings.Contains(got, `"text":""`) || !strings.Contains(got, `"resultType":"complete"`) {
		t.Errorf("without sessions: %s", got)
	}
}

// If a text combines both streams, only streams with output are linked.
func TestPrintedStreams(t *testing.T) {
	d := startDaemon(t, nil)
	c := d.connect(t, "lines", "2025-11-25")
	for script, want := range map[string]string{"scripts/once.py": "[stdout]", "scripts/fail.py": "[stdout stderr]"} {
		c.call("run_skill_script", map[string]any{"skill": "demo", "script_path": script})
		if got := fmt.Sprint(d.printed(t.Context(), alice, d.newest())); got != want {
			t.Errorf("%s: got %s, want %s", script, got, want)
		}
	}
}

// The answer for a large file is at most about twice the file, which is what answerBytes reserves for it.
func TestLargeAnswersAreBounded(t *testing.T) {
	for text, isText := range map[string]bool{
		"plain ": true, "<li>An ordinary list item</li>\n": true, "\"\\\n": true, "\u2028\u2029": true, "\u201cquoted\u201d": true,
		"<": false, "a&": false, "\x01": false, "\u2028\u2028<<<<": false,
	} {
		data := []byte(strings.Repeat(text, (maxPiece+len(text))/len(text)))
		got := pieceOf("skill://x/y", executor.URI{}, data, false, "")
		encoded, err := json.Marshal(got)
		if err != nil || len(encoded) > 2*len(data)+1000 {
			t.Errorf("%q: %d bytes take %d, %v", text, len(data), len(encoded), err)
		}
		if c := got.Contents[0]; (c.Text != "") != isText || (c.Blob != nil) == isText {
			t.Errorf("%q: a text: %v, want %v", text, c.Text != "", isText)
		}
	}
}

// A call that reads is known as one, however long its arguments are.
func TestCallsThatRead(t *testing.T) {
	for tool, reads := range map[string]bool{"read_file": true, "run_skill_script": false} {
		for _, padding := range []int{0, 2 * maxSmall} {
			e, bad := readEnvelope([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `","arguments":{"x":"` + strings.Repeat("x", padding) + `"}}}`))
			if bad != nil || e.reads != reads {
				t.Errorf("%s with %d bytes: reads is %t, %v", tool, padding, e.reads, bad)
			}
		}
	}
}
