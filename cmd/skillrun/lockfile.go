package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/skillrun/skillrun/internal/durable"
)

// lockName is the default file that pins what skills add has installed.
const lockName = "skillrun.lock.json"

// A pin is a skill in the lock file. Digest is compared with the index before a download. The daemon computed Skill
// from the unpacked folder, so a script can run exactly the version that was added.
type pin struct {
	Index   string `json:"index"`
	Version string `json:"version,omitempty"`
	Digest  string `json:"digest"` // of the artifact, as the index has it
	Skill   string `json:"skill"`  // the digest that name@ takes
}

// A lockFile is the path of a file with pins. Several commands may change the file at the same time.
type lockFile string

// read returns no pins without a file, which the first change makes.
func (l lockFile) read() (map[string]pin, error) {
	pins, err := l.parse()
	if err != nil {
		return nil, l.about(err)
	}
	return pins, nil
}

func (l lockFile) parse() (map[string]pin, error) {
	info, err := os.Stat(string(l))
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]pin{}, nil
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // the read of a FIFO could wait for ever, and a device must not be replaced
		return nil, errors.New("not a regular file")
	}
	data, err := os.ReadFile(string(l))
	if err != nil {
		return nil, err
	}
	pins := map[string]pin{}
	if err := json.Unmarshal(data, &pins); err != nil {
		return nil, err
	}
	if pins == nil { // the file has null
		pins = map[string]pin{}
	}
	return pins, nil
}

// change has edit change the pins, and replaces the file as a whole. An error of edit is returned as it is, and the file
// is then not replaced.
func (l lockFile) change(ctx context.Context, edit func(map[string]pin) error) error {
	return l.guarded(ctx, func() error {
		pins, err := l.read()
		if err != nil {
			return err
		}
		if err := edit(pins); err != nil {
			return err
		}
		data, err := json.MarshalIndent(pins, "", "  ")
		if err == nil {
			err = durable.WriteFile(string(l), append(data, '\n'))
		}
		if err != nil {
			return l.about(err)
		}
		return nil
	})
}

// check returns an error if the file can't be changed.
func (l lockFile) check(ctx context.Context) error {
	return l.guarded(ctx, func() error { return nil })
}

// guardTime is how long a change waits for others. A change takes milliseconds.
const guardTime = 10 * time.Second

// guarded calls f while no other process does. The guard is a second file, which only one process can make, as in git. A
// lock of the kernel on the file itself would not do, because a change replaces the file by another one.
func (l lockFile) guarded(ctx context.Context, f func() error) error {
	guard := string(l) + ".lock"
	ctx, cancel := context.WithTimeoutCause(ctx, guardTime,
		fmt.Errorf("%s exists, because another skillrun changes the lock file; if none does, remove it", guard))
	defer cancel()
	for {
		file, err := os.OpenFile(guard, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			file.Close()
			defer os.Remove(guard)
			return f()
		}
		if !errors.Is(err, fs.ErrExist) {
			return l.about(err)
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return l.about(context.Cause(ctx))
		}
	}
}

// about adds the flag to an error.
func (l lockFile) about(err error) error {
	if bad := (*fs.PathError)(nil); errors.As(err, &bad) {
		err = bad.Err // the path is in the message already
	}
	return fmt.Errorf("--lock %s: %w", string(l), err)
}
