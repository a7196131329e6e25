package lint

import (
	"strings"

	"github.com/skillrun/skillrun/internal/lazyregexp"
)

// A pythonText is a Python source in two views, line by line, of the same length:
// code, in which strings and comments are blank, and strings, in which only
// comments and docstrings are.
type pythonText struct {
	code, strings []string
}

// scanPython finds strings and comments, see "Lexical analysis" in the Python
// reference. Expressions inside f-strings count as string.
// A docstring is a string that begins a statement outside of brackets; it is text for
// people, so paths in it don't count. Blanks replace the removed parts, so that lines and
// columns stay.
func scanPython(text string) pythonText {
	code, strs := []byte(text), []byte(text)
	blank := func(b []byte, from, to int) {
		for i := from; i < to && i < len(b); i++ {
			if b[i] != '\n' {
				b[i] = ' '
			}
		}
	}
	depth, begin := 0, true // begin: nothing but blanks so far in this statement
	for i := 0; i < len(text); {
		switch ch := text[i]; {
		case ch == '#':
			end := len(text)
			if n := strings.IndexByte(text[i:], '\n'); n >= 0 {
				end = i + n
			}
			blank(code, i, end)
			blank(strs, i, end)
			i = end
			continue
		case ch == '"' || ch == '\'':
			end := stringEnd(text, i)
			blank(code, i, end)
			if begin && depth == 0 {
				blank(strs, i, end)
			}
			i, begin = end, false
			continue
		case ch == '\\' && i+1 < len(text):
			i += 2
			continue
		case strings.IndexByte("([{", ch) >= 0:
			depth++
		case strings.IndexByte(")]}", ch) >= 0:
			depth = max(depth-1, 0)
		}
		switch text[i] {
		case '\n':
			begin = true
		case ' ', '\t', '\r', '\f', 'r', 'R', 'u', 'U': // a docstring may have a prefix
		default:
			begin = false
		}
		i++
	}
	return pythonText{strings.Split(string(code), "\n"), strings.Split(string(strs), "\n")}
}

// stringEnd is the index after a string that begins at from.
// A backslash skips the next byte in raw strings too: there it can't end the string either
// ("String and Bytes literals" in the reference).
func stringEnd(text string, from int) int {
	quote := text[from : from+1]
	triple := strings.HasPrefix(text[from:], quote+quote+quote)
	at := from + 1
	if triple {
		quote, at = quote+quote+quote, from+3
	}
	for at < len(text) {
		switch {
		case text[at] == '\\':
			at += 2
		case strings.HasPrefix(text[at:], quote):
			return at + len(quote)
		case text[at] == '\n' && !triple:
			return at // not closed: the parser would stop here too
		default:
			at++
		}
	}
	return len(text)
}

// A pythonImport is one module that a source imports.
type pythonImport struct {
	module   string // with dots
	line     int
	optional bool // in a try, or for type checkers only
}

// root is the name before the first dot.
func (m pythonImport) root() string {
	root, _, _ := strings.Cut(m.module, ".")
	return root
}

var (
	importLine = lazyregexp.New(`^\s*import\s+(.+)$`)
	fromLine   = lazyregexp.New(`^\s*from\s+([A-Za-z_][\w.]*)\s+import\s+\(?\s*(\w*)`)
	guardLine  = lazyregexp.New(`^\s*(?:try\s*:|except\b|else\s*:|finally\s*:|if\s+(?:typing\.)?TYPE_CHECKING\b)`)
	moduleName = lazyregexp.New(`^[A-Za-z_]\w*(?:\.\w+)*`)
)

// pythonImports lists the absolute imports of a source, in order.
// It doesn't follow continuation lines of a parenthesized list, because the module stands
// before the bracket. Relative imports begin with a dot and don't match fromLine.
func pythonImports(text string) []pythonImport {
	var list []pythonImport
	var guards []int // indents of the guards that the line is in
	for i, line := range scanPython(text).code {
		if strings.TrimSpace(line) == "" {
			continue
		}
		indent := len(line) - len(strings.TrimLeft(line, " \t"))
		for len(guards) > 0 && indent <= guards[len(guards)-1] {
			guards = guards[:len(guards)-1]
		}
		if guardLine.MatchString(line) {
			guards = append(guards, indent)
		}
		optional := len(guards) > 0
		if m := fromLine.FindStringSubmatch(line); m != nil {
			list = append(list, pythonImport{m[1], i + 1, optional})
			// from urllib import request
			if m[2] != "" {
				// The name may be a submodule or an attribute. networkSign needs
				// urllib.request; a name that is too long does no harm, because it tries the shorter
				// ones.
				list[len(list)-1].module += "." + m[2]
			}
			continue
		}
		m := importLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		names, _, _ := strings.Cut(m[1], ";")
		for name := range strings.SplitSeq(names, ",") {
			if name = moduleName.FindString(strings.TrimSpace(name)); name != "" {
				list = append(list, pythonImport{name, i + 1, optional})
			}
		}
	}
	return list
}

// stdlib are the top-level modules of CPython 3.8 to 3.14. A module that a version
// has dropped counts: that it is gone is another matter.
var stdlib = set(`
	__future__ __main__ _thread abc aifc annotationlib antigravity argparse array ast asynchat asyncio asyncore atexit audioop base64 bdb
	binascii binhex bisect builtins bz2 cProfile calendar cgi cgitb chunk cmath cmd code codecs codeop collections colorsys compileall
	compression concurrent configparser contextlib contextvars copy copyreg crypt csv ctypes curses dataclasses datetime dbm
	decimal difflib dis distutils doctest email encodings ensurepip enum errno faulthandler fcntl filecmp fileinput
	fnmatch formatter fractions ftplib functools gc genericpath getopt getpass gettext glob graphlib grp gzip hashlib heapq
	hmac html http idlelib imaplib imghdr imp importlib inspect io ipaddress itertools json keyword lib2to3 linecache
	locale logging lzma macpath mailbox mailcap marshal math mimetypes mmap modulefinder msilib msvcrt multiprocessing netrc nis
	nntplib nt ntpath nturl2path numbers opcode operator optparse os ossaudiodev parser pathlib pdb pickle pickletools pipes
	pkgutil platform plistlib poplib posix posixpath pprint profile pstats pty pwd py_compile pyclbr pydoc pydoc_data
	pyexpat queue quopri random re readline reprlib resource rlcompleter runpy sched secrets select selectors shelve
	shlex shutil signal site smtpd smtplib sndhdr socket socketserver spwd sqlite3 sre_compile sre_constants
	sre_parse ssl stat statistics string stringprep struct subprocess sunau symbol symtable sys sysconfig syslog tabnanny
	tarfile telnetlib tempfile termios textwrap this threading time timeit tkinter token tokenize tomllib trace
	traceback tracemalloc tty turtle turtledemo types typing unicodedata unittest urllib uu uuid venv warnings wave
	weakref webbrowser winreg winsound wsgiref xdrlib xml xmlrpc zipapp zipfile zipimport zlib zoneinfo`)

// set is the set of the words of a text.
func set(names string) map[string]bool {
	m := map[string]bool{}
	for name := range strings.FieldsSeq(names) {
		m[name] = true
	}
	return m
}
