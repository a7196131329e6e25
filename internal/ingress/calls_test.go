package ingress

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestCallsAreQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Calls
		if !c.Quiet(time.Second) {
			t.Error("without a call it is not quiet")
		}
		first, second := c.Begin(), c.Begin()
		if !c.Decided().IsZero() {
			t.Error("a pending call is decided")
		}
		time.Sleep(time.Minute)
		first()
		decided := c.Decided()
		time.Sleep(time.Minute)
		first()
		if got := c.Decided(); got != decided || time.Since(got) != time.Minute {
			t.Errorf("decided at %v, then at %v", decided, got)
		}
		if c.Quiet(time.Second) {
			t.Error("quiet with a pending call")
		}
		second()
		if !c.Quiet(time.Second) {
			t.Error("not quiet after the last call")
		}
		c.Begin()()
		if c.Quiet(time.Second) {
			t.Error("quiet right after a call")
		}
		time.Sleep(time.Second)
		if !c.Quiet(time.Second) {
			t.Error("not quiet after a second")
		}
	})
}
