package main

import (
	"strings"
	"testing"
	"time"
)

// pollInterval is the least time between two polls.
const pollInterval = 10 * time.Millisecond

// await polls until done returns true. It returns false after patience. It is for the state
// of other processes and of the kernel, which give a test no event to wait for.
// Between two polls it waits four times as long as the last poll took. A poll may be an execution. Without the
// pause, polls would use the processors that the awaited process and other tests need.
func await(done func() bool) bool {
	for began, over := time.Now(), time.Now().Add(patience); !done(); began = time.Now() {
		if time.Now().After(over) {
			return false
		}
		<-time.After(max(pollInterval, 4*time.Since(began)))
	}
	return true
}

// until waits until done returns true, and fails the test with what after patience.
func until(t testing.TB, what string, done func() bool) {
	t.Helper()
	if !await(done) {
		t.Fatal(what)
	}
}

// untilNone waits until list is empty. After patience it fails the test and prints the list.
func untilNone(t testing.TB, what string, list func() []string) {
	t.Helper()
	var left []string
	if !await(func() bool { left = list(); return len(left) == 0 }) {
		t.Errorf("%s:\n%s", what, strings.Join(left, "\n"))
	}
}

// untilLogged waits until the daemon's log contains text.
func (d *running) untilLogged(text string) {
	d.t.Helper()
	until(d.t, "the log does not say "+text, func() bool { return strings.Contains(d.log.String(), text) })
}
