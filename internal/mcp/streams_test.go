package mcp

import (
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
)

// A connection of skillrun mcp, and each request that listens, counts towards the quota of its tenant. Other
// requests go on, and the end of a stream makes room.
func TestStreamsCountTowardsTheQuota(t *testing.T) {
	d := startIdle(t, nil)
	one, err := d.x.Tenant(alice)
	if err != nil {
		t.Fatal(err)
	}
	one.Streams = 1 // nothing reads it yet
	r := &raw{t: t, http: httpClient(t, d.mine), version: "2026-07-28"}
	// ask sends a request and returns the status and the body of the answer.
	ask := func(httpMethod, method string) string {
		resp := r.request(httpMethod, `{"jsonrpc":"2.0","id":7,"method":"`+method+`","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"raw","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`, "Mcp-Method", method)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") == "" {
			t.Error("a refusal without Retry-After")
		}
		return resp.Status + string(body)
	}
	for range 2 {
		conn, _, err := upgrade(d.mine)
		if err != nil {
			t.Fatal(err)
		}
		if n := d.x.OpenStreams(one); n != 1 {
			t.Errorf("%d open streams, want 1", n)
		}
		if second, _, err := upgrade(d.mine); err == nil || !strings.Contains(err.Error(), "429") {
			t.Errorf("a second connection: got %v", err)
			if err == nil {
				second.Close()
			}
		}
		for method, id := range map[string]string{http.MethodGet: "null", http.MethodPost: "7"} {
			got := ask(method, methodListen)
			if !strings.HasPrefix(got, "429") || !strings.Contains(got, "1 of 1 open streams") || !strings.Contains(got, `"id":`+id) {
				t.Errorf("%s that listens: got %s", method, got)
			}
		}
		if got := ask(http.MethodPost, "tools/list"); !strings.HasPrefix(got, "200") {
			t.Errorf("a request that does not listen: got %s", got)
		}
		conn.Close()
		for begin := time.Now(); d.x.OpenStreams(one) > 0; runtime.Gosched() {
			if time.Since(begin) > patience {
				t.Fatal("the stream has not ended")
			}
		}
	}
}
