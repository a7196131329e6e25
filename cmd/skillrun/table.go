package main

import (
	"io"
	"os"
	"strings"

	"github.com/rivo/uniseg"
	"golang.org/x/term"
)

// colour is an SGR parameter; empty: no colour. console_codes(4) lists them.
type colour string

const (
	red    colour = "31"
	green  colour = "32"
	yellow colour = "33"
	bold   colour = "1"
)

// A cell is a piece of a table. print makes its text printable.
type cell struct {
	text   string
	colour colour
}

// plain returns a row of cells without colour.
func plain(texts ...string) []cell {
	row := make([]cell, len(texts))
	for i, text := range texts {
		row[i].text = text
	}
	return row
}

// A table is rows of cells in aligned columns. A header is a first row in bold. Rows may have
// different numbers of cells. The zero table is empty and ready for use.
type table struct{ rows [][]cell }

// header must come before the first add.
func (t *table) header(names ...string) {
	row := plain(names...)
	for i := range row {
		row[i].colour = bold
	}
	t.add(row...)
}

func (t *table) add(row ...cell) { t.rows = append(t.rows, row) }

// print writes t to standard output, in colour if that is a terminal.
func (a *app) print(t *table) error {
	return t.write(a.stdout, coloured(a.stdout))
}

// write prints the rows with two blanks between columns. Widths are in columns of a terminal,
// where a wide character takes two. The last cell of a row has no blanks after it. All rows go
// out in one Write.
func (t *table) write(w io.Writer, coloured bool) error {
	var widths []int
	for _, row := range t.rows {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			// The terminal shows the printable form, so its width counts.
			widths[i] = max(widths[i], uniseg.StringWidth(printable(c.text)))
		}
	}
	var b strings.Builder
	for _, row := range t.rows {
		for i, c := range row {
			text := printable(c.text)
			if coloured && c.colour != "" {
				b.WriteString("\x1b[" + string(c.colour) + "m" + text + "\x1b[0m")
			} else {
				b.WriteString(text)
			}
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-uniseg.StringWidth(text)+2))
			}
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// coloured reports whether w is a terminal that may get colour: no-color.org.
func coloured(w io.Writer) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && terminal(w)
}

// terminal reports whether a stream is a terminal.
func terminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
