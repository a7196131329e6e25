package sandbox

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/skillrun/skillrun/sandbox/internal/seccomp"
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
		{"what is expected", words(frameMagic, frameReady, 4, 7), ""},
		{"nothing", nil, "init is gone"},
		{"half a header", words(frameMagic), "unexpected EOF"},
		{"half a frame", words(frameMagic, frameReady, 8, 7), "short frame"},
		{"another protocol", words(1, frameReady, 4, 7), "malformed"},
		{"too much", words(frameMagic, frameReady, 1<<30), "malformed"},
		{"half a word", append(words(frameMagic, frameReady, 2), 0, 0), "malformed"},
		{"another frame", words(frameMagic, frameHello, 0), "frame 16"},
		{"other words", words(frameMagic, frameReady, 8, 7, 7), "with 2 words"},
		{"a failure", words(frameMagic, frameFailed, 8, 8, uint32(syscall.ENOENT)), "exec: no such file"},
		{"an unknown stage", words(frameMagic, frameFailed, 8, 99, uint32(syscall.EPERM)), "99: operation not permitted"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, init := newPair(t)
			if _, err := init.Write(tt.says); err != nil {
				t.Fatal(err)
			}
			init.Close()
			got, err := c.expect(frameReady, 1)
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

func newPair(t *testing.T) (*control, *os.File) {
	t.Helper()
	c, init, err := newControl()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.file.Close(); init.Close() })
	return c, init
}

func TestWriteFrame(t *testing.T) {
	c, init := newPair(t)
	if err := c.write(frameSignal, words(15)); err != nil {
		t.Fatal(err)
	}
	c.file.Close()
	got, err := io.ReadAll(init)
	if want := string(words(frameMagic, frameSignal, 4, 15)); err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if err := c.write(frameKill, nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("got %v, want %v", err, os.ErrClosed)
	}
}

// TestStages compares the names with init.h, which numbers them.
func TestStages(t *testing.T) {
	b, err := os.ReadFile("init.h")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(b), "enum stage {")
	list, _, ok2 := strings.Cut(rest, "};")
	if !ok || !ok2 {
		t.Fatal("init.h has no enum stage")
	}
	var got []string
	for line := range strings.Lines(list) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), ",")
		if name, ok := strings.CutPrefix(name, "STAGE_"); ok {
			got = append(got, strings.ToLower(name))
		}
	}
	if strings.Join(got, " ") != strings.Join(stages, " ") {
		t.Errorf("init.h has %v, want %v", got, stages)
	}
}

// TestMalformedProgram sends a real init a program that it can't decode. Init must report
// that, and the sandbox must end.
func TestMalformedProgram(t *testing.T) {
	h := openHost(t)
	good, err := encodeProgram(Spec{Program: command("true")}.withDefaults(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	glob := func(list ...Glob) []byte {
		c := cmd("true", "a", "b")
		c.Globs = list
		b, err := encodeProgram(Spec{Program: pipeline(c)}.withDefaults(), 1000)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, tt := range []struct {
		name    string
		payload []byte
	}{
		{"empty list", words(0)},
		{"cut", good[:len(good)-4]},
		{"cut in a string", good[:len(good)-20]},
		{"longer", append(append([]byte(nil), good...), 0, 0, 0, 0)},
		{"huge count", append(append([]byte(nil), good[:len(good)-4]...), words(1<<31-1)...)},
		{"a pattern as the command's name", glob(Glob{0, "*"})},
		{"a pattern behind the arguments", glob(Glob{3, "*"})},
		{"patterns out of order", glob(Glob{2, "*"}, Glob{1, "*"})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := buildDirect(t, h)
			if err := c.control.assign("name", nil, nil, frameProgram, tt.payload); err != nil {
				t.Fatal(err)
			}
			_, err := c.control.expect(frameStarted, 0)
			wantProtocolError(t, err)
		})
	}
	noLeftovers(t, h)
}

// TestMalformedFilters does the same before there is a first process.
func TestMalformedFilters(t *testing.T) {
	h := openHost(t)
	good := h.filters
	for name, odd := range map[string]seccomp.Filters{
		"no filter of init's":             {Script: good.Script},
		"no filter of the script's":       {Init: good.Init},
		"filter of too many instructions": {Init: good.Init, Script: make([]byte, (seccomp.MaxInstructions+1)*seccomp.InstructionSize)},
	} {
		t.Run(name, func(t *testing.T) {
			h.filters = odd
			c, err := h.build(t.Context(), direct{h}, Spec{ID: "malformed"}.withDefaults())
			wantProtocolError(t, err)
			if err := c.destroy(); err != nil {
				t.Error(err)
			}
		})
	}
	noLeftovers(t, h)
}

// buildDirect has libcontainer make a sandbox, which waits.
func buildDirect(t *testing.T, h *Host) *sandbox {
	t.Helper()
	c, err := h.build(t.Context(), direct{h}, Spec{ID: "waits"}.withDefaults())
	t.Cleanup(func() {
		if err := c.destroy(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func wantProtocolError(t *testing.T, err error) {
	t.Helper()
	var setup *SetupError
	if !errors.As(err, &setup) || setup.Step != "protocol" {
		t.Errorf("got %v, want a protocol error", err)
	}
}
