package main

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/skillrun/skillrun/internal/disktest"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// untilOutput starts an execution. It returns its first output and the stream.
func (d *running) untilOutput(ctx context.Context, req *pb.ExecuteRequest) (*pb.ExecutionEvent, eventStream) {
	d.t.Helper()
	s, err := d.runs.Execute(ctx, req)
	if err != nil {
		d.t.Fatal(err)
	}
	for {
		e, err := s.Recv()
		if err != nil {
			d.t.Fatal(err)
		}
		if e.GetOutput() != nil {
			return e, s
		}
	}
}

// The umask that a daemon is started with closes no directory to scripts.
func TestUmaskOfTheDaemon(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeHostileSkill(t, dir)
	// Without a zygote, libcontainer makes every sandbox.
	for _, extra := range []string{"", "prepared: {zygote: false, sandboxes: 0, python_zygotes: 0}\n"} {
		d := launch(t, dir, extra, "/bin/sh", "-c", `umask 077; exec "$@"`, "sh")
		d.dial("unix://" + dir + "/s.sock")
		d.waitServing()
		d.run(code("hostile", "print(open('/skills/hostile/data/lock').read(), open('/etc/passwd').read()[:4])")).wantStdout(t, "x root\n")
		d.run(shell("hostile", "ls / /etc /var /run >/dev/null && echo entered")).wantStdout(t, "entered\n")
		d.stop()
	}
}

func TestKilledDaemonLosesNothing(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	d := startDaemonIn(t, dir, "")
	ended := d.run(code("calculator", "open('a.txt', 'w').write('kept'); print('done')"))
	before, _ := d.untilOutput(t.Context(), shell("calculator", "echo before; sleep 3600"))
	instance := d.instance()
	if len(usedBoxes(instance)) == 0 {
		t.Fatal("no cgroup of the running execution was found; the test looks in the wrong place")
	}
	d.kill()

	d = startDaemonIn(t, dir, "")
	lost := d.attach(before.ExecutionId, 0)
	if lost.outcome.End != pb.ExecutionEnd_EXECUTION_END_DAEMON_LOST || lost.outcome.ExitCode != nil || lost.outcome.Advice == "" {
		t.Errorf("got %v, want DAEMON_LOST", lost.outcome)
	}
	lost.wantStdout(t, "before\n")
	again := d.attach(ended.id, 0)
	again.wantStdout(t, "done\n")
	if got := d.artifact(ended.id, "a.txt"); string(got) != "kept" {
		t.Errorf("artifact %q", got)
	}
	if left := cgroupsOf(instance); len(left) > 0 {
		t.Errorf("the new daemon left cgroups of the dead one: %v", left)
	}
	entries, err := os.ReadDir(filepath.Join(dir, "state/sandbox/instances"))
	if err != nil || len(entries) != 1 {
		t.Errorf("instances %v, %v; want only the new one", entries, err)
	}
	d.wantNothingLeft()
	d.run(code("calculator", "print(1)")).wantStdout(t, "1\n")
}

// A sandbox dies with its daemon, before another daemon sweeps.
func TestSandboxDiesWithItsDaemon(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	d := startDaemonIn(t, dir, "")
	d.untilOutput(t.Context(), code("calculator", "import os, signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint(1)\nif os.fork() == 0: os.setsid()\ntime.sleep(3600)"))
	instance := d.instance()
	d.kill()
	untilNone(t, "processes outlive their daemon", func() []string { return processesIn(cgroupsOf(instance)) })
	startDaemonIn(t, dir, "").stop()
}

func processesIn(cgroups []string) []string {
	var pids []string
	for _, c := range cgroups {
		data, _ := os.ReadFile(c + "/cgroup.procs")
		pids = append(pids, strings.Fields(string(data))...)
	}
	return pids
}

func TestDrainFinishesWhatRuns(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := d.runs.ExecuteInteractive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Start{Start: code("calculator", "print('ready'); input(); print('finished')")}}); err != nil {
		t.Fatal(err)
	}
	watch, err := healthpb.NewHealthClient(d.conn).Watch(ctx, &healthpb.HealthCheckRequest{Service: "skillrun.v1.ExecutionService"})
	if err != nil {
		t.Fatal(err)
	}
	r, err := collect(t, s, 0, func(e *pb.ExecutionEvent) {
		if string(e.GetOutput().GetData()) != "ready\n" && string(e.GetOutput().GetData()) != "ready" {
			return
		}
		d.cmd.Process.Signal(syscall.SIGTERM)
		for { // the daemon refuses requests after it has reported NOT_SERVING
			h, err := watch.Recv()
			if err != nil || h.Status == healthpb.HealthCheckResponse_NOT_SERVING {
				break
			}
		}
		_, err := d.try(code("calculator", "print(1)"))
		wantStatus(t, err, "Unavailable", "DRAINING")
		if err := s.Send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Stdin{Stdin: []byte("\n")}}); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	r.wantExit(t, 0)
	r.wantStdout(t, "ready\nfinished\n")
	if err := d.wait(); err != nil {
		t.Errorf("the daemon exited with %v, want 0", err)
	}
	d.wantNoFiles()
}

// wantNoFiles checks that a stopped daemon left only its state.
func (d *running) wantNoFiles() {
	d.t.Helper()
	if _, err := os.Lstat(d.dir + "/s.sock"); !os.IsNotExist(err) {
		d.t.Errorf("the socket is left: %v", err)
	}
	for _, dir := range []string{"run", "state/staging", "state/uploads", "state/sandbox/instances"} {
		if entries, _ := os.ReadDir(filepath.Join(d.dir, dir)); len(entries) > 0 {
			d.t.Errorf("%s holds %v", dir, entries)
		}
	}
}

func TestDrainEndsWhatRunsOn(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "drain: 100ms\n")
	ready, s := d.untilOutput(t.Context(), shell("calculator", "echo ready; sleep 3600"))
	d.cmd.Process.Signal(syscall.SIGTERM)
	r, err := collect(t, s, ready.Sequence, nil)
	if err != nil && r.outcome == nil {
		t.Fatal(err)
	}
	if r.outcome.End != pb.ExecutionEnd_EXECUTION_END_CANCELLED || r.outcome.Evidence.CancelledBy != "drain" {
		t.Errorf("got %v, want CANCELLED by drain", r.outcome)
	}
	if err := d.wait(); err != nil {
		t.Errorf("the daemon exited with %v", err)
	}
}

func TestSecondSignalExitsAtOnce(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	d := startDaemonIn(t, dir, "drain: 1h\n")
	d.untilOutput(t.Context(), shell("calculator", "trap '' TERM; echo ready; while :; do sleep 1; done"))
	d.cmd.Process.Signal(syscall.SIGTERM)
	d.untilLogged("draining")
	d.cmd.Process.Signal(syscall.SIGTERM)
	if err := d.wait(); err == nil {
		t.Error("exited with 0, want an error: it did not finish")
	}
	startDaemonIn(t, dir, "").stop() // its start sweeps
}

// Skills of a repository share a script by links. A change of the script reaches all of them.
func TestRecursiveSkills(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	shared := filepath.Join(dir, "repository", "shared")
	write := func(text string) {
		if err := errors.Join(os.MkdirAll(shared, 0o755), os.WriteFile(filepath.Join(shared, "x.py"), []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write("print('one')")
	for _, name := range []string{"a", "b"} {
		scripts := filepath.Join(dir, "repository", "plugins", name, "skills", name, "scripts")
		if err := errors.Join(os.MkdirAll(scripts, 0o755), os.Symlink("../../../../../shared/x.py", filepath.Join(scripts, "x.py")),
			os.WriteFile(filepath.Join(scripts, "../SKILL.md"), []byte("---\nname: "+name+"\ndescription: A skill of a test.\n---\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	d := startDaemonIn(t, dir, "skills: [{path: repository, recursive: true}]\n")
	d.run(script("a", "scripts/x.py")).wantStdout(t, "one\n")
	d.run(script("b", "scripts/x.py")).wantStdout(t, "one\n")
	write("print('two')")
	until(t, "the change of the shared script does not come", func() bool { return d.run(script("b", "scripts/x.py")).stdout.String() == "two\n" })
}

func TestSkillsReload(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeSkill(t, dir, "changing", "", map[string]string{"scripts/v.py": "print(1)", "data": "one"})
	d := startDaemonIn(t, dir, "")
	before, err := d.skills.GetSkill(t.Context(), &pb.GetSkillRequest{Skill: "changing"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	// A running execution keeps the old files of the skill.
	s, err := d.runs.ExecuteInteractive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Start{Start: shell("changing", "echo ready; read x; cat data /skills/changing/data")}}); err != nil {
		t.Fatal(err)
	}
	r, err := collect(t, s, 0, func(e *pb.ExecutionEvent) {
		if string(e.GetOutput().GetData()) != "ready\n" {
			return
		}
		writeSkill(t, dir, "changing", "", map[string]string{"scripts/v.py": "print(2)", "data": "two"})
		for {
			after, err := d.skills.GetSkill(ctx, &pb.GetSkillRequest{Skill: "changing"})
			if err != nil {
				t.Fatal(err)
			}
			if after.Digest != before.Digest && strings.TrimSpace(d.run(script("changing", "scripts/v.py")).stdout.String()) == "2" {
				break
			}
		}
		if err := s.Send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Stdin{Stdin: []byte("go\n")}}); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	r.wantStdout(t, "ready\noneone")
	// The daemon finds a new folder, too.
	writeSkill(t, dir, "new", "", map[string]string{"scripts/v.py": "print('new')"})
	d.reload("new")
	d.run(script("new", "scripts/v.py")).wantStdout(t, "new\n")

	_, err = d.try(script("changing@"+before.Digest, "scripts/v.py"))
	wantStatus(t, err, "FailedPrecondition", "DIGEST_MISMATCH")

	// SIGHUP reloads at once. If a changed skill is broken, the daemon keeps the old one.
	if err := os.WriteFile(filepath.Join(dir, "skills/changing/SKILL.md"), []byte("---\nname: [\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	d.cmd.Process.Signal(syscall.SIGHUP)
	d.untilLogged("reloaded")
	d.run(script("changing", "scripts/v.py")).wantStdout(t, "2\n")
}

func TestSocketAndPortInUse(t *testing.T) {
	t.Parallel()
	first := startDaemon(t, "")
	t.Run("state directory", func(t *testing.T) {
		second := launch(t, first.dir, "")
		if err := second.wait(); err == nil || !strings.Contains(second.log.String(), "another skillrund uses it") {
			t.Errorf("got %v, log %s", err, tail(second.log.String(), 500))
		}
	})
	t.Run("Unix socket", func(t *testing.T) {
		second := launch(t, newDir(t), "listen: {unix: "+first.dir+"/s.sock}\n")
		if err := second.wait(); err == nil || !strings.Contains(second.log.String(), "another daemon answers there") {
			t.Errorf("got %v, log %s", err, tail(second.log.String(), 500))
		}
	})
	t.Run("port", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		second := launch(t, newDir(t), "listen: {unix: s.sock, tcp: \""+l.Addr().String()+"\"}\n")
		if err := second.wait(); err == nil || !strings.Contains(second.log.String(), "the port is in use") {
			t.Errorf("got %v, log %s", err, tail(second.log.String(), 500))
		}
	})
	t.Run("a file where the socket should be", func(t *testing.T) {
		dir := newDir(t)
		if err := os.WriteFile(dir+"/s.sock", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		second := launch(t, dir, "")
		if err := second.wait(); err == nil || !strings.Contains(second.log.String(), "is not a socket") {
			t.Errorf("got %v, log %s", err, tail(second.log.String(), 500))
		}
	})
	first.run(code("calculator", "print(1)")).wantStdout(t, "1\n")
}

// The daemon does not start without its boundaries. It names the missing ones and how to get
// them.
func TestRefusesToStartWithoutItsBoundaries(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	config := filepath.Join(dir, "skillrund.yaml")
	if err := os.WriteFile(config, []byte("state_dir: state\nrun_dir: run\nskills: [skills]\nlisten: {unix: s.sock}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/usr/sbin/capsh", "--drop=cap_sys_admin", "--", "-c", "exec \"$0\" --config \"$1\"", binary(t, "skillrund"), config)
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "without SYS_ADMIN; needs root with these") {
		t.Errorf("without CAP_SYS_ADMIN: %v\n%s\nwant an error that names it", err, out)
	}
	if _, err := os.Lstat(dir + "/s.sock"); err == nil {
		t.Error("it listens")
	}
}

// On a full disk the daemon drops output and reports it. The execution still gets its
// outcome, and later executions work once there is space.
func TestDiskFullWhileSpooling(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	record := filepath.Join(dir, "state/record")
	if err := os.MkdirAll(record, 0o700); err != nil {
		t.Fatal(err)
	}
	resize := disktest.Mount(t, record, "size=40m,mode=0700")
	d := startDaemonIn(t, dir, "")
	req := code("calculator", "import sys\nsys.stdout.buffer.write(b'x' * (60 << 20))\nsys.exit(5)")
	req.Limits = &pb.ExecutionLimits{OutputBytes: 100 << 20}
	r := d.run(req)
	r.wantExit(t, 5)
	if o := r.outcome.Stdout; !o.Truncated || o.TotalBytes != 60<<20 || o.DeliveredBytes != uint64(r.stdout.Len()) {
		t.Errorf("stdout %v with %d bytes received", o, r.stdout.Len())
	}
	if !strings.Contains(r.outcome.Advice, "disk") {
		t.Errorf("advice %q does not name the disk", r.outcome.Advice)
	}
	resize("size=200m,mode=0700")
	d.run(code("calculator", "print(1)")).wantStdout(t, "1\n")
	d.stop()
}

// A daemon that was killed on a full disk starts again, with the room that it has reserved. While it runs on a full disk,
// callers can remove executions and sessions.
func TestFullStateDisk(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	newDisk(t, filepath.Join(dir, "disk"), filepath.Join(dir, "state"), 96)
	d := startDaemonIn(t, dir, "")
	r := d.run(code("calculator", "print(1)"))
	d.kill()
	empty := fillDisk(t, filepath.Join(dir, "state"))
	d = startDaemonIn(t, dir, "")
	s, err := d.runs.AttachExecution(t.Context(), &pb.AttachExecutionRequest{ExecutionId: r.id})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := collect(t, s, 0, nil); err != nil || r.outcome.GetExitCode() != 0 {
		t.Errorf("got %+v, %v", r.outcome, err)
	}
	empty()
	u := d.newSession(t.Context(), &pb.CreateSessionRequest{})
	u.in(shell("calculator", "head -c 100000 /dev/urandom > file")).wantExit(t, 0)
	empty = fillDisk(t, filepath.Join(dir, "state"))
	// The last blocks of the files have room for a few executions.
	for err = nil; err == nil; {
		_, err = d.try(code("calculator", "print(1)"))
	}
	if _, err := d.runs.DeleteExecution(t.Context(), &pb.DeleteExecutionRequest{ExecutionId: r.id}); err != nil {
		t.Errorf("delete an execution: %v", err)
	}
	if _, err := u.sessions.DeleteSession(t.Context(), &pb.DeleteSessionRequest{SessionId: u.id}); err != nil {
		t.Errorf("delete a session: %v", err)
	}
	empty()
	d.run(code("calculator", "print(1)")).wantStdout(t, "1\n")
	d.stop()
	wantVerified(t, dir)
}

func TestRetention(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "retention: {age: 1ms, bytes: 1GiB}\n")
	r := d.run(code("calculator", "print(1)"))
	d.stop()
	d = startDaemonIn(t, d.dir, "retention: {age: 1ms, bytes: 1GiB}\n")
	for {
		s, err := d.runs.AttachExecution(t.Context(), &pb.AttachExecutionRequest{ExecutionId: r.id})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = s.Recv(); err != nil && err != io.EOF {
			wantStatus(t, err, "NotFound", "EXECUTION_NOT_FOUND")
			return
		}
	}
}

func TestCheckConfig(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "c.yaml")
	for text, want := range map[string]string{"network: none\n": "", "netwrok: none\n": "line 1: netwrok: unknown key; did you mean network?", "skills: [nowhere]\n": "line 1: skills[0]: "} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(binary(t, "skillrund"), "--config", path, "--check").CombinedOutput()
		if (err == nil) != (want == "") || !strings.Contains(string(out), want) {
			t.Errorf("%q: %v, %s", text, err, out)
		}
	}
}

func grep(text, word string) (lines []string) {
	for line := range strings.Lines(text) {
		if strings.Contains(line, word) {
			lines = append(lines, line)
		}
	}
	return lines
}

// The log has one line for each execution: the caller, the program and its end, but no
// arguments.
func TestAuditLine(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	r := d.run(script("calculator", "scripts/calc.py", "40 + 2"))
	s, err := d.skills.GetSkill(t.Context(), &pb.GetSkillRequest{Skill: "calculator"})
	if err != nil {
		t.Fatal(err)
	}
	d.untilLogged("msg=execution ") // clients may get the outcome slightly before the log has the line
	d.stop()                        // after this the log is complete
	lines := grep(d.log.String(), "msg=execution ")
	if len(lines) != 1 {
		t.Fatalf("%d audit lines, want 1:\n%s", len(lines), strings.Join(lines, ""))
	}
	for _, want := range []string{r.id, "tenant=default", "principal=uid:0", "calculator@" + s.Digest, "script=scripts/calc.py", "end=EXITED", "exit_code=0", "wall_ms="} {
		if !strings.Contains(lines[0], want) {
			t.Errorf("no %s in %s", want, lines[0])
		}
	}
	if strings.Contains(d.log.String(), "40 + 2") {
		t.Error("the log has the arguments")
	}
}

// A start removes the files that a killed daemon was about to write. It keeps all others.
func TestUnfinishedFilesAreRemoved(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	d := startDaemonIn(t, dir, "")
	d.stop()
	state := filepath.Join(dir, "state")
	kept := filepath.Join(state, "tenants/acme/skills/index")
	if err := os.MkdirAll(filepath.Dir(kept), 0o700); err != nil {
		t.Fatal(err)
	}
	files := []string{kept}
	for _, of := range []string{"", "record", "audit", "tenants/acme/skills"} {
		files = append(files, filepath.Join(state, of, ".new-123"))
	}
	for _, file := range files {
		if err := os.WriteFile(file, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d = startDaemonIn(t, dir, "")
	for _, file := range files {
		if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) == (file == kept) {
			t.Errorf("%s: %v", file, err)
		}
	}
	d.stop()
}
