package toolview

import (
	"bytes"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"fmt"
	"strconv"
)

// runnerText defines what runs a program of RunPython.
//
//go:embed runner.py
var runnerText string

// A runner starts a program of RunPython, and prints to stderr how it ended if that
// was an exception: the traceback as python prints it, and then one line,
//
//	[TOKEN SIZE MESSAGE]
//
// with the size of the traceback in bytes and the message in hexadecimal digits. The
// token is one call's own, so nothing that a program prints by chance, or shows of
// another call, is taken for it. A program that looks for its token can lie about its
// own exception, and about nothing else.
type runner struct {
	token string
	// file says that the text of the program is the path of a file.
	file bool
}

func newRunner(file bool) runner { return runner{token: "exception " + rand.Text(), file: file} }

// text is Python code for executor.Request.Runner.
func (r runner) text() string {
	file := "False"
	if r.file {
		file = "True"
	}
	return runnerText + fmt.Sprintf("type(_run)(_run.__code__, {'__builtins__': __builtins__})(globals(), '%s', %s)\n", r.token, file)
}

// An exception is what ended a program.
type exception struct {
	message   string // str() of it, or its type if that is empty
	traceback []byte // as python prints it
}

// cut takes the runner's report out of stderr. What is left is what the program
// printed itself. False: there is none.
func (r runner) cut(stderr []byte) (left []byte, e exception, ok bool) {
	begin := []byte("[" + r.token + " ")
	at := bytes.LastIndex(stderr, begin)
	if at < 0 {
		return stderr, e, false
	}
	line, after, whole := bytes.Cut(stderr[at+len(begin):], []byte("]\n"))
	count, digits, more := bytes.Cut(line, []byte(" "))
	size, err := strconv.Atoi(string(count))
	if !whole || !more || err != nil || size < 0 || size > at {
		return stderr, e, false
	}
	message := make([]byte, hex.DecodedLen(len(digits)))
	if _, err := hex.Decode(message, digits); err != nil {
		return stderr, e, false
	}
	left = append(bytes.Clone(stderr[:at-size]), after...)
	return left, exception{message: text(message), traceback: stderr[at-size : at]}, true
}
