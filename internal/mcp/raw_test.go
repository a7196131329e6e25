package mcp

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the transcripts anew")

// A raw is a conversation over HTTP that records the bytes on the wire.
type raw struct {
	t       *testing.T
	http    *http.Client
	version string
	session string
	log     strings.Builder
}

// request sends a message and returns the response with its body unread.
func (r *raw) request(method, body string, header ...string) *http.Response {
	r.t.Helper()
	return r.send(method, strings.NewReader(body), header...)
}

// send does a request. It has a Content-Length if net/http knows the type of body.
func (r *raw) send(method string, body io.Reader, header ...string) *http.Response {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, endpoint, body)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if r.version != "" {
		req.Header.Set("MCP-Protocol-Version", r.version)
	}
	if r.session != "" {
		req.Header.Set("Mcp-Session-Id", r.session)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := r.http.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp
}

// exchange sends a message and records both sides. If event is not nil, it is called for
// each notification in the answer.
func (r *raw) exchange(method, body string, event func(), header ...string) {
	r.t.Helper()
	fmt.Fprintf(&r.log, "--> %s %s\n", method, masked(body))
	resp := r.request(method, body, header...)
	defer resp.Body.Close()
	kind := resp.Header.Get("Content-Type")
	fmt.Fprintf(&r.log, "<-- %d %s\n", resp.StatusCode, kind)
	if id := resp.Header.Get("Mcp-Session-Id"); id != "" {
		r.session = id
	}
	if kind != "text/event-stream" {
		data, err := io.ReadAll(resp.Body)
		if err != nil {
			r.t.Error(err)
		}
		if len(data) > 0 {
			fmt.Fprintf(&r.log, "    %s\n", masked(strings.TrimSpace(string(data))))
		}
		return
	}
	for data := range events(resp.Body) {
		fmt.Fprintf(&r.log, "    %s\n", masked(data))
		if event != nil {
			event()
			event = nil
		}
	}
}

// events yields the data of server-sent events.
func events(body io.Reader) func(func(string) bool) {
	return func(yield func(string) bool) {
		lines := bufio.NewScanner(body)
		lines.Buffer(nil, 32<<20)
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && !yield(data) {
				return
			}
		}
	}
}

var masks = []struct {
	re   *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "ID"},
	{regexp.MustCompile(`sha256:[0-9a-f]{64}`), "sha256:DIGEST"},
	{regexp.MustCompile(`(execution_time(?:_ms)?\\*": ?)[0-9.e-]+`), "${1}TIME"},
}

// masked replaces the parts of a message that differ from run to run, and long texts that
// other packages test.
func masked(text string) string {
	var m map[string]any
	if json.Unmarshal([]byte(text), &m) == nil {
		if result, ok := m["result"].(map[string]any); ok {
			if tools, ok := result["tools"].([]any); ok {
				for _, tool := range tools {
					tool := tool.(map[string]any)
					for _, key := range []string{"description", "inputSchema", "outputSchema"} {
						if tool[key] != nil {
							tool[key] = "..."
						}
					}
				}
			}
			if result["instructions"] != nil {
				result["instructions"] = "..."
			}
		}
		data, err := json.Marshal(m)
		if err != nil {
			panic(err)
		}
		text = string(data)
	}
	for _, m := range masks {
		text = m.re.ReplaceAllString(text, m.with)
	}
	return text
}

func (r *raw) compare(path string) {
	r.t.Helper()
	got := r.log.String()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			r.t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		r.t.Fatal(err)
	}
	if got != string(want) {
		gotLines, wantLines := strings.Split(got, "\n"), strings.Split(string(want), "\n")
		for i := range gotLines {
			if i >= len(wantLines) || gotLines[i] != wantLines[i] {
				r.t.Fatalf("%s:%d: got\n%s\nwant\n%s\n(go test -update rewrites the file)", path, i+1, gotLines[i], append(wantLines, "", "")[min(i, len(wantLines))])
			}
		}
		r.t.Fatalf("%s: the transcript ends early", path)
	}
}

func TestTranscript(t *testing.T) {
	d := startDaemon(t, nil)
	r := &raw{t: t, http: httpClient(t, d.mine)}
	post := func(body string) { r.exchange("POST", body, nil) }

	post(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`)
	r.version = "2025-11-25"
	post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	post(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
	post(`{"jsonrpc":"2.0","id":3,"method":"tools/list"}`)
	post(`{"jsonrpc":"2.0","id":"four","method":"tools/call","params":{"name":"run_skill_script","arguments":{"skill":"demo","script_path":"scripts/once.py"},"_meta":{"progressToken":7}}}`)
	post(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"run_skill_script","arguments":{"skill":"demo","script_path":"scripts/fail.py"}}}`)
	post(`{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"bash","arguments":{"skill":"demo","command":"echo hello && cat references/guide.md"}}}`)
	post(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"bash","arguments":{"skill":"demo","command":"rm -rf /"}}}`)
	post(`{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"activate_skill","arguments":{"skill":"nope"}}}`)
	post(`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"bash","arguments":{"skill":1}}}`)
	post(`{"jsonrpc":"2.0","id":10,"method":"tools/call","params":{"name":"nope","arguments":{}}}`)
	r.exchange("POST", `{"jsonrpc":"2.0","id":11,"method":"tools/call","params":{"name":"run_skill_script","arguments":{"skill":"demo","script_path":"scripts/wait.py","timeout":600},"_meta":{"progressToken":"wait"}}}`, func() {
		post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":11,"reason":"enough"}}`)
	})
	post(`{"jsonrpc":"2.0","id":12,"method":"resources/list"}`)
	post(`{"jsonrpc":"2.0","id":13,"method":"resources/templates/list"}`)
	post(`{"jsonrpc":"2.0","id":14,"method":"resources/read","params":{"uri":"skill://demo/references/guide.md"}}`)
	post(`{"jsonrpc":"2.0","id":15,"method":"resources/read","params":{"uri":"skill://demo/assets/logo.png"}}`)
	post(`{"jsonrpc":"2.0","id":16,"method":"resources/read","params":{"uri":"skill://demo/nope"}}`)
	post(`{"jsonrpc":"2.0","id":17,"method":"nope"}`)
	post(`{"jsonrpc":"2.0","id":18,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`)
	post(`{"jsonrpc":"2.0","id":19,`)
	post(`[{"jsonrpc":"2.0","id":20,"method":"ping"}]`)
	r.exchange("DELETE", "", nil)
	post(`{"jsonrpc":"2.0","id":21,"method":"ping"}`)
	if got := d.outcome(d.newest()); got.End != "CANCELLED" {
		t.Errorf("the cancelled execution: %+v", got)
	}
	r.compare("testdata/transcript.txt")
}

// From version 2026-07-28 on there are no sessions: every request identifies its client.
func TestTranscriptWithoutSessions(t *testing.T) {
	d := startDaemon(t, nil)
	r := &raw{t: t, http: httpClient(t, d.mine), version: "2026-07-28"}
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"raw","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}`
	post := func(method, name, params string) {
		r.exchange("POST", `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{`+params+meta+`}}}`, nil, "Mcp-Method", method, "Mcp-Name", name)
	}
	post("server/discover", "", "")
	post("tools/call", "run_skill_script", `"name":"run_skill_script","arguments":{"skill":"demo","script_path":"scripts/once.py"},`)
	post("tools/call", "nope", `"name":"nope","arguments":{},`)
	post("resources/read", "skill://demo/references/guide.md", `"uri":"skill://demo/references/guide.md",`)
	post("resources/read", "skill://demo/nope", `"uri":"skill://demo/nope",`)
	post("ping", "", "")
	post("nope", "", "")
	if r.session != "" {
		t.Errorf("a session: %s", r.session)
	}
	r.compare("testdata/transcript-2026-07-28.txt")
}
