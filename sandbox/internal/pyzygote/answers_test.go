package pyzygote

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/pid1"
	"github.com/skillrun/skillrun/sandbox/internal/socket"
	"github.com/skillrun/skillrun/sandbox/internal/socket/sockettest"
)

// fakeZygote answers each packet with the next one of answers.
func fakeZygote(t *testing.T, answers ...string) *Zygote {
	t.Helper()
	ours, theirs := sockettest.Peers(t, unix.SOCK_SEQPACKET)
	z := newZygote(ours)
	go z.listen()
	go func() {
		b := make([]byte, maxForkPacket)
		for _, a := range answers {
			_, fds, err := socket.Receive(theirs, b)
			if err != nil {
				return
			}
			socket.CloseAll(fds)
			for _, packet := range strings.Split(a, "\n") {
				_ = socket.Send(theirs, []byte(packet), nil)
			}
		}
	}()
	t.Cleanup(z.Close)
	return z
}

// TestPythonZygoteIsNotBelieved gives the daemon answers that no Python zygote gives.
func TestPythonZygoteIsNotBelieved(t *testing.T) {
	ask := map[string]any{"op": "init"}
	if _, err := fakeZygote(t).request(ask, nil, time.Millisecond); err == nil || !strings.Contains(err.Error(), "doesn't answer") {
		t.Errorf("silence: got %v", err)
	}
	for _, answer := range []string{"{", "[]", `{"op":1}`, "{\"op\":\"ready\"}\n{\"op\":\"ready\"}\n{\"op\":\"ready\"}"} {
		z := fakeZygote(t, answer)
		_, _ = z.request(ask, nil, time.Minute)
		<-z.gone
		if _, err := z.request(ask, nil, time.Minute); err == nil {
			t.Errorf("%s: it is still asked", answer)
		}
	}
	z := fakeZygote(t)
	if _, err := z.request(map[string]any{"op": strings.Repeat("x", maxForkPacket)}, nil, time.Minute); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("a long request: got %v", err)
	}
	if _, err := z.request(map[string]any{"op": make(chan int)}, nil, time.Minute); err == nil {
		t.Error("what is no JSON was sent")
	}
}

// TestChildIsNotBelieved sends the daemon lies of a child on its start barrier.
func TestChildIsNotBelieved(t *testing.T) {
	command, err := Command{Args: []string{"python3", "-c", ""}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		says   string
		failed string // the stage of a *pid1.Failure
		errs   bool   // it is another error
	}{
		{says: `{"op":"started"}` + "\n"},
		{says: `{"op":"started","by":"exec"}` + "\n"},
		{says: `{"op":"started","by":"exec"}` + "\n" + `{"op":"failed","stage":"exec","errno":2}` + "\n", failed: "exec"},
		{says: `{"op":"failed","stage":"directory","errno":2}` + "\n", failed: "directory"},
		{says: `{"op":"failed","stage":"configure","errno":0}` + "\n", errs: true},
		{says: "", errs: true},
		{says: "no JSON\n", errs: true},
		{says: strings.Repeat("x", 2*maxBarrierLine), errs: true},
	} {
		ours, theirs := sockettest.Peers(t, unix.SOCK_STREAM)
		go func() {
			_, _ = io.WriteString(theirs, tt.says)
			_, _ = io.ReadFull(theirs, make([]byte, 16))
			theirs.Close()
		}()
		err := newChild(ours, nil).Run(command)
		failure := (*pid1.Failure)(nil)
		if errors.As(err, &failure) {
			if failure.Stage != tt.failed || failure.Err != unix.ENOENT {
				t.Errorf("%q: got %v, want that %q failed", tt.says, err, tt.failed)
			}
			continue
		}
		if tt.failed != "" || (err != nil) != tt.errs {
			t.Errorf("%q: got %v, want that %q failed, another error: %v", tt.says, err, tt.failed, tt.errs)
		}
	}
	ours, theirs := sockettest.Peers(t, unix.SOCK_STREAM)
	theirs.Close()
	if err := newChild(ours, nil).Run(command); err == nil {
		t.Error("a child that is gone runs")
	}
	long := Command{Env: map[string]string{"X": strings.Repeat("x", pid1.MaxPayload)}}
	if _, err := long.Encode(); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("a long environment: got %v", err)
	}
}

// A fork request that could not be sent leaves no entry for a child.
func TestForkThatIsNotAskedFor(t *testing.T) {
	z := fakeZygote(t)
	z.ended[7] = make(chan int, 1)
	noFile := []int{1 << 20}
	if err := z.forkOne(newChild(nil, nil), noFile, nil, nil); !errors.Is(err, unix.EBADF) {
		t.Errorf("got %v, want %v", err, unix.EBADF)
	}
	if n := z.Children(); n != 1 {
		t.Errorf("children: got %d, want 1", n)
	}
}

// execute is a Spawn that executes the fork server outside of any container.
func execute(t *testing.T) Spawn {
	return func(program string, env []string, theirs, log *os.File) (int, *os.File, error) {
		dir := t.TempDir()
		for name, text := range Files() {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return 0, nil, err
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				return 0, nil, err
			}
		}
		python := UnreadableCopy(t, "/usr/bin/"+program)
		cmd := &exec.Cmd{
			Path: python, Args: []string{program}, Env: append(env, "PYTHONPATH="+dir), Dir: "/", // the last value counts
			Stdout: log, Stderr: log, ExtraFiles: []*os.File{theirs},
		}
		if err := cmd.Start(); err != nil {
			return 0, nil, err
		}
		t.Cleanup(func() { _ = cmd.Wait() }) // it is killed
		fd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
		return cmd.Process.Pid, os.NewFile(uintptr(fd), "pidfd"), err
	}
}

// UnreadableCopy makes a copy of the program that may be executed but not read, like the
// program of a Python zygote (pid1/python_program.c).
func UnreadableCopy(t testing.TB, program string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), filepath.Base(program))
	// Another process writes the copy: if this one did, a child that another test forks now would keep the copy
	// open for writing, and it could not be executed (ETXTBSY in execve(2)).
	if out, err := exec.Command("/usr/bin/install", "-m", "0511", program, path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// A forged request of the daemon can't make a Python zygote import a module outside of its
// list: the Python zygote ends.
func TestPythonZygoteImportsItsList(t *testing.T) {
	env := []string{"PATH=" + Path, "HOME=" + home, "LANG=C.UTF-8"}
	k := NewKey("python3", env, []string{"json"})
	c := Config{Filter: make([]byte, 8), Log: &Log{Logger: slog.New(slog.DiscardHandler)}}
	z, err := Start(execute(t), k, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(z.Close)
	if got := z.Imported(); len(got) != 1 || got[0] != "json" || !z.Has().Covers(k.Imports()) {
		t.Errorf("imported %q, has %v", got, z.Has())
	}
	for _, name := range []string{"this", "json.tool", "antigravity", "os; print(1)"} {
		z, err := open(execute(t), k, c.Log)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(z.Close)
		if err := z.init([]string{name}, c); err == nil {
			t.Errorf("%s: it answers", name)
		}
		<-z.Gone()
	}
}

// FuzzForkServerSays: a fork server and a child of it lie to the daemon. A wait for the
// child's end always returns, and its status is one that a program can have.
func FuzzForkServerSays(f *testing.F) {
	packet := func(s string) []byte { return sockettest.Packet(0, []byte(s)) }
	f.Add(packet(`{"op":"ready","python":"3.11","imported":["json"]}`), []byte(`{"op":"started"}`+"\n"))
	f.Add(append(packet(`{"op":"forked","sandbox":7}`), packet(`{"op":"ended","sandbox":7,"status":256}`)...), []byte(`{"op":"started","by":"exec"}`+"\n"))
	f.Add(packet(`{"op":"ended","sandbox":7,"status":-1}`), []byte(`{"op":"failed","stage":"exec","errno":2}`+"\n"))
	f.Add(packet(`{"op":"failed","stage":"`+"\xff"+`","errno":-1}`), []byte("no JSON\n"))
	f.Add([]byte{0, 3}, []byte{})
	f.Fuzz(func(t *testing.T, b, line []byte) {
		before := sockettest.OpenFiles(t)
		ours, theirs := sockettest.Peers(t, unix.SOCK_SEQPACKET)
		z := newZygote(ours)
		ended := make(chan int, 1)
		z.ended[7] = ended
		sockettest.SendAll(t, theirs, b)
		go z.listen()
		read := make(chan struct{})
		go func() { // reads the request, then closes
			defer close(read)
			_, got, _ := socket.Receive(theirs, make([]byte, maxForkPacket))
			socket.CloseAll(got)
			theirs.Close()
		}()
		if a, err := z.request(map[string]any{"op": "init"}, nil, time.Minute); err == nil {
			_ = a.err().Error()
		}
		z.socket.Close()
		<-z.gone
		<-read // its descriptor closes when it has read
		if status, known := <-ended; known {
			isAnEnd(t, status)
		}
		theirs.Close()
		barrier, child := sockettest.Peers(t, unix.SOCK_STREAM)
		sockettest.Say(child, line)
		if err := newChild(barrier, nil).Run([]byte{0, 0, 0, 0}); err != nil {
			_ = err.Error()
		}
		_, _ = io.Copy(io.Discard, barrier)
		barrier.Close()
		if after := sockettest.OpenFiles(t); after > before {
			t.Errorf("%d descriptors are open, %d were before", after, before)
		}
	})
}

// isAnEnd says whether the daemon would refuse a status, or a program can end so: with an exit
// code of one byte, or by a signal.
func isAnEnd(t *testing.T, status int) {
	t.Helper()
	s, err := pid1.EndStatus(status)
	if err != nil {
		return
	}
	exited := s.Exited() && s.ExitStatus() >= 0 && s.ExitStatus() <= 255
	signaled := s.Signaled() && s.Signal() > 0 && s.Signal() <= 64
	if exited == signaled {
		t.Errorf("no program ends so: %#x", uint32(s))
	}
}

// A child whose Python zygote is gone gets no program, although the kernel has not killed it yet.
func TestChildOfAZygoteThatIsGone(t *testing.T) {
	ours, theirs, err := socket.Pair(unix.SOCK_STREAM, "barrier")
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	gone := make(chan struct{})
	c := newChild(ours, gone)
	defer c.Close()
	if !c.Waits() {
		t.Error("it does not wait while its Python zygote runs")
	}
	close(gone)
	if c.Waits() {
		t.Error("it still waits")
	}
}
