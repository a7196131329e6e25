package sandbox

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/skillrun/skillrun/sandbox/internal/pid1"
	"github.com/skillrun/skillrun/sandbox/internal/seccomp"
)

func words(w ...uint32) []byte {
	var b []byte
	for _, v := range w {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

// TestMalformedProgram sends a real init a program that it can't decode. Init must report
// that, and the sandbox must end.
func TestMalformedProgram(t *testing.T) {
	h := openHost(t)
	good, err := plan(Spec{Program: command("true")}.withDefaults(), 1000).Encode()
	if err != nil {
		t.Fatal(err)
	}
	glob := func(list ...Glob) []byte {
		c := cmd("true", "a", "b")
		c.Globs = list
		b, err := plan(Spec{Program: pipeline(c)}.withDefaults(), 1000).Encode()
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
			if err := c.control.Assign("name", nil, nil, pid1.FrameProgram, tt.payload); err != nil {
				t.Fatal(err)
			}
			_, err := c.control.Expect(pid1.FrameStarted, 0)
			wantProtocolError(t, step("init", err))
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
