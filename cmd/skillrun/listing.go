package main

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"
)

// maxRows bounds the rows of a table, which are in memory together. A faulty daemon could send pages without
// end.
const maxRows = 1_000_000

// errEmptyPage ends a list of a faulty daemon that sends empty pages without end.
var errEmptyPage = errors.New("the daemon sent a page without entries that is not the last one")

// A listing says how a list of messages is printed: with --json one message a line, as soon as it comes, else as a table
// after the last one, because a column is as wide as its longest cell.
type listing[M proto.Message] struct {
	header []string
	row    func(M) []cell
}

// print prints a list that one call has returned.
func (l listing[M]) print(a *app, list ...M) error {
	return l.pages(a, func(string) ([]M, string, error) { return list, "", nil })
}

// pages prints a list page by page. fetch returns the entries of the page with a token, and the token of the next page, or
// "" after the last one. The token of the first page is "". An error of fetch ends the list; the lines before it are
// printed, the table is not.
func (l listing[M]) pages(a *app, fetch func(token string) (list []M, next string, err error)) error {
	t := &table{}
	t.header(l.header...)
	for token := ""; ; {
		list, next, err := fetch(token)
		if err != nil {
			return err
		}
		for _, m := range list {
			if !a.json {
				t.add(l.row(m)...)
			} else if err := a.printJSON(m); err != nil {
				return err
			}
		}
		switch {
		case next == "" && a.json:
			return nil
		case next == "":
			return a.print(t)
		case len(list) == 0:
			return errEmptyPage
		case len(t.rows) > maxRows:
			return fmt.Errorf("a table can't have more than %d entries; add --json", maxRows)
		}
		token = next
	}
}
