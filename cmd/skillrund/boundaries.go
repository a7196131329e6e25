package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skillrun/skillrun/sandbox"
)

// A probing is a probe of the boundaries. It runs while the daemon starts its other parts.
// The daemon executes nothing before the probe has ended.
type probing struct {
	done  sync.WaitGroup
	found []sandbox.Boundary
	took  time.Duration
	err   error
}

// startProbing begins the probe and returns at once. The fields may be read after done.Wait.
// The probe takes some tenths of a second, mostly waiting, so the other parts start in its shadow.
func startProbing(ctx context.Context, host *sandbox.Host) *probing {
	p := &probing{}
	p.done.Go(func() {
		begin := time.Now()
		p.found, p.err = host.Probe(ctx)
		p.took = time.Since(begin)
	})
	return p
}

// judge waits for the probe and logs which boundaries are missing. It returns the missing
// boundaries that boundaries.allow_missing does not name.
func (d *daemon) judge() (missing []string, err error) {
	d.probing.done.Wait()
	if err := d.probing.err; err != nil {
		return nil, fmt.Errorf("no sandbox can be made: %w", err)
	}
	var allowed []string
	for _, b := range d.probing.found {
		switch {
		case b.Found:
			if d.config.allows(b) {
				d.log.Info("boundary present; remove it from boundaries.allow_missing", "name", b.Name)
			}
		case d.config.allows(b):
			allowed = append(allowed, b.Name)
			d.log.Warn("boundary missing, as the configuration allows", "name", b.Name, "why", b.Why, "detail", b.Detail)
		default:
			missing = append(missing, b.Name)
			line := "none: this boundary cannot be skipped"
			if slices.Contains(sandbox.Lowerable(), b.Name) {
				line = fmt.Sprintf("boundaries: {allow_missing: [%s]}", b.Name)
			}
			d.log.Error("boundary missing", "name", b.Name, "why", b.Why, "detail", b.Detail, "config_to_allow", line)
		}
	}
	d.log.Info("boundaries tried", "found", len(d.probing.found)-len(missing)-len(allowed), "missing", len(missing), "allowed", len(allowed),
		"took_ms", d.probing.took.Milliseconds())
	return missing, nil
}

// allows reports whether the configuration lets b be missing. checkBoundaries has refused the
// names of boundaries that can't be skipped.
func (c *config) allows(b sandbox.Boundary) bool {
	return slices.Contains(c.Boundaries.AllowMissing, b.Name)
}

// doctor probes every boundary of this machine and prints the results. Like the daemon it calls
// Isolate, which executes the program a second time. It does not take the daemon's lock of
// state_dir. An error means exit code 1: a boundary is missing, allowed or not.
func doctor(c config, w io.Writer) error {
	if err := sandbox.Isolate(); err != nil {
		return explainMachine(c, w, err)
	}
	host, err := sandbox.Open(context.Background(), c.sandbox(nil))
	if err != nil {
		return explainMachine(c, w, err)
	}
	found, err := host.Probe(context.Background())
	return errors.Join(err, printBoundaries(w, &c, found), host.Close())
}

// explainMachine prints the boundaries of the machine after err made sandboxes impossible.
// It returns err with the names of the missing boundaries.
func explainMachine(c config, w io.Writer, err error) error {
	if lacks := printBoundaries(w, &c, sandbox.Boundaries(c.sandbox(nil))); lacks != nil {
		return fmt.Errorf("%w; the boundaries inside a sandbox were not tried: %w", lacks, err)
	}
	return err
}

// printBoundaries prints a line for each boundary. The error names the missing boundaries;
// nil if none is missing. An error of w is ignored: it is stdout or stderr of a command that ends
// next.
func printBoundaries(w io.Writer, c *config, boundaries []sandbox.Boundary) error {
	var missing []string
	for _, b := range boundaries {
		mark := "ok"
		if !b.Found {
			mark = "MISSING"
			if c.allows(b) {
				mark = "allowed"
			}
			missing = append(missing, b.Name)
		}
		fmt.Fprintf(w, "%-8s %-11s %-33s %s\n", mark, b.Group, b.Name, b.Why)
		if b.Detail != "" {
			fmt.Fprintf(w, "%20s %-33s %s\n", "", "", b.Detail)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%d of %d boundaries are missing: %s", len(missing), len(boundaries), strings.Join(missing, ", "))
	}
	return nil
}
