package ingress

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

func TestCallsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Calls
		if err := c.Wait(t.Context()); err != nil {
			t.Errorf("without a call: %v", err)
		}
		first, second := c.Begin(), c.Begin()
		done, cancel := context.WithCancel(t.Context())
		cancel()
		if err := c.Wait(done); !errors.Is(err, context.Canceled) {
			t.Errorf("with two calls, and a context that is done: got %v", err)
		}
		var waited atomic.Int32
		for range 2 {
			go func() {
				if err := c.Wait(t.Context()); err != nil {
					t.Error(err)
				}
				waited.Add(1)
			}()
		}
		first()
		first() // does nothing
		synctest.Wait()
		if waited.Load() != 0 {
			t.Error("Wait has returned before the second call has ended")
		}
		second()
		synctest.Wait()
		if waited.Load() != 2 {
			t.Errorf("%d of 2 have returned", waited.Load())
		}
	})
}
