package manifest

import (
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/lazyregexp"
)

// Options of nice and timeout whose effect is known: nice(1), timeout(1).
var (
	niceness       = lazyregexp.New(`^[-+]?[0-9]+$`)
	niceOption     = lazyregexp.New(`^(-n|-|--adjustment=)[-+]?[0-9]+$`)
	duration       = lazyregexp.New(`^[0-9]+(\.[0-9]+)?[smhd]?$`)
	signalName     = lazyregexp.New(`^[A-Z0-9]+$`)
	timeoutFlags   = []string{"--preserve-status", "--foreground"}
	timeoutOptions = map[string]*lazyregexp.Regexp{"-s": signalName, "--signal": signalName, "-k": duration, "--kill-after": duration}
)

// AfterWrapper returns the index of the command that nohup, nice or timeout starts. It returns 0 for
// every other command, and if an option is not known.
func AfterWrapper(args []string) int {
	at := 0
	switch args[0] {
	case "nohup":
		at = 1
	case "nice":
		at = afterNice(args)
	case "timeout":
		at = afterTimeout(args)
	}
	if at >= len(args) || args[at] == "" || args[at][0] == '-' {
		return 0
	}
	return at
}

// AfterWrappers is AfterWrapper for a series of wrappers.
func AfterWrappers(args []string) int {
	at := 0
	for {
		n := AfterWrapper(args[at:])
		if n == 0 {
			return at
		}
		at += n
	}
}

// afterNice returns the index of the command after "nice", "nice -n N" or "nice -N" (nice(1)).
func afterNice(args []string) int {
	switch {
	case len(args) > 2 && args[1] == "-n" && niceness.MatchString(args[2]):
		return 3
	case len(args) > 1 && niceOption.MatchString(args[1]):
		return 2
	}
	return 1
}

// afterTimeout returns the index of the command after "timeout [OPTION]... DURATION" (timeout(1)), or 0 if the words are
// not of this form.
func afterTimeout(args []string) int {
	for at := 1; at < len(args); at++ {
		word := args[at]
		if duration.MatchString(word) {
			return at + 1
		}
		if slices.Contains(timeoutFlags, word) {
			continue
		}
		name, value, attached := strings.Cut(word, "=")
		if !attached && at+1 < len(args) {
			at++
			value = args[at]
		}
		form, known := timeoutOptions[name]
		if !known || attached && len(name) == 2 || !form.MatchString(value) {
			return 0
		}
	}
	return 0
}
