package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/skillrun/skillrun/internal/record"
)

// maxGrow bounds what --grow-record adds at once: a gigabyte or so for a million.
const maxGrow = 10_000_000

// growRecord makes the record of a daemon that doesn't run longer, so that it can be
// measured what that costs one that does.
func growRecord(c config, n int) error {
	if n < 0 || n > maxGrow {
		return fmt.Errorf("--grow-record %d: want a number from 1 to %d", n, maxGrow)
	}
	unlock, err := lockState(c.StateDir)
	if err != nil {
		return err
	}
	defer unlock()
	store, err := record.Open(record.Config{Dir: filepath.Join(c.StateDir, "record")})
	if err != nil {
		return err
	}
	return errors.Join(store.Grow(context.Background(), n), store.Close())
}
