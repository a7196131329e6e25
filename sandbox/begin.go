package sandbox

import (
	"context"
	"time"
)

// begin has init let the program run, by what tell says, and waits for its word, a
// frame of the given kind, that the program does or may.
//
// No caller's going away ends that any more: the program may run by now and have
// printed something that was read. Then it is stopped like all that runs, with a
// signal and its grace, and ends as itself.
func (c *sandbox) begin(notify func() error, word uint32) error {
	giveUp := time.AfterFunc(startPatience, func() { c.control.file.Close() })
	defer giveUp.Stop()
	if err := notify(); err != nil {
		return step("init", err)
	}
	if _, err := c.control.expect(word, 0); err != nil {
		return step("init", err)
	}
	if !giveUp.Stop() { // just now, and the socket is closed
		return step("start", context.DeadlineExceeded)
	}
	return nil
}
