package skillrun

import (
	"bytes"
	"context"
	"errors"
)

// stderrBytes is how much of stderr Output keeps for its error.
const stderrBytes = 32 << 10

var errNotStarted = errors.New("command: not started")

// Run starts the execution and waits for its end, see [Execution.Wait].
func (c *Cmd) Run(ctx context.Context) error {
	if err := c.Start(ctx); err != nil {
		return err
	}
	return c.Wait()
}

// Wait waits for the end of a command after Start, see [Execution.Wait].
func (c *Cmd) Wait() error {
	if c.Execution == nil {
		return errNotStarted
	}
	return c.Execution.Wait()
}

// Output runs the command and returns its standard output. Stdout must be nil. If Stderr is
// nil too, an *ExitError has the end of the standard error.
func (c *Cmd) Output(ctx context.Context) ([]byte, error) {
	if c.Stdout != nil {
		return nil, errors.New("command: Stdout is set")
	}
	var stdout bytes.Buffer
	c.Stdout = &stdout
	var stderr *tail
	if c.Stderr == nil {
		stderr = &tail{}
		c.Stderr = stderr
	}
	err := c.Run(ctx)
	if exit := (*ExitError)(nil); stderr != nil && errors.As(err, &exit) {
		exit.Stderr = stderr.data
	}
	return stdout.Bytes(), err
}

// CombinedOutput runs the command and returns its standard output and standard error, in
// the order in which they arrived. Stdout and Stderr must be nil. The order between the two
// streams is the daemon's, which reads two pipes.
func (c *Cmd) CombinedOutput(ctx context.Context) ([]byte, error) {
	if c.Stdout != nil || c.Stderr != nil {
		return nil, errors.New("command: Stdout or Stderr is set")
	}
	var both bytes.Buffer
	c.Stdout, c.Stderr = &both, &both
	err := c.Run(ctx)
	return both.Bytes(), err
}

// Signal sends a signal, such as "SIGUSR1", to the program's main process.
func (c *Cmd) Signal(ctx context.Context, name string) error {
	if c.Execution == nil {
		return errNotStarted
	}
	return c.Execution.Signal(ctx, name)
}

// Cancel ends the execution with the daemon's default grace, see [Execution.Cancel].
func (c *Cmd) Cancel(ctx context.Context) error {
	if c.Execution == nil {
		return errNotStarted
	}
	return c.Execution.Cancel(ctx, 0, "")
}

// tail keeps the last stderrBytes bytes that are written to it.
type tail struct{ data []byte }

// Write never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.data = append(t.data, p...)
	if extra := len(t.data) - stderrBytes; extra > 0 {
		t.data = append(t.data[:0], t.data[extra:]...)
	}
	return len(p), nil
}
