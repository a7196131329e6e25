package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/skillrun/skillrun/internal/hosttest"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// The tests of this package run the real daemon and the real client. They talk to the daemon
// like any other client.

// slower multiplies waits and deadlines on a machine that is known to be slow, such as an
// emulator.
var slower = func() time.Duration {
	n, err := strconv.Atoi(os.Getenv("SKILLRUN_TEST_SLOWER"))
	if err != nil {
		return 1
	}
	return time.Duration(max(n, 1))
}()

// patienceVar shortens patience for tests that must fail, see wantSuite.
const patienceVar = "SKILLRUN_TEST_PATIENCE"

// patience bounds every wait of a test. No test depends on its length.
var patience = func() time.Duration {
	d, err := time.ParseDuration(os.Getenv(patienceVar))
	if err != nil {
		d = 2 * time.Minute
	}
	return slower * d
}()

// startsWithin is a deadline for programs that do something and then wait for the deadline.
// It is long enough for a program to start on a busy machine.
var startsWithin = slower * 6 * time.Second

var binaries = sync.OnceValues(func() (string, error) {
	dir, build := os.Getenv("SKILLRUN_BIN"), []string{"../skillrund", "../skillrun", "../skillrun-network", "../skillrun-python"}
	if dir != "" {
		if _, err := os.Stat(filepath.Join(dir, "skillrun-python")); err == nil {
			return dir, nil
		}
		build = build[3:] // the directory has no skillrun-python: build it
	} else {
		var err error
		if dir, err = os.MkdirTemp("", "skillrun-bin-"); err != nil {
			return "", err
		}
		madeBinaries = dir
		if err := os.Chmod(dir, 0o755); err != nil { // tests run the client as other users
			return "", err
		}
	}
	out, err := exec.Command("go", append([]string{"build", "-o", dir + "/"}, build...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return dir, nil
})

// pythonDir is the directory of the embedded Python for all daemons under test, so that it is
// unpacked once: the one from make test, or a new one, which TestMain removes.
var pythonDir = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv(hosttest.PythonVar); dir != "" {
		return dir, os.MkdirAll(dir, 0o755) // a daemon does not make the target of a link
	}
	var err error
	madePython, err = os.MkdirTemp("/var/tmp", "skillrund-python-")
	return madePython, err
})

// madeBinaries and madePython are the directories that binaries and pythonDir have made, if they have. TestMain removes
// them. A fuzz worker makes none, because it is killed before it could remove anything.
var madeBinaries, madePython string

func TestMain(m *testing.M) {
	// One more than the processors, because some tests wait. With more, tests reach their deadlines on a slow machine.
	// -parallel overrides this.
	flag.Set("test.parallel", strconv.Itoa(1+runtime.NumCPU()))
	code := m.Run()
	if err := shared.end(); err != nil {
		fmt.Fprintln(os.Stderr, "the shared daemon:", err)
		code = 1
	}
	if faultyDir != "" {
		os.RemoveAll(faultyDir)
	}
	for _, dir := range []string{madeBinaries, madePython} {
		if dir != "" {
			os.RemoveAll(dir)
		}
	}
	os.Exit(code)
}

// needsDaemon skips a test that starts a daemon without root, or with -short.
func needsDaemon(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs the daemon: -short leaves it out")
	}
	if os.Geteuid() != 0 {
		t.Skip("the daemon makes sandboxes, which needs root")
	}
}

func binary(t testing.TB, name string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("runs the built binaries: -short leaves it out")
	}
	dir, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

// A running is a daemon under test, with its clients.
type running struct {
	t      testing.TB
	dir    string // contains state, run, skills, the socket and the configuration
	cmd    *exec.Cmd
	log    *logFile
	exited chan error

	conn   *grpc.ClientConn
	runs   executionClient
	skills skillClient
	system pb.SystemServiceClient
}

// logFile is the daemon's standard error, which a test may read while the daemon runs.
type logFile struct{ path string }

func (l *logFile) String() string {
	data, _ := os.ReadFile(l.path)
	return string(data)
}

// newDir makes a directory for a daemon under test. It lies in /var/tmp, which is usually on
// a disk; /tmp may be a tmpfs. Sandboxes may search it.
func newDir(t testing.TB) string {
	t.Helper()
	needsDaemon(t)
	dir, err := os.MkdirTemp("/var/tmp", "skillrund-test-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			if data, err := os.ReadFile(filepath.Join(dir, "log")); err == nil {
				t.Logf("daemon's log:\n%s", tail(string(data), 8000))
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("left behind: %v", err)
		}
	})
	return dir
}

func tail(s string, n int) string {
	if len(s) > n {
		return "..." + s[len(s)-n:]
	}
	return s
}

// startDaemon starts a daemon in a new directory, with the shipped skills and the skills that
// the test writes to dir/skills. extra is more configuration.
func startDaemon(t testing.TB, extra string) *running {
	t.Helper()
	return startDaemonIn(t, newDir(t), extra)
}

// startDaemonIn starts a daemon in a directory that an earlier daemon may have used.
func startDaemonIn(t testing.TB, dir, extra string) *running {
	t.Helper()
	d := launch(t, dir, extra)
	d.dial("unix://" + dir + "/s.sock")
	d.waitServing()
	return d
}

// manyIDs are ids for 256 daemons at once. The default range has ids for 16, and tests run
// at the same time.
const manyIDs = "ids: {first: 536870912, count: 1048576}\n"

// launch starts the process and waits for nothing. A wrapper is a command that executes its
// arguments. With a wrapper the daemon gets a new mount namespace, which the wrapper may
// change.
func launch(t testing.TB, dir, extra string, wrapper ...string) *running {
	t.Helper()
	return launchWith(t, dir, extra, nil, wrapper...)
}

// launchWith is launch for a daemon that inherits sockets, as from systemd.
func launchWith(t testing.TB, dir, extra string, sockets []*os.File, wrapper ...string) *running {
	t.Helper()
	shipped, err := filepath.Abs("../../skills")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "skills"), 0o755); err != nil {
		t.Fatal(err)
	}
	python, err := pythonDir()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "state"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(python, filepath.Join(dir, "state/python")); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "skillrund.yaml")
	text := "state_dir: state\nrun_dir: run\n" + manyIDs
	if !strings.Contains(extra, "skills:") {
		text += fmt.Sprintf("skills: [skills, %s]\n", shipped)
	}
	if !strings.Contains(extra, "listen:") {
		text += "listen: {unix: s.sock}\n"
	}
	if err := os.WriteFile(config, []byte(text+extra), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	d := &running{t: t, dir: dir, log: &logFile{log.Name()}, exited: make(chan error, 1)}
	if len(sockets) > 0 { // sd_listen_fds(3); the shell becomes the daemon
		wrapper = append([]string{"/bin/sh", "-c", fmt.Sprintf(`LISTEN_PID=$$ LISTEN_FDS=%d exec "$@"`, len(sockets)), "sh"}, wrapper...)
	}
	args := append(slices.Clone(wrapper), binary(t, "skillrund"), "--config", config)
	d.cmd = exec.Command(args[0], args[1:]...)
	if len(wrapper) > 0 {
		d.cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	}
	inItsService(t, d.cmd, filepath.Base(dir))
	d.cmd.Stderr, d.cmd.ExtraFiles = log, sockets
	d.cmd.Env = append(os.Environ(), "DAEMON_SECRET=not for scripts")
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { d.exited <- d.cmd.Wait() }()
	t.Cleanup(d.stop)
	return d
}

func (d *running) dial(target string) {
	d.t.Helper()
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)),
		// The client tries again within 200 ms. gRPC's default grows to two minutes.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.6, MaxDelay: 200 * time.Millisecond},
			MinConnectTimeout: patience,
		}))
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { conn.Close() })
	d.conn = conn
	d.runs, d.skills, d.system = executionClient{pb.NewExecutionServiceClient(conn)}, skillClient{pb.NewSkillServiceClient(conn)}, pb.NewSystemServiceClient(conn)
}

func (d *running) waitServing() {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), patience)
	defer cancel()
	go func() { // the wait ends when the daemon exits
		select {
		case err := <-d.exited:
			d.exited <- err
			cancel()
		case <-ctx.Done():
		}
	}()
	for {
		r, err := healthpb.NewHealthClient(d.conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
		if err == nil && r.Status == healthpb.HealthCheckResponse_SERVING {
			return
		}
		select {
		case err := <-d.exited:
			d.exited <- err
			d.t.Fatalf("the daemon exited: %v\n%s", err, tail(d.log.String(), 4000))
		case <-ctx.Done():
			d.t.Fatalf("not serving: %v, %v\n%s", r, err, tail(d.log.String(), 4000))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// stop ends the daemon by SIGTERM, as systemd does. It may be called more than once.
func (d *running) stop() {
	d.t.Helper()
	d.cmd.Process.Signal(syscall.SIGTERM)
	d.wait()
}

// wait waits until the daemon has exited and returns the error of its process.
func (d *running) wait() error {
	d.t.Helper()
	select {
	case err := <-d.exited:
		d.exited <- err
		return err
	case <-time.After(patience):
		// The runtime of Go writes what each goroutine does, and exits.
		before := len(d.log.String())
		d.cmd.Process.Signal(syscall.SIGQUIT)
		select {
		case err := <-d.exited:
			d.exited <- err
		case <-time.After(patience):
			d.cmd.Process.Kill()
		}
		d.t.Errorf("the daemon did not exit:\n%s", d.log.String()[before:])
		return errors.New("did not exit")
	}
}

// kill ends the daemon by SIGKILL.
func (d *running) kill() {
	d.t.Helper()
	if err := d.cmd.Process.Kill(); err != nil {
		d.t.Fatal(err)
	}
	d.wait()
}

// writeSkill writes a skill to dir/skills. A running daemon will find it.
func writeSkill(t testing.TB, dir, name, frontMatter string, files map[string]string) {
	t.Helper()
	root := filepath.Join(dir, "skills", name)
	if !strings.Contains(frontMatter, "name:") {
		frontMatter = "name: " + name + "\ndescription: A skill of a test.\n" + frontMatter
	}
	write := func(path, text string) {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for path, text := range files {
		write(path, text)
	}
	write("SKILL.md", "---\n"+frontMatter+"\n---\n\n# "+name+"\n\nRun {baseDir}/scripts.\n")
}

// A result has everything that one execution sent.
type result struct {
	id             string
	events         []*pb.ExecutionEvent // without keepalives
	header         *pb.ExecutionHeader
	outcome        *pb.ExecutionOutcome
	stdout, stderr bytes.Buffer
	damaged        bool // the daemon said that the rest is lost
}

// collect reads a stream to its end and checks the promises for every stream. It calls each,
// which may be nil, for every event.
func collect(t testing.TB, s eventStream, after uint64, each func(*pb.ExecutionEvent)) (*result, error) {
	t.Helper()
	r := &result{}
	next := after + 1
	for {
		e, err := s.Recv()
		if errors.Is(err, io.EOF) {
			if r.outcome == nil {
				t.Errorf("the stream ended without an outcome")
			}
			return r, nil
		}
		if err != nil {
			return r, err
		}
		if r.outcome != nil {
			t.Errorf("an event after the outcome: %v", e)
		}
		if e.GetKeepalive() == nil && e.GetQueued() == nil {
			if e.Sequence != next {
				t.Errorf("sequence %d, want %d", e.Sequence, next)
			}
			next++
			r.events = append(r.events, e)
		}
		r.id = e.ExecutionId
		switch v := e.Event.(type) {
		case *pb.ExecutionEvent_Header:
			r.header = v.Header
		case *pb.ExecutionEvent_Output:
			r.add(t, v.Output, after)
		case *pb.ExecutionEvent_Outcome:
			r.outcome = v.Outcome
		}
		if each != nil {
			each(e)
		}
	}
}

func (r *result) add(t testing.TB, o *pb.OutputChunk, after uint64) {
	t.Helper()
	buffer := &r.stdout
	if o.Stream == pb.OutputStream_OUTPUT_STREAM_STDERR {
		buffer = &r.stderr
	}
	if after == 0 && o.OffsetBytes != uint64(buffer.Len()) {
		t.Errorf("%v at offset %d, want %d", o.Stream, o.OffsetBytes, buffer.Len())
	}
	buffer.Write(o.Data)
}

// run executes one request to its end.
func (d *running) run(req *pb.ExecuteRequest) *result {
	d.t.Helper()
	r, err := d.try(req)
	if err != nil {
		d.t.Fatalf("execute: %v", err)
	}
	return r
}

// try is like run, but the request may be refused.
func (d *running) try(req *pb.ExecuteRequest) (*result, error) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), 2*patience)
	defer cancel()
	s, err := d.runs.Execute(ctx, req)
	if err != nil {
		return nil, err
	}
	r, err := collect(d.t, s, 0, nil)
	if r != nil && r.outcome != nil {
		err = nil
	}
	return r, err
}

func script(skill, path string, args ...string) *pb.ExecuteRequest {
	return &pb.ExecuteRequest{Skill: skill, Source: &pb.ExecuteRequest_Script{Script: path}, Args: args}
}

func code(skill, text string) *pb.ExecuteRequest {
	return &pb.ExecuteRequest{Skill: skill, Source: &pb.ExecuteRequest_Code{Code: &pb.InlineCode{Text: text}}}
}

func shell(skill, text string) *pb.ExecuteRequest {
	return &pb.ExecuteRequest{Skill: skill, Source: &pb.ExecuteRequest_Code{Code: &pb.InlineCode{Text: text, Language: "bash"}}}
}

func command(skill, line string) *pb.ExecuteRequest {
	return &pb.ExecuteRequest{Skill: skill, Source: &pb.ExecuteRequest_Command{Command: line}}
}

func wall(req *pb.ExecuteRequest, d time.Duration) *pb.ExecuteRequest {
	if req.Limits == nil {
		req.Limits = &pb.ExecutionLimits{}
	}
	req.Limits.WallTime = durationpb.New(d)
	return req
}

// wantExit checks that the program exited with this code, without a signal or a deadline.
func (r *result) wantExit(t testing.TB, code int32) {
	t.Helper()
	if r.outcome.GetEnd() != pb.ExecutionEnd_EXECUTION_END_EXITED || r.outcome.ExitCode == nil || *r.outcome.ExitCode != code {
		t.Errorf("ended as %v\nwant exit code %d\nstdout %q\nstderr %q", r.outcome, code, tail(r.stdout.String(), 500), tail(r.stderr.String(), 2000))
	}
}

func (r *result) wantStdout(t testing.TB, want string) {
	t.Helper()
	if got := r.stdout.String(); got != want {
		t.Errorf("stdout %q, want %q; stderr %q", tail(got, 500), tail(want, 500), tail(r.stderr.String(), 2000))
	}
}
