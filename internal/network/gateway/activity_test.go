package gateway

import (
	"testing"
	"time"
)

// A change of the machine's clock neither cuts a connection nor keeps an idle one: what note stores is no time of day.
func TestActivityIgnoresTheTimeOfDay(t *testing.T) {
	var a activity
	a.note()
	if last := time.Duration(a.last.Load()); last > time.Since(began) {
		t.Errorf("the last data came %v after the start, which is in the future", last)
	}
	if rest := a.rest(time.Hour); rest <= 0 || rest > time.Hour {
		t.Errorf("%v is left of an hour", rest)
	}
}
