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
		time.Sleep(time.Minute)
		first()
		first()
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
