package toolview

import (
	"fmt"
	"testing"

	"github.com/skillrun/skillrun/internal/executor"
)

// A sink gets everything that the program prints, however the output is cut into pieces,
// and nothing of the runner's line.
func TestQuietSink(t *testing.T) {
	t.Parallel()
	by := newRunner(false)
	line := fmt.Sprintf("[%s 5 6869]\n", by.token)
	another := fmt.Sprintf("[%s 5 6869]\n", newRunner(false).token)
	for _, tt := range []struct{ name, printed, want string }{
		{"nothing", "", ""},
		{"no line", "a[exception b\n[", "a[exception b\n["},
		{"only the line", line, ""},
		{"text before it", "boom\n" + line, "boom\n"},
		{"text on both sides", "boom\n" + line + "after [exc", "boom\nafter [exc"},
		{"a line without an end", "boom\n" + line[:len(line)-3], "boom\n"},
		{"another call's line", another, another},
		{"its begin twice", line[:9] + line, line[:9]},
	} {
		for size := 1; size <= len(tt.printed)+1; size++ {
			got, other := "", ""
			var next uint64
			q := by.quiet(func(o executor.Output) error {
				if o.Stream == executor.Stdout {
					other += string(o.Data)
					return nil
				}
				if o.Offset < next || tt.printed[o.Offset:o.Offset+uint64(len(o.Data))] != string(o.Data) {
					t.Errorf("%s by %d: offset %d of %q", tt.name, size, o.Offset, o.Data)
				}
				next = o.Offset + uint64(len(o.Data))
				got += string(o.Data)
				return nil
			})
			sink := q.sink()
			for at := 0; at < len(tt.printed); at += size {
				piece := tt.printed[at:min(at+size, len(tt.printed))]
				for _, o := range []executor.Output{{Stream: executor.Stderr, Offset: uint64(at), Data: []byte(piece)}, {Stream: executor.Stdout, Data: []byte(".")}} {
					if err := sink(o); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := q.last(); err != nil {
				t.Fatal(err)
			}
			if got != tt.want || (len(other) == 0) != (tt.printed == "") {
				t.Errorf("%s by %d: got %q and %q, want %q", tt.name, size, got, other, tt.want)
			}
		}
	}
	if q := by.quiet(nil); q.sink() != nil || q.last() != nil {
		t.Error("a nil sink became a function")
	}
}
