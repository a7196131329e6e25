package pyzygote_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/pyzygote"
)

// kindsOfNamespaces are the namespaces in a fork request.
func kindsOfNamespaces(t testing.TB) []int {
	t.Helper()
	files, kinds, err := pyzygote.OpenNamespaces(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	closeFiles(files)
	return kinds
}

// with returns server for a test within a fuzz test: f may not fail then.
func (server *forkServer) with(t *testing.T) *forkServer {
	mine := *server
	mine.t = t
	return &mine
}

// FuzzForkServerReads: the daemon sends a packet of any content, with descriptors that are no
// sandbox's. The zygote answers that it failed. Nothing starts, and the zygote stays.
func FuzzForkServerReads(f *testing.F) {
	server := startForkServer(f, forkServerPython())
	null, err := os.Open("/dev/null")
	if err != nil {
		f.Fatal(err)
	}
	defer null.Close()
	own, err := os.Open("/proc/self/ns/pid")
	if err != nil {
		f.Fatal(err)
	}
	defer own.Close()
	seed := func(request any, fds byte) {
		b, err := json.Marshal(request)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, fds)
	}
	kinds := kindsOfNamespaces(f)
	for _, fds := range []byte{0, 4, 5, 11, 12, 13, 23, 132} { // 132: 12, with the PID namespace
		seed(map[string]any{"op": "fork", "sandbox": 7, "namespaces": kinds, "rlimits": [][]int{{7, 1024, 1024}}}, fds)
	}
	seed(map[string]any{"op": "fork", "sandbox": 1 << 40, "namespaces": kinds}, 12)
	seed(map[string]any{"op": "fork", "sandbox": map[string]any{"a": []int{1}}, "namespaces": "x"}, 12)
	seed(map[string]any{"op": "fork", "sandbox": 7, "namespaces": []any{536870912.0, nil, true}}, 12)
	seed(map[string]any{"op": "init", "imports": []string{"this"}, "filter_bytes": 8, "fast_exit": true}, 1)
	seed(map[string]any{"op": []string{"fork"}}, 0)
	f.Add([]byte{}, byte(0))
	f.Add([]byte{}, byte(3))
	f.Add([]byte(strings.Repeat("[", 30_000)), byte(0))
	f.Add([]byte(`{"op":"fork","sandbox":`+strings.Repeat("[", 2000)+strings.Repeat("]", 2000)+`}`), byte(0))
	f.Add([]byte(`{"op":"fork","sandbox":"`+strings.Repeat("\u00e9", 30_000)+`"}`), byte(0))
	f.Add([]byte(`{"op":"fork","sandbox":Infinity}`), byte(1))
	f.Add([]byte("\xff\xfe{\x00}\x00"), byte(1))
	f.Fuzz(func(t *testing.T, packet []byte, fds byte) {
		if len(packet) > 64<<10 { // maxForkPacket of pyzygote
			t.Skip("the daemon sends no packet of this size")
		}
		server := server.with(t)
		passed := make([]int, fds%24)
		for i := range passed {
			if passed[i] = int(null.Fd()); i == 4 && fds >= 128 { // the PID namespace
				passed[i] = int(own.Fd())
			}
		}
		var rights []byte
		if len(passed) > 0 { // with rights and no byte, Sendmsg sends one byte
			rights = unix.UnixRights(passed...)
		}
		if err := unix.Sendmsg(server.control, packet, rights, nil, 0); err != nil {
			t.Fatal(err)
		}
		got := server.receive()
		if got.Op == "forked" { // into this process's PID namespace; the child can enter no other one
			if got = server.receive(); got.Op != "ended" || got.Status != 127<<8 {
				t.Errorf("a child ended as %+v, want exit status 127", got)
			}
		} else if got.Op != "failed" {
			t.Errorf("got %+v, want that it failed", got)
		}
		const alive = 1_234_567
		server.send(map[string]any{"op": "fork", "sandbox": alive})
		if got := server.receive(); got.Op != "failed" || got.Fork != alive {
			t.Errorf("afterwards it says %+v", got)
		}
	})
}

// isCommand reports whether b begins with a whole frame that a child may run.
func isCommand(b []byte) bool {
	if len(b) < 4 || uint64(len(b)-4) < uint64(binary.LittleEndian.Uint32(b)) {
		return false
	}
	var parts map[string]json.RawMessage // with exact names, unlike the fields of a struct
	if json.Unmarshal(b[4:4+binary.LittleEndian.Uint32(b)], &parts) != nil {
		return false
	}
	var argv []*string // a nil is a null of JSON
	var env map[string]*string
	var dir *string
	if json.Unmarshal(parts["argv"], &argv) != nil || json.Unmarshal(parts["env"], &env) != nil || json.Unmarshal(parts["dir"], &dir) != nil {
		return false
	}
	isText := func(s *string) bool { return s != nil && !strings.Contains(*s, "\x00") }
	for name, value := range env {
		argv = append(argv, &name, value)
	}
	return len(argv) > 2*len(env) && env != nil && !slices.ContainsFunc(append(argv, dir), func(s *string) bool { return !isText(s) })
}

// FuzzForkServerChildReads: the daemon sends a child any bytes in place of its command. The child
// starts nothing but a command that is one, and the zygote reports its end.
func FuzzForkServerChildReads(f *testing.F) {
	server := startForkServer(f, forkServerPython())
	c := newForkTarget(f, publicDir(f), forkServerAlso()...)
	frame := func(text string) []byte {
		return append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...)
	}
	const env = `"env":{"PATH":"/usr/bin","HOME":"/home/skill"}`
	for _, text := range []string{
		`{"argv":["python3","-c","print(1)"],` + env + `,"dir":""}`,
		`{"argv":["/bin/true"],` + env + `,"dir":"sub","elsewhere":true}`,
		`{"argv":["/bin/true\u0000x"],` + env + `,"dir":""}`,
		`{"argv":["/bin/true"],` + env + `,"dir":"sub\u0000x"}`,
		`{"argv":"/bin/true",` + env + `,"dir":""}`,
		`{"argv":{"0":"/bin/true"},` + env + `,"dir":""}`,
		`{"argv":["/bin/true",1],` + env + `,"dir":""}`,
		`{"argv":[],` + env + `,"dir":""}`,
		`{"argv":["/bin/true"],"env":[],"dir":""}`,
		`{"argv":["/bin/true"],"env":{"A":1},"dir":""}`,
		`{"argv":["/bin/true"],"env":{"A=B":"","":"x"},"dir":""}`,
		`{"argv":["/bin/true"],` + env + `,"dir":"../etc"}`,
		`{"argv":["/bin/true"],` + env + `,"dir":[]}`,
		`{"argv":["/bin/true"],` + env + `,"dir":"","x":NaN}`,
		`{"argv":["\ud800"],` + env + `,"dir":""}`,
		`{"ARGV":["/bin/true"],` + env + `,"dir":""}`,
		`["/bin/true"]`, `null`, ``, strings.Repeat("[", 20_000),
	} {
		f.Add(frame(text))
		f.Add(frame(text)[:len(text)/2])
	}
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, '{', '}'})
	f.Add(append(frame(`{"argv":["/bin/true"],`+env+`,"dir":""}`), "more"...))
	utf16 := "\xff\xfe" + strings.Join(strings.Split(`{"argv":["/bin/true"],"env":{},"dir":""}`, ""), "\x00") + "\x00"
	f.Add(frame(utf16))
	f.Fuzz(func(t *testing.T, b []byte) {
		child := server.with(t).fork(c)
		pidfd, err := unix.PidfdOpen(child.pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(pidfd)
		_, _ = child.barrier.Write(b) // a child that has failed doesn't read the rest
		_ = child.barrier.(*net.UnixConn).CloseWrite()
		var says forkServerSays
		line, err := child.lines.ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(line, &says)
		}
		ran := err == nil && says.Op == "started"
		// A program may run for ever.
		if err := unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			t.Fatal(err)
		}
		end := child.finish("")
		switch {
		case ran && !isCommand(b):
			t.Errorf("%q started", b)
		case ran, says.Op == "failed" && (end.status.ExitStatus() == 127 || end.status.Signal() == unix.SIGKILL):
		case errors.Is(err, io.EOF) && end.status.ExitStatus() == 0: // the frame is not whole
			if len(b) >= 4 && uint64(len(b)-4) >= uint64(binary.LittleEndian.Uint32(b)) {
				t.Errorf("%q: the child says nothing", b)
			}
		default:
			t.Errorf("%q: got %+v (%v), then %v", b, says, err, end)
		}
	})
}
