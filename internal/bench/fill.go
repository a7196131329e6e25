package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/skillrun/skillrun/internal/record"
)

// defaultTenant is the tenant of the daemon's own socket.
const defaultTenant = "default"

// fillSpan is the time before now over which the copies of an execution are spread.
const fillSpan = 12 * time.Hour

// fillRecord adds n copies of the newest execution to the record of a daemon that doesn't run;
// dir is the daemon's directory. A copy has neither labels, artifacts nor an idempotency key. It
// goes through package record and not through a daemon, because a million executions would take
// much longer. The rows and spools are like the ones of real executions.
func fillRecord(ctx context.Context, dir string, n int) (err error) {
	store, err := record.Open(record.Config{Dir: filepath.Join(dir, "state", "record")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	page, _, err := store.List(ctx, record.Filter{Tenant: defaultTenant, States: []record.State{record.Ended}, PageSize: 1})
	if err != nil {
		return err
	}
	if len(page) == 0 {
		return errors.New("fill the record: no execution has ended")
	}
	model := page[0]
	events, err := eventsOf(ctx, store, model)
	if err != nil {
		return err
	}
	// All copies are younger than retention.age (24 h by default), so the daemon's first Sweep removes
	// none of them.
	from := time.Now().Add(-fillSpan)
	for i := range n {
		if err := addCopy(ctx, store, model, events, from.Add(fillSpan/time.Duration(n)*time.Duration(i))); err != nil {
			return fmt.Errorf("fill the record: %w", err)
		}
	}
	return nil
}

// eventsOf returns all events of an ended execution.
func eventsOf(ctx context.Context, store *record.Store, x record.Execution) (events []record.Event, err error) {
	r, err := store.Read(ctx, x.Tenant, x.ID, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for {
		e, err := r.Next(ctx)
		if err == io.EOF {
			return events, nil
		}
		if err != nil {
			return nil, err
		}
		events = append(events, e) // not released: its data stays
	}
}

// addCopy records an execution like x with the same events, all of them at one time.
func addCopy(ctx context.Context, store *record.Store, x record.Execution, events []record.Event, at time.Time) error {
	x.ID, x.Created, x.Labels, x.Key = record.NewID(), at, nil, ""
	log, err := store.Create(ctx, x, events[0].Data)
	if err != nil {
		return err
	}
	for _, e := range events[1:] {
		switch e.Kind {
		case record.KindStarted:
			err = log.Started(ctx, at, e.Data)
		case record.KindOutput:
			_, err = log.Append(record.Event{Kind: e.Kind, Time: at, Stream: e.Stream, Offset: e.Offset, Data: e.Data})
		case record.KindEnd:
			err = log.End(ctx, e.End, e.Data, at)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
