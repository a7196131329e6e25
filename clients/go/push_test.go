package skillrun

import (
	"io/fs"
	"testing"
	"testing/fstest"
)

// The contract carries paths as text, so the error of another name is this side's, and shows the name.
func TestPushOfNamesThatAreNotUTF8(t *testing.T) {
	for want, dir := range map[string]fstest.MapFS{
		`"a\xff": the name is not UTF-8; rename it`:        {"a\xff": {}},
		`"b/a\xff": the name is not UTF-8; rename it`:      {"b/a\xff": {}},
		`"d\xff": the name is not UTF-8; rename it`:        {"d\xff/a": {}},
		`"link": is a link to "a\xff", which is not UTF-8`: {"link": {Mode: fs.ModeSymlink, Data: []byte("a\xff")}},
	} {
		if _, _, err := pushEntries(dir); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
