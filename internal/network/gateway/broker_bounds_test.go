package gateway

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/skillrun/skillrun/internal/network/dial"
	"github.com/skillrun/skillrun/internal/network/policy"
)

// A request with a credential is held until its answer has been read, and a program may have many.

// The head of a request with a credential is bounded, in bytes and in headers.
func TestCredentialHeads(t *testing.T) {
	o := newOrigin(t, nil, "api.test")
	set := bind(t, o.authority.PEM(), true, "api.test")
	for name, tt := range map[string]struct {
		change func(*http.Request)
		want   int
	}{
		"usual":        {withHeader("X", strings.Repeat("x", 4<<10)), http.StatusOK},
		"long":         {withHeader("X", strings.Repeat("x", 16<<10)), http.StatusRequestHeaderFieldsTooLarge},
		"many headers": {func(r *http.Request) { manyHeaders(r, maxFields+10) }, http.StatusRequestHeaderFieldsTooLarge},
	} {
		for _, http2 := range []bool{false, true} {
			b := newBox(t, []string{"api.test"}, nil, func(c *Config) { c.Credentials = set })
			// HTTP/2 tells the client the bound, so a client may send nothing.
			if code, text := get(t, b.client(t, set, http2, ""), "https://api.test/", tt.change); code != tt.want && !(code == 0 && tt.want != http.StatusOK && http2) {
				t.Errorf("%s, HTTP/2 %t: %d %s", name, http2, code, text)
			}
		}
		b := newBox(t, []string{"api.test"}, nil, func(c *Config) { c.Credentials = set })
		if code, text := get(t, b.client(t, set, false, ""), "http://api.test/", tt.change); code != tt.want {
			t.Errorf("%s, without TLS: %d %s", name, code, text)
		}
	}
}

func manyHeaders(r *http.Request, n int) {
	for i := range n {
		r.Header.Set(fmt.Sprint("A", i), "")
	}
}

// A tenant has a bound on connections and on requests with credentials, whatever its number of sandboxes.
func TestCredentialsOfATenantAreBounded(t *testing.T) {
	o := newOrigin(t, nil, "api.test")
	set := bind(t, o.authority.PEM(), false, "api.test")
	shared := NewShared(policy.DefaultTenantLimits(), dial.Ports{})
	shared.requests.most, shared.exchanges.most = 1, 2
	limited := func(c *Config) { c.Credentials, c.Shared = set, shared }
	first, second, third := newBox(t, []string{"api.test"}, nil, limited), newBox(t, []string{"api.test"}, nil, limited), newBox(t, []string{"api.test"}, nil, limited)

	waitFor := func(requests int64) {
		t.Helper()
		for late := time.Now().Add(30 * time.Second); shared.requests.used.Load() != requests; time.Sleep(time.Millisecond) {
			if time.Now().After(late) {
				t.Fatalf("%d requests, want %d", shared.requests.used.Load(), requests)
			}
		}
	}
	// The request of the first sandbox does not end before its body.
	body, end := io.Pipe()
	r, _ := http.NewRequest("POST", "https://api.test/echo", body)
	ended := make(chan error, 1)
	go func() {
		w, err := first.client(t, set, true, "").Do(r)
		if err == nil {
			w.Body.Close()
		}
		ended <- err
	}()
	waitFor(1)

	client := second.client(t, set, true, "")
	if code, text := get(t, client, "https://api.test/"); code != http.StatusServiceUnavailable {
		t.Errorf("another request: %d %s", code, text)
	}
	second.awaitDenial(t, func(d policy.Denial) bool { return strings.Contains(d.Reason, "requests of the tenant") })
	if code, text := get(t, third.client(t, set, true, ""), "https://api.test/"); code != 0 {
		t.Errorf("another connection: %d %s", code, text)
	}
	third.awaitDenial(t, func(d policy.Denial) bool { return strings.Contains(d.Reason, "connections of the tenant") })

	end.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	waitFor(0)
	if code, text := get(t, client, "https://api.test/"); code != http.StatusOK {
		t.Errorf("after the end: %d %s", code, text)
	}
}
