package main

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// each calls f for every execution of a command line, in this order, also after an error: the command
// does what it can. It prints each error but the last one, which it returns. The exit code is that of the
// last error. An error that all later calls would have, too, is the last: the end of ctx, no daemon, or a
// caller that the daemon does not know.
func (a *app) each(ctx context.Context, ids []string, f func(id string) error) error {
	var last error
	for _, id := range ids {
		err := f(id)
		if err == nil {
			continue
		}
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
