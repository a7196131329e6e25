package gateway

import (
	"context"
	"time"

	"golang.org/x/time/rate"
)

// A throttle bounds the helper's work for refusals and for questions to the name server: they cost the helper more
// processor time than they cost the program. Beyond the rate, the Gateway stops reading the sandbox's packets for a
// while. The queue of the sandbox's device then fills, and the kernel drops packets in the sandbox, at its cost.
type throttle struct{ limiter *rate.Limiter }

const (
	wasteRate   = 2000 // refusals and questions in a second
	wasteBurst  = 4000 // that may come at once
	wasteOfPort = 10   // a failed search for a free port counts as 10 refusals, because the kernel tries thousands of ports
)

func newThrottle() *throttle { return &throttle{rate.NewLimiter(wasteRate, wasteBurst)} }

// charge counts n refusals. It never waits, so the counter can go below zero.
func (t *throttle) charge(n int) { t.limiter.ReserveN(time.Now(), n) }

// hold waits until the counted refusals are within the rate again, or until life ends.
func (t *throttle) hold(life context.Context) {
	// The tokens are below zero by the refusals beyond the rate, and grow by wasteRate in a second. So they are zero
	// again after debt / wasteRate seconds.
	debt := -t.limiter.Tokens()
	if debt <= 0 {
		return
	}
	timer := time.NewTimer(time.Duration(debt / float64(t.limiter.Limit()) * float64(time.Second)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-life.Done():
	}
}
