package pid1

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
)

func words(w ...uint32) []byte {
	var b []byte
	for _, v := range w {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

// TestExpect plays an init that says this and that.
func TestExpect(t *testing.T) {
	for _, tt := range []struct {
		name string
		says []byte
		want string // in the error; "": no error
	}{
		{"what is expected", words(FrameMagic, uint32(FrameReady), 4, 7), ""},
		{"nothing", nil, "init is gone"},
		{"half a header", words(FrameMagic), "unexpected EOF"},
		{"half a frame", words(FrameMagic, uint32(FrameReady), 8, 7), "short frame"},
		{"another protocol", words(1, uint32(FrameReady), 4, 7), "malformed"},
		{"too much", words(FrameMagic, uint32(FrameReady), 1<<30), "malformed"},
		{"half a word", append(words(FrameMagic, uint32(FrameReady), 2), 0, 0), "malformed"},
		{"another frame", words(FrameMagic, uint32(FrameHello), 0), "frame 16"},
		{"other words", words(FrameMagic, uint32(FrameReady), 8, 7, 7), "with 2 words"},
		{"a failure", words(FrameMagic, uint32(FrameFailed), 8, 8, uint32(syscall.ENOENT)), "exec: no such file"},
		{"an unknown stage", words(FrameMagic, uint32(FrameFailed), 8, 99, uint32(syscall.EPERM)), "99: operation not permitted"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, init := newPair(t)
			if _, err := init.Write(tt.says); err != nil {
				t.Fatal(err)
			}
			init.Close()
			got, err := c.Expect(FrameReady, 1)
			if tt.want == "" {
				if err != nil || len(got) != 1 || got[0] != 7 {
					t.Errorf("got %v, %v", got, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want it to say %q", err, tt.want)
			}
		})
	}
}

func newPair(t *testing.T) (*Control, *os.File) {
	t.Helper()
	c, init, err := NewControl()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.File.Close(); init.Close() })
	return c, init
}

func TestWriteFrame(t *testing.T) {
	c, init := newPair(t)
	if err := c.Write(FrameSignal, words(15)); err != nil {
		t.Fatal(err)
	}
	c.File.Close()
	got, err := io.ReadAll(init)
	if want := string(words(FrameMagic, uint32(FrameSignal), 4, 15)); err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if err := c.Write(FrameKill, nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("got %v, want %v", err, os.ErrClosed)
	}
}

// TestStages compares the names with wire.h, which numbers them.
func TestStages(t *testing.T) {
	b, err := os.ReadFile("wire.h")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(b), "enum stage {")
	list, _, ok2 := strings.Cut(rest, "};")
	if !ok || !ok2 {
		t.Fatal("wire.h has no enum stage")
	}
	var got []string
	for line := range strings.Lines(list) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), ",")
		if name, ok := strings.CutPrefix(name, "STAGE_"); ok {
			got = append(got, strings.ToLower(name))
		}
	}
	if strings.Join(got, " ") != strings.Join(Stages, " ") {
		t.Errorf("wire.h has %v, want %v", got, Stages)
	}
}
