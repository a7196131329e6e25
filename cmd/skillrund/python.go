package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/skillrun/skillrun/internal/runtime"
)

// bundleVar passes the bundle's path to the second run of the daemon. The second run
// executes a copy in memory and can't find the directory of its binary (sandbox.Isolate).
const bundleVar = "_SKILLRUN_PYTHON"

// findBundle returns the path of the program that carries the embedded Python: skillrun-python
// in the directory of the daemon's binary. It does not look whether the file is there. run
// removes the variable in the second run.
func findBundle() (string, error) {
	if bundle, ok := os.LookupEnv(bundleVar); ok {
		return bundle, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	bundle := filepath.Join(filepath.Dir(self), "skillrun-python")
	return bundle, os.Setenv(bundleVar, bundle)
}

// installPython installs the embedded Python in the state directory. With python: embedded
// in the configuration a failure is an error. Otherwise the daemon logs a warning and
// refuses executions that ask for the embedded Python.
func (d *daemon) installPython(ctx context.Context, bundle string) error {
	python, err := runtime.Install(ctx, runtime.InstallConfig{Dir: filepath.Join(d.config.StateDir, "python"), Bundle: bundle, Log: d.log})
	if err == nil {
		d.python = python
		d.runtimes = d.runtimes.WithEmbedded(python)
		return nil
	}
	if ctx.Err() != nil || d.config.Python == string(runtime.Embedded) {
		return fmt.Errorf("python: %s: %w", d.config.Python, err)
	}
	d.log.Warn("no embedded Python", "err", err)
	return nil
}
