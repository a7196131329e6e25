package download

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// Credentials in the URL of a registry go to it as its protocol has them. What npm asks for, other than a package, is
// no request to the registry.
func TestRegistryCredentials(t *testing.T) {
	for user, want := range map[string]string{"token@": "Bearer token", "a:b@": "Basic YTpi", "": ""} {
		var got string
		var asked []string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got, asked = r.Header.Get("Authorization"), append(asked, r.URL.Path)
			w.Write([]byte(`{"name": "left", "dist-tags": {}, "versions": {}}`))
		}))
		defer server.Close()
		u, err := url.Parse(strings.Replace(server.URL, "//", "//"+user, 1))
		if err != nil {
			t.Fatal(err)
		}
		f := New(Config{Index: u, Registry: true, MaxBytes: 1 << 20, Stall: StallTimeout})
		defer f.Close()
		if code, text := fetch(t, f, "/left"); code != http.StatusOK || !strings.Contains(text, "left") || got != want {
			t.Errorf("%q: got %d %q with %q, want %q", user, code, text, got, want)
		}
		for _, at := range []string{"/..%2fx", "/@a%2f..%2fx", "/left/1.0.0", "/-/ping", "/file/9/x.tgz", "//x", "/", "/left?x", "/%zz"} {
			if code, _ := fetch(t, f, at); code != http.StatusNotFound {
				t.Errorf("%s: got %d, want 404", at, code)
			}
		}
		if !slices.Equal(asked, []string{"/left"}) {
			t.Errorf("the registry was asked for %q", asked)
		}
	}
}
