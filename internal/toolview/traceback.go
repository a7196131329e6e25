package toolview

import (
	"regexp"
	"strings"
)

// An exception is the end of what a Python program printed to stderr before it
// ended by an exception that nobody caught.
type exception struct {
	traceback string // to the end, with those of the exceptions that led to it
	last      string // the line that names the exception, and what follows it
}

// Lines of a traceback as CPython's traceback.c and traceback.py print them.
const tracebackHeader = "Traceback (most recent call last):\n"

var (
	// chained stands between the traceback of an exception and that of the next.
	chained = []string{
		"\nDuring handling of the above exception, another exception occurred:\n\n",
		"\nThe above exception was the direct cause of the following exception:\n\n",
	}
	// unparsed is the end of a program that could not be compiled: no Traceback line.
	unparsed = regexp.MustCompile(`(?m)^  File ".*", line \d+\n(?:    .*\n)*((?:Syntax|Indentation|Tab)Error(?:: .*)?)\n?\z`)
	// exceptionLine is "Type: message" or "Type".
	exceptionLine = regexp.MustCompile(`(?s)^([\p{L}_][\p{L}\p{N}_.]*)(?:: (.*))?$`)
)

// cutTraceback splits stderr into what the program printed itself and the
// traceback that ends it.
func cutTraceback(stderr string) (before string, e exception, ok bool) {
	start := headerBefore(stderr, len(stderr))
	if start < 0 {
		if at := unparsed.FindStringSubmatchIndex(stderr); at != nil {
			return stderr[:at[0]], exception{stderr[at[0]:], stderr[at[2]:at[3]]}, true
		}
		return stderr, exception{}, false
	}
	// Behind the frames, which are indented, comes the exception.
	last := stderr[start+len(tracebackHeader):]
	for strings.HasPrefix(last, " ") {
		_, rest, more := strings.Cut(last, "\n")
		if !more {
			return stderr, exception{}, false
		}
		last = rest
	}
	last = strings.TrimSuffix(last, "\n")
	if last == "" {
		return stderr, exception{}, false
	}
	for {
		earlier := -1
		for _, link := range chained {
			if strings.HasSuffix(stderr[:start], link) {
				earlier = headerBefore(stderr, start)
			}
		}
		if earlier < 0 {
			break
		}
		start = earlier
	}
	return stderr[:start], exception{stderr[start:], last}, true
}

// headerBefore is where the last traceback begins in text[:end], or -1.
func headerBefore(text string, end int) int {
	at := strings.LastIndex(text[:end], "\n"+tracebackHeader)
	if at >= 0 {
		return at + 1
	}
	if strings.HasPrefix(text[:end], tracebackHeader) {
		return 0
	}
	return -1
}

// message is what the exception says: str(e), or its type if it says nothing.
func (e exception) message() string {
	m := exceptionLine.FindStringSubmatch(e.last)
	switch {
	case m == nil:
		return e.last
	case m[2] == "":
		return m[1]
	}
	return m[2]
}
