package main

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// each calls f for every execution of a command line, in this order, and goes on after an error. It
// returns the last error, which decides the exit code, and prints the others. It stops at an error that
// all later calls would get: ctx has ended, no daemon answers, or the daemon does not know the caller.
func (a *app) each(ctx context.Context, ids []string, f func(id string) error) error {
	var last error
	for _, id := range ids {
		err := f(id)
		if err == nil {
			continue
		}
		// The earlier error is printed only now, because the last one is returned and printed by exit.
		if last != nil {
			fmt.Fprintf(a.stderr, "skillrun: %s\n", a.explain(last))
		}
		last = err
		if code := status.Code(err); ctx.Err() != nil || code == codes.Unavailable || code == codes.Unauthenticated {
			return err
		}
	}
	return last
}
