package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// adoptSteps returns steps that fail as often as the numbers say, and the list of their calls.
func adoptSteps(failures ...int) (steps []adoption, calls *[]int) {
	calls = new([]int)
	for n, left := range failures {
		steps = append(steps, func(context.Context) error {
			*calls = append(*calls, n)
			if left--; left >= 0 {
				return errors.New("no space left on device")
			}
			return nil
		})
	}
	return steps, calls
}

// A part of the earlier daemon's state that can't be adopted, for example on a full disk, is adopted later. It holds up no
// other part.
func TestAdoptTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		steps, calls := adoptSteps(0, 3, 0, 1)
		if !adopt(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), steps) {
			t.Error("not done")
		}
		want := []int{0, 1, 2, 3, 1, 3, 1, 1}
		if got := *calls; !slices.Equal(got, want) {
			t.Errorf("got the calls %v, want %v", got, want)
		}
		if n := strings.Count(log.String(), "is not adopted yet"); n != 2 {
			t.Errorf("%d lines for two different errors:\n%s", n, &log)
		}
	})
}

// A daemon that stops tries no longer; the next start adopts everything.
func TestAdoptEndsWithTheDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		steps, _ := adoptSteps(1 << 30)
		if adopt(ctx, slog.New(slog.DiscardHandler), steps) {
			t.Error("done")
		}
	})
}
