package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

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

// pythonProgram carries the embedded Python.
const pythonProgram = "skillrun-python"

// beside returns the path of a program in the directory of the daemon's binary. It does not look whether the file is
// there.
func beside(daemon, program string) string {
	if binary, err := filepath.EvalSymlinks(daemon); err == nil {
		daemon = binary
	}
	return filepath.Join(filepath.Dir(daemon), program)
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
