package main

import (
	"bytes"
	"os"
	"testing"
)

// openTerminal returns the controlling side of a pseudo-terminal, which is a
// terminal too.
func openTerminal(t *testing.T) *os.File {
	t.Helper()
	file, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

func TestColourOnlyOnATerminal(t *testing.T) {
	tty := openTerminal(t)
	file, err := os.Create(t.TempDir() + "/f")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	if !coloured(tty) || coloured(file) || coloured(&bytes.Buffer{}) {
		t.Errorf("got terminal %v, file %v, buffer %v, want only the terminal", coloured(tty), coloured(file), coloured(&bytes.Buffer{}))
	}
	t.Setenv("TERM", "dumb")
	if coloured(tty) {
		t.Error("TERM=dumb: got colour, want none")
	}
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "1")
	if coloured(tty) {
		t.Error("NO_COLOR=1: got colour, want none")
	}
}

func TestTerminalIsNoStdin(t *testing.T) {
	tty := openTerminal(t)
	a := &app{stdin: tty}
	if got := a.programStdin(&runFlags{}); got != nil {
		t.Errorf("got %v, want none", got)
	}
	if got := a.programStdin(&runFlags{interactive: true}); got != tty {
		t.Errorf("-i: got %v, want the terminal", got)
	}
}

func TestTable(t *testing.T) {
	var table table
	table.header("A", "B")
	table.add(cell{"é\x1b[1m", green}, cell{"x", ""})
	table.add(plain("日本", "y")...) // each fills two columns of a terminal
	table.add(plain("long enough", "")...)
	for _, test := range []struct {
		coloured bool
		want     string
	}{
		{false, "A            B\né\\x1b[1m     x\n日本         y\nlong enough  \n"},
		{true, "\x1b[1mA\x1b[0m            \x1b[1mB\x1b[0m\n\x1b[32mé\\x1b[1m\x1b[0m     x\n日本         y\nlong enough  \n"},
	} {
		var b bytes.Buffer
		if err := table.write(&b, test.coloured); err != nil || b.String() != test.want {
			t.Errorf("coloured %v: got %q, %v, want %q", test.coloured, b.String(), err, test.want)
		}
	}
}

func TestPrintable(t *testing.T) {
	tests := []struct{ text, line, lines string }{
		{"plain é 日本", "plain é 日本", "plain é 日本"},
		{"a\nb\tc\r", `a\nb\tc\x0d`, "a\nb\tc\\x0d"},
		{"\x1b[31m", `\x1b[31m`, `\x1b[31m`},
		{"\u009b31m", `\x9b31m`, `\x9b31m`},
		{"\x9b\xff", `\x9b\xff`, `\x9b\xff`},
		{"\u202eabc\u2066", `\u202eabc\u2066`, `\u202eabc\u2066`},
		{"\u200b\ufeff", `\u200b\ufeff`, `\u200b\ufeff`},
		{"\x00\x7f", `\x00\x7f`, `\x00\x7f`},
		{"\ufffd", "\ufffd", "\ufffd"},
	}
	for _, test := range tests {
		if got := printable(test.text); got != test.line {
			t.Errorf("line %q: got %q, want %q", test.text, got, test.line)
		}
		if got := printableText(test.text); got != test.lines {
			t.Errorf("text %q: got %q, want %q", test.text, got, test.lines)
		}
	}
}

func TestSize(t *testing.T) {
	tests := []struct {
		text string
		want size // 0: refused
	}{
		{"1", 1}, {"1000", 1000}, {"2k", 2048}, {"2K", 2048}, {"2KiB", 2048}, {"3m", 3 << 20}, {"1g", 1 << 30}, {"7b", 7},
		{"2KB", 2048}, {"1.5g", 3 << 29}, {"1t", 1 << 40}, {"1 m", 1 << 20},
		{"0", 0}, {"", 0}, {"m", 0}, {"-1", 0}, {"0.5", 0}, {"1x", 0}, {"99999999999999g", 0}, {"1e400", 0},
	}
	for _, test := range tests {
		var got size
		if err := got.Set(test.text); got != test.want || (err == nil) != (test.want != 0) {
			t.Errorf("%q: got %d, %v, want %d", test.text, got, err, test.want)
		}
	}
	for n, want := range map[uint64]string{0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 1234567: "1.2 MiB", 512 << 20: "512 MiB", 3 << 40: "3 TiB"} {
		if got := bytesText(n); got != want {
			t.Errorf("%d: got %q, want %q", n, got, want)
		}
	}
}

func TestCommandLine(t *testing.T) {
	tests := []struct {
		words []string
		want  string
	}{
		{[]string{"git log | head"}, "git log | head"},
		{[]string{"git", "log"}, "git log"},
		{[]string{"echo", "", "a b", "$HOME", "it's", "*"}, `echo '' 'a b' '$HOME' 'it'"'"'s' '*'`},
	}
	for _, test := range tests {
		if got := commandLine(test.words); got != test.want {
			t.Errorf("%q: got %s, want %s", test.words, got, test.want)
		}
	}
}
