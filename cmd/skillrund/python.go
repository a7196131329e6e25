package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/skillrun/skillrun/internal/runtime"
)

// bundleVar hands the bundle's path to the second run of the daemon, which can't
// tell where its binary lies (sandbox.Isolate).
const bundleVar = "_SKILLRUN_PYTHON"

// findBundle returns where the program is that carries the embedded Python: beside
// the daemon's.
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

// installPython makes the embedded Python usable. A daemon whose skills are to run
// on it does not start without; for another its lack is worth a line in the log, and
// whoever asks for it is refused.
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
