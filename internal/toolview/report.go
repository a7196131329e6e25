package toolview

import (
	"bytes"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"fmt"
	"strconv"
)

// runnerText is the Python code that runs a program of RunPython.
//
//go:embed runner.py
var runnerText string

// A runner starts a program of RunPython. If an exception ends the program, the runner
// prints the traceback to stderr as python does, and then one line,
//
//	[TOKEN SIZE MESSAGE]
//
// with the size of the traceback in bytes and the message in hexadecimal digits. Each
// call has its own random token, so no text that a program prints by chance, or repeats
// from another call, looks like this line. A program that searches its memory for the
// token can lie about its own exception, and about nothing else.
type runner struct {
	token string
	// file says that the program's text is the path of a file.
	file bool
}

// newRunner makes a token with at least 128 random bits (crypto/rand.Text).
func newRunner(file bool) runner { return runner{token: "exception " + rand.Text(), file: file} }

// text returns the Python code for executor.Request.Runner.
func (r runner) text() string {
	file := "False"
	if r.file {
		file = "True"
	}
	return runnerText + fmt.Sprintf("type(_run)(_run.__code__, {'__builtins__': __builtins__})(globals(), '%s', %s)\n", r.token, file)
}

// An exception is the Python exception that ended a program.
type exception struct {
	message   string // str() of the exception, or its type if that is empty
	traceback []byte // as python prints it
}

// cut removes the runner's report from stderr and returns the program's own output. ok
// is false without a report.
func (r runner) cut(stderr []byte) (left []byte, e exception, ok bool) {
	begin := []byte("[" + r.token + " ")
	// The last one: the program may have printed a copy of the line before it ended.
	at := bytes.LastIndex(stderr, begin)
	if at < 0 {
		return stderr, e, false
	}
	line, after, whole := bytes.Cut(stderr[at+len(begin):], []byte("]\n"))
	count, digits, more := bytes.Cut(line, []byte(" "))
	size, err := strconv.Atoi(string(count))
	// A report that was cut by a limit, or that the program has forged badly, counts as output.
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
