package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"github.com/skillrun/skillrun/internal/runtime"
)

// programVar passes the path of the daemon's binary to the second run of the daemon, which
// executes a copy in memory (sandbox.Isolate).
const programVar = "_SKILLRUN_PROGRAM"

// findProgram returns the path by which the daemon was started. If the path is a link, a later takeover follows it again,
// so an upgrade can change the link. run removes the variable in the second run.
func findProgram() (string, error) {
	if self, ok := os.LookupEnv(programVar); ok {
		return self, nil
	}
	self, err := exec.LookPath(os.Args[0]) // a relative path if it has a slash
	if err == nil {
		self, err = filepath.Abs(self)
	}
	if err != nil { // the starter has set another name
		if self, err = os.Executable(); err != nil {
			return "", err
		}
	}
	return self, os.Setenv(programVar, self)
}

// bundleOf returns the path of the program that carries the embedded Python: skillrun-python in the directory
// of the daemon's binary. It does not look whether the file is there.
func bundleOf(program string) string {
	if binary, err := filepath.EvalSymlinks(program); err == nil {
		program = binary
	}
	return filepath.Join(filepath.Dir(program), "skillrun-python")
}

// An installing is an installation of the embedded Python. It runs while the daemon tries the machine's boundaries, since
// the comparison of 1,500 files with their manifest takes long.
type installing struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
	python *runtime.Installation
	err    error
}

// startInstalling begins to install the embedded Python in the state directory, and returns at once. The fields may be
// read after done.Wait.
func (d *daemon) startInstalling(ctx context.Context) *installing {
	i := &installing{}
	ctx, i.cancel = context.WithCancel(ctx)
	i.done.Go(func() {
		i.python, i.err = runtime.Install(ctx, runtime.InstallConfig{Dir: filepath.Join(d.config.StateDir, "python"), Bundle: bundleOf(d.program), Log: d.log})
	})
	return i
}

// close ends the installation, and lets a later daemon remove what was installed.
func (i *installing) close() error {
	i.cancel()
	i.done.Wait()
	if i.python == nil {
		return nil
	}
	return i.python.Close()
}

// takePython waits for the embedded Python. With python: embedded in the configuration a failure is an error. Otherwise
// the daemon logs a warning and refuses executions that ask for the embedded Python.
func (d *daemon) takePython(ctx context.Context) error {
	d.installing.done.Wait()
	err := d.installing.err
	if err == nil {
		d.python = d.installing.python
		d.runtimes = d.runtimes.WithEmbedded(d.python)
		return nil
	}
	if ctx.Err() != nil || d.config.Python == string(runtime.Embedded) {
		return fmt.Errorf("python: %s: %w", d.config.Python, err)
	}
	d.log.Warn("no embedded Python", "err", err)
	return nil
}
