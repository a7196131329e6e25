package toolview

import (
	"strings"
	"testing"
)

// A result says whether the changes are lost, or may be.
func TestChangesThatAreNotKept(t *testing.T) {
	for _, tt := range []struct {
		end  SessionEnd
		want string
	}{
		{SessionEnd{ID: "s", Version: 1}, "[Session s, version 1]"},
		{SessionEnd{ID: "s", Version: 1, NotKept: "it failed"}, "[Session: the changes were not kept: it failed]"},
		{SessionEnd{ID: "s", Version: 1, NotKept: "the disk failed", Unknown: true}, "[Session: the changes may be lost: the disk failed]"},
	} {
		got := tt.end.list()
		if got.NotKept != tt.end.NotKept || !strings.HasSuffix(got.text(), "\n"+tt.want) {
			t.Errorf("%+v: got %q, want %q at the end", tt.end, got.text(), tt.want)
		}
	}
}
