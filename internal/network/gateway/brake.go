package gateway

import (
	"context"
	"time"

	"golang.org/x/time/rate"
)

// A brake bounds the helper's work for refusals and for questions to the name server, which cost a program less
// than they cost the helper. Beyond the rate, the Gateway reads no packet of the sandbox for a while, so that the
// sandbox's kernel drops packets, on the account of the sandbox.
type brake struct{ limiter *rate.Limiter }

const (
	wasteRate   = 2000 // refusals and questions in a second
	wasteBurst  = 4000
	wasteOfPort = 10 // a search for a free port counts as so many: the kernel tries thousands
)

func newBrake() *brake { return &brake{rate.NewLimiter(wasteRate, wasteBurst)} }

// charge counts n refusals.
func (b *brake) charge(n int) { b.limiter.ReserveN(time.Now(), n) }

// hold waits until there were not too many, or until life ends.
func (b *brake) hold(life context.Context) {
	debt := -b.limiter.Tokens()
	if debt <= 0 {
		return
	}
	timer := time.NewTimer(time.Duration(debt / float64(b.limiter.Limit()) * float64(time.Second)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-life.Done():
	}
}
