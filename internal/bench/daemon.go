package bench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	skillrun "github.com/skillrun/skillrun/clients/go"
)

const (
	// startPatience is how long a daemon may take until it serves. The first one unpacks a
	// Python, and another one imports 10,000 skills.
	startPatience = 10 * time.Minute
	// stopPatience is how long a daemon may take to end.
	stopPatience = time.Minute
	// logTail is how many bytes of a daemon's log an error shows.
	logTail = 2000
)

// A daemon is a skillrund that the benchmark has started, with a client. stop must be called for
// each one, also after an error. r.close does it for the standard one.
type daemon struct {
	dir    string // has the configuration, state, skills, socket and log
	cmd    *exec.Cmd
	exited chan struct{} // closed when the daemon has ended, after err is set
	err    error
	client *skillrun.Client
}

// theStandard returns the daemon that most rows share. It has the default configuration and
// the benchmark's skill.
func (r *run) theStandard() (*daemon, error) {
	if r.standard != nil {
		return r.standard, nil
	}
	d, err := r.startNew("standard", "")
	r.standard = d
	return d, err
}

// startNew starts a daemon in a new directory with the benchmark's skill and waits until it
// serves. more is appended to its configuration.
func (r *run) startNew(name, more string) (*daemon, error) {
	dir, err := r.prepare(name, more)
	if err != nil {
		return nil, err
	}
	return r.start(dir)
}

// prepare creates a daemon's directory. The directories have mode 0711, because the ids of
// sandboxes must reach files beneath them.
func (r *run) prepare(name, more string) (string, error) {
	r.daemons++
	dir := filepath.Join(r.dir, fmt.Sprintf("%d-%s", r.daemons, name))
	for _, d := range []string{"", "state", "skills"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o711); err != nil {
			return "", err
		}
	}
	// All daemons share one unpacked Python.
	if err := os.Mkdir(filepath.Join(r.dir, "python"), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	if err := os.Symlink(filepath.Join(r.dir, "python"), filepath.Join(dir, "state/python")); err != nil {
		return "", err
	}
	if err := writeSkill(filepath.Join(dir, "skills"), benchSkill, benchFiles); err != nil {
		return "", err
	}
	config := "state_dir: state\nrun_dir: run\nskills: [skills]\nlisten: {unix: s.sock, mcp_unix: \"\"}\n" + more
	return dir, os.WriteFile(filepath.Join(dir, "skillrund.yaml"), []byte(config), 0o600)
}

// addToListen replaces a part of the key listen that prepare has written.
func addToListen(dir, old, now string) error {
	path := filepath.Join(dir, "skillrund.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(strings.Replace(string(text), old, now, 1)), 0o600)
}

// start starts a daemon in a prepared directory and waits until it serves. Callers time it: it
// takes until SERVING, the health check included.
func (r *run) start(dir string) (*daemon, error) { return r.startIn(dir, nil) }

// startIn starts a daemon in a network namespace. Nil: the benchmark's own.
func (r *run) startIn(dir string, n *namespace) (*daemon, error) {
	d, err := r.launch(dir, n)
	if err != nil {
		return nil, err
	}
	if err := d.serving(r.ctx); err != nil {
		return nil, errors.Join(err, d.stop())
	}
	if d.client, err = skillrun.Dial(d.address()); err != nil {
		return nil, errors.Join(err, d.stop())
	}
	return d, nil
}

// launch only starts the process. The kernel ends it if this process dies.
func (r *run) launch(dir string, n *namespace) (*daemon, error) {
	// Standard error goes to a file and not to a pipe, so that a daemon never waits for the
	// benchmark to read.
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	d := &daemon{dir: dir, exited: make(chan struct{})}
	d.cmd = exec.Command(r.Daemon, "--config", filepath.Join(dir, "skillrund.yaml"))
	d.cmd.Stderr = log
	// A new process group, so that Ctrl-C reaches only the benchmark, which then stops the
	// daemon.
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
	started := make(chan error)
	go func() {
		// The kernel sends Pdeathsig when the thread that started the process ends, see
		// prctl(2).
		runtime.LockOSThread()
		err := inside(n)
		if err == nil {
			err = d.cmd.Start()
		}
		started <- err
		if err == nil {
			d.err = d.cmd.Wait()
			close(d.exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return d, nil
}

// address is for clients, socket for a plain connection. pid is valid until stop.
func (d *daemon) address() string { return "unix://" + d.socket() }
func (d *daemon) socket() string  { return filepath.Join(d.dir, "s.sock") }
func (d *daemon) pid() int        { return d.cmd.Process.Pid }

// serving waits until the daemon's health service reports SERVING.
func (d *daemon) serving(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	if err := d.listening(ctx); err != nil {
		return err
	}
	conn, err := grpc.NewClient(d.address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	for {
		answer, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
		if err != nil {
			return d.complaint(fmt.Errorf("health: %w", err))
		}
		if answer.GetStatus() == healthpb.HealthCheckResponse_SERVING {
			return nil
		}
		if err := d.moment(ctx); err != nil {
			return d.complaint(fmt.Errorf("health is %v: %w", answer.GetStatus(), err))
		}
	}
}

// listening waits for the socket, which the daemon creates last.
func (d *daemon) listening(ctx context.Context) error {
	for {
		c, err := net.Dial("unix", d.socket())
		if err == nil {
			return c.Close()
		}
		if err := d.moment(ctx); err != nil {
			return d.complaint(err)
		}
	}
}

// moment waits for 1 ms. It returns an error if the daemon has ended or ctx is done.
func (d *daemon) moment(ctx context.Context) error {
	select {
	case <-d.exited:
		return fmt.Errorf("the daemon exited: %w", d.err)
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(time.Millisecond):
		return nil
	}
}

// complaint adds the end of the daemon's log to err.
func (d *daemon) complaint(err error) error {
	data, _ := os.ReadFile(filepath.Join(d.dir, "log"))
	if len(data) > logTail {
		data = data[len(data)-logTail:]
	}
	return fmt.Errorf("skillrund: %w\n%s", err, strings.TrimSpace(string(data)))
}

// stop ends the daemon with SIGTERM. The daemon must exit with 0. The exit code counts, because a
// daemon that could not clean up makes later rows wrong.
func (d *daemon) stop() error {
	if d == nil {
		return nil
	}
	if d.client != nil {
		d.client.Close()
	}
	d.cmd.Process.Signal(syscall.SIGTERM) // an error means that it has ended, which Wait reports
	select {
	case <-d.exited:
	case <-time.After(stopPatience):
		d.cmd.Process.Kill()
		<-d.exited
		return d.complaint(errors.New("the daemon did not end"))
	}
	if d.err != nil {
		return d.complaint(d.err)
	}
	return nil
}

// dial returns n more clients, each with its own connection, and a function that closes
// them. A daemon limits the streams of one connection, so many requests at once need several.
func (d *daemon) dial(n int) (clients []*skillrun.Client, end func(), err error) {
	end = func() {
		for _, c := range clients {
			c.Close()
		}
	}
	for range n {
		c, err := skillrun.Dial(d.address())
		if err != nil {
			end()
			return nil, nil, err
		}
		clients = append(clients, c)
	}
	return clients, end, nil
}
