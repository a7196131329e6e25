package permission

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// maxPath is the maximum length of a redirect's path: PATH_MAX without its NUL, see
// path_resolution(7). A longer path fails with ENAMETOOLONG in any case; here the reason is
// clearer.
const maxPath = 4095

// redirects converts the redirects of one command. No plan can close a descriptor, so a copy of
// an open one always works.
func (r reader) redirects(list []*syntax.Redirect) ([]Redirect, error) {
	if len(list) > MaxRedirects {
		return nil, fmt.Errorf("a command has more than %d redirects", MaxRedirects)
	}
	var out []Redirect
	// The descriptors that are open after the redirects so far. A program starts with three.
	open := map[int]bool{0: true, 1: true, 2: true}
	for _, node := range list {
		made, err := r.redirect(node)
		if err != nil {
			return nil, err
		}
		for _, one := range made {
			if one.Kind == Dup && !open[one.From] {
				return nil, fmt.Errorf("the redirect to &%d names a descriptor that is not open", one.From)
			}
			open[one.FD] = true
		}
		out = append(out, made...)
	}
	return out, nil
}

// redirect converts one redirect. &> and &>> become two, because each changes two
// descriptors.
// <> is refused: the line does not tell whether the program reads or writes the file.
func (r reader) redirect(node *syntax.Redirect) ([]Redirect, error) {
	fd, err := descriptor(node)
	if err != nil {
		return nil, err
	}
	if node.Op == syntax.Hdoc || node.Op == syntax.DashHdoc {
		text, err := r.hereDocument(node)
		return []Redirect{{FD: fd, Kind: Text, Text: text}}, err
	}
	word, err := r.word(node.Word)
	if err != nil {
		return nil, err
	}
	switch node.Op {
	case syntax.WordHdoc:
		return []Redirect{{FD: fd, Kind: Text, Text: word + "\n"}}, nil
	case syntax.RdrIn:
		return file(Redirect{FD: fd, Kind: Read, Path: word})
	case syntax.RdrOut, syntax.RdrClob: // without noclobber, >| is >
		return file(Redirect{FD: fd, Kind: Write, Path: word})
	case syntax.AppOut:
		return file(Redirect{FD: fd, Kind: Append, Path: word})
	case syntax.RdrAll:
		return file(Redirect{FD: 1, Kind: Write, Path: word}, Redirect{FD: 2, Kind: Dup, From: 1})
	case syntax.AppAll:
		return file(Redirect{FD: 1, Kind: Append, Path: word}, Redirect{FD: 2, Kind: Dup, From: 1})
	case syntax.DplIn, syntax.DplOut:
		return duplicate(node, fd, word)
	}
	return nil, fmt.Errorf("the redirect %s is not supported", node.Op)
}

// duplicate converts <& and >&, which take a descriptor. >& also takes a file and then
// means &>.
// One digit is enough: redirects to descriptors above 9 are not portable (POSIX, 2.7 Redirection),
// and a shell itself uses them.
func duplicate(node *syntax.Redirect, fd int, word string) ([]Redirect, error) {
	if from, err := strconv.Atoi(word); err == nil && isDigits(word) {
		if from > 9 {
			return nil, fmt.Errorf("the descriptor %s in a redirect is above 9", word)
		}
		return []Redirect{{FD: fd, Kind: Dup, From: from}}, nil
	}
	if strings.HasSuffix(word, "-") && isDigits(strings.TrimSuffix(word, "-")) {
		return nil, errors.New("closing or moving a descriptor is not supported: use /dev/null")
	}
	if node.Op == syntax.DplOut && node.N == nil {
		return file(Redirect{FD: 1, Kind: Write, Path: word}, Redirect{FD: 2, Kind: Dup, From: 1})
	}
	return nil, fmt.Errorf("the redirect to &%s does not name a descriptor", excerpt(word))
}

// file returns the redirects if the first one has a path that a command may open.
func file(list ...Redirect) ([]Redirect, error) {
	if err := checkPath(list[0].Path); err != nil {
		return nil, fmt.Errorf("the redirect to %s: %w", excerpt(list[0].Path), err)
	}
	return list, nil
}

// checkPath refuses a path that leaves the working directory or names no file. Links are
// not checked here: the sandbox opens redirects beneath a descriptor of the directory.
// It is a check of the text, for a clear answer. The boundary is openat2(2) in the sandbox.
func checkPath(path string) error {
	switch {
	case path == "/dev/null":
		return nil
	case path == "":
		return errors.New("the path is empty")
	case len(path) > maxPath:
		return fmt.Errorf("the path is longer than %d bytes", maxPath)
	case path[0] == '/':
		return errors.New("only paths beneath the working directory and /dev/null may be opened: use a relative path")
	}
	named := false // the last part is a name; "a/" and "a/." are directories
	for part := range strings.SplitSeq(path, "/") {
		if part == ".." {
			return errors.New("the path leaves the working directory")
		}
		named = part != "" && part != "."
	}
	if !named {
		return errors.New("the path names a directory")
	}
	return nil
}

// descriptor returns the descriptor that a redirect changes. Without a number, a redirect that reads
// changes 0, and any other 1.
func descriptor(node *syntax.Redirect) (int, error) {
	if node.N == nil {
		switch node.Op {
		case syntax.RdrIn, syntax.RdrInOut, syntax.DplIn, syntax.Hdoc, syntax.DashHdoc, syntax.WordHdoc:
			return 0, nil
		}
		return 1, nil
	}
	fd, err := strconv.Atoi(node.N.Value)
	if err != nil || !isDigits(node.N.Value) || fd > 9 {
		return 0, fmt.Errorf("the descriptor %s in a redirect is not one of 0 to 9", excerpt(node.N.Value))
	}
	return fd, nil
}

// hereDocument returns the body of a here-document. As in a shell, the body is literal if
// any part of the delimiter is quoted. Otherwise the names of the skill's folder are
// expanded. It expands no other variable and runs no command.
// The sandbox passes the body to the program as a memory file (memfd_create(2)); no file of the
// workspace has it.
func (r reader) hereDocument(node *syntax.Redirect) (string, error) {
	var text strings.Builder
	raw, err := delimiterQuoted(node.Word)
	switch {
	case err != nil:
		return "", err
	case node.Hdoc == nil:
		return "", nil
	case raw:
		for _, part := range node.Hdoc.Parts {
			lit, ok := part.(*syntax.Lit)
			if !ok {
				return "", errors.New("the here-document is not literal")
			}
			text.WriteString(lit.Value)
		}
	default:
		if err := r.quotedParts(node.Hdoc.Parts, "$`\\", &text); err != nil {
			return "", fmt.Errorf("in a here-document %w: quote its delimiter", err)
		}
	}
	body := text.String()
	if node.Op == syntax.DashHdoc {
		body = stripTabs(body)
	}
	if raw {
		return body, nil
	}
	return expand(body, r.baseDir), nil
}

// delimiterQuoted reports whether any part of a here-document's delimiter is quoted.
// $'...' and $"..." are refused, because shells differ on them.
func delimiterQuoted(w *syntax.Word) (bool, error) {
	raw := false
	for _, part := range w.Parts {
		switch part := part.(type) {
		case *syntax.Lit:
			raw = raw || strings.Contains(part.Value, `\`)
		case *syntax.SglQuoted:
			raw = true
			if part.Dollar {
				return false, errors.New("the delimiter of a here-document is not a plain word")
			}
		case *syntax.DblQuoted:
			raw = true
			if part.Dollar {
				return false, errors.New("the delimiter of a here-document is not a plain word")
			}
		default:
			return false, errors.New("the delimiter of a here-document is not a plain word")
		}
	}
	return raw, nil
}

// stripTabs removes the leading tabs of every line, as <<- does.
func stripTabs(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimLeft(line, "\t")
	}
	return strings.Join(lines, "\n")
}

// isDigits is also true for "", which is not a number: callers have parsed the text or cut a suffix.
func isDigits(s string) bool {
	return strings.Trim(s, "0123456789") == ""
}
