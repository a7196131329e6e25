package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/skillrun/skillrun/internal/eventtest"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

func TestRunPassesBytesAndCodeOn(t *testing.T) {
	got := newRecord().started().stdout("out\x1b[1m\xff").stderr("err\n").stdout("more").exit(3).fake().client(t, nil, "run", "demo", "x.py")
	if want := (result{3, "out\x1b[1m\xffmore", "err\n"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestRunExitCodes(t *testing.T) {
	code := proto.Int32
	tests := []struct {
		name    string
		outcome *pb.ExecutionOutcome
		want    int
		notice  string // on stderr; empty: nothing at all
	}{
		{"success", &pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_EXITED, ExitCode: code(0)}, 0, ""},
		{"its own 124", &pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_EXITED, ExitCode: code(124)}, 124, ""},
		{"no code", &pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_EXITED}, 125, "skillrun: execution e1: exited, but the daemon did not say with which exit code\n"},
		{"255", &pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_EXITED, ExitCode: code(255)}, 255, ""},
		{"signal", &pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_SIGNALED, ExitCode: code(-11), Signal: "SIGSEGV"}, 139, "skillrun: execution e1: signal: SIGSEGV\n"},
		{"timeout", &pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_TIMED_OUT, ExitCode: code(124), TimedOut: true, Evidence: &pb.ExecutionEvidence{Deadline: pb.ExecutionDeadline_EXECUTION_DEADLINE_WALL}, Advice: "Raise wall_time."}, 124,
			"skillrun: execution e1: timed out: wall time\nskillrun: execution e1: Raise wall_time.\n"},
		{"never started", &pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_TIMED_OUT, TimedOut: true, Evidence: &pb.ExecutionEvidence{Deadline: pb.ExecutionDeadline_EXECUTION_DEADLINE_QUEUE}}, 125, "skillrun: execution e1: timed out: waiting for a slot\n"},
		{"memory", &pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_OOM_KILLED, ExitCode: code(-9), Signal: "SIGKILL"}, 137, "skillrun: execution e1: out of memory\n"},
		{"memory of a child", &pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_OOM_KILLED, ExitCode: code(0)}, 137, "skillrun: execution e1: out of memory\n"},
		{"memory of a child that mattered", &pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_OOM_KILLED, ExitCode: code(2)}, 2, "skillrun: execution e1: out of memory\n"},
		{"cancelled", &pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_CANCELLED, ExitCode: code(-15), Evidence: &pb.ExecutionEvidence{CancelledBy: "ann"}}, 143, "skillrun: execution e1: cancelled by ann\n"},
		{"cancelled in the queue", &pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_CANCELLED}, 143, "skillrun: execution e1: cancelled\n"},
		{"cancelled and exited well", &pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_CANCELLED, ExitCode: code(0)}, 143, "skillrun: execution e1: cancelled\n"},
		{"setup failed", &pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_SETUP_FAILED, Evidence: &pb.ExecutionEvidence{SetupStep: "mount", SetupError: "no space"}}, 125, "skillrun: execution e1: setup failed: mount: no space\n"},
		{"no such directory", &pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_SETUP_FAILED, Evidence: &pb.ExecutionEvidence{SetupStep: "directory", SetupError: "working directory x: not found"}, Advice: "Nothing ran: working directory x: not found."}, 125,
			"skillrun: execution e1: setup failed: directory: --dir x: not found\nskillrun: execution e1: Nothing ran: --dir x: not found.\n"},
		{"daemon lost", &pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_DAEMON_LOST}, 125, "skillrun: execution e1: daemon lost: it died before the execution ended\n"},
		{"unheard of", &pb.ExecutionOutcome{End: pb.ExecutionEnd(99), ExitCode: code(0)}, 125, "skillrun: execution e1: 99\n"},
		{"truncated", &pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_EXITED, ExitCode: code(0), Stdout: &pb.OutputTruncation{Truncated: true, DeliveredBytes: 10, TotalBytes: 20}}, 0,
			"skillrun: execution e1: stdout truncated: 10 of 20 bytes delivered (--output raises the bound)\n"},
		{"failed in a session", &pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_EXITED, ExitCode: code(1), Session: &pb.SessionResult{Uncommitted: pb.SessionUncommitted_SESSION_UNCOMMITTED_NOT_SUCCEEDED}}, 1,
			"skillrun: execution e1: it did not succeed, so the session has none of its changes (--commit-failed keeps them)\n"},
		{"changes lost", &pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_EXITED, ExitCode: code(0), Session: &pb.SessionResult{Uncommitted: pb.SessionUncommitted_SESSION_UNCOMMITTED_OVER_QUOTA, Reason: "too large"}, Advice: "The session does not have its changes: too large."}, 125,
			"skillrun: execution e1: The session does not have its changes: too large.\n"},
		{"changes lost, and other advice", &pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_EXITED, ExitCode: code(0), Session: &pb.SessionResult{Uncommitted: pb.SessionUncommitted_SESSION_UNCOMMITTED_UNKNOWN, Reason: "the disk failed"}, Advice: "Raise it."}, 125,
			"skillrun: execution e1: Raise it.\nskillrun: execution e1: the session does not have its changes, or may not: the disk failed\n"},
		{"failed in a session and committed", &pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_EXITED, ExitCode: code(1), Session: &pb.SessionResult{CommittedVersion: 2}}, 1, ""},
		{"refused artifact", &pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_EXITED, ExitCode: code(0), ArtifactsRefused: []string{"x: a \x1b[2Jlink"}}, 0,
			"skillrun: execution e1: not an artifact: x: a \\x1b[2Jlink\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := newRecord().outcome(test.outcome).fake().client(t, nil, "run", "demo", "x.py")
			if want := (result{test.want, "", test.notice}); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

func TestRunVerbose(t *testing.T) {
	r := newRecord().outcome(&pb.ExecutionOutcome{
		End: pb.ExecutionEnd_EXECUTION_END_EXITED, ExitCode: proto.Int32(0), ArtifactCount: 3,
		Artifacts: []*pb.Artifact{{Path: "out.csv", SizeBytes: 2048}},
		Usage:     &pb.ExecutionUsage{WallTime: durationpb.New(1500 * time.Millisecond), CpuUser: durationpb.New(time.Second), MemoryPeakBytes: 1 << 20},
	})
	got := r.fake().client(t, nil, "-v", "run", "demo", "x.py")
	want := result{0, "", `skillrun: execution e1: demo@` + demoDigest + `
skillrun: execution e1: runs python3 /skills/demo/x.py 'a b'
skillrun: execution e1: artifact out.csv (2 KiB)
skillrun: execution e1: 2 more artifacts ('skillrun artifacts e1' lists them)
skillrun: execution e1: exit status 0; wall 1.5s, CPU 1s, memory 1 MiB, queue -, setup -
`}
	if got != want {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// TestRunRequest says which command line makes which request.
func TestRunRequest(t *testing.T) {
	t.Setenv("TEST_TOKEN", "secret")
	dir := t.TempDir()
	data, tool := filepath.Join(dir, "in.csv"), filepath.Join(dir, "a:b")
	if err := os.WriteFile(data, []byte("x,y"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(tool, []byte("#!"), 0o755); err != nil {
		t.Fatal(err)
	}
	script := func(path string) *pb.ExecuteRequest_Script { return &pb.ExecuteRequest_Script{Script: path} }
	command := func(line string) *pb.ExecuteRequest_Command { return &pb.ExecuteRequest_Command{Command: line} }
	code := func(language, text string) *pb.ExecuteRequest_Code {
		return &pb.ExecuteRequest_Code{Code: &pb.InlineCode{Language: language, Text: text}}
	}
	content := func(text string) *pb.InputFile_Content { return &pb.InputFile_Content{Content: []byte(text)} }
	tests := []struct {
		args []string
		want *pb.ExecuteRequest
	}{
		{[]string{"demo", "x.py", "--json", "-c", "a"}, &pb.ExecuteRequest{Source: script("x.py"), Args: []string{"--json", "-c", "a"}}},
		{[]string{"--timeout", "5s", "demo", "--memory", "256m", "x.py", "--timeout"}, &pb.ExecuteRequest{
			Source: script("x.py"), Args: []string{"--timeout"}, Limits: &pb.ExecutionLimits{WallTime: durationpb.New(5 * time.Second), MemoryBytes: 256 << 20}}},
		{[]string{"demo", "x.py", "--", "-a"}, &pb.ExecuteRequest{Source: script("x.py"), Args: []string{"--", "-a"}}},
		{[]string{"demo", "-c", "print(1)", "a", "-b"}, &pb.ExecuteRequest{Source: code("", "print(1)"), Args: []string{"a", "-b"}}},
		{[]string{"demo", "-c", "x", "--language", "bash", "--", "-b"}, &pb.ExecuteRequest{Source: code("bash", "x"), Args: []string{"-b"}}},
		{[]string{"demo", "--", "git", "log", "a b", "it's"}, &pb.ExecuteRequest{Source: command(`git log 'a b' 'it'"'"'s'`)}},
		{[]string{"demo", "--", "git log | head"}, &pb.ExecuteRequest{Source: command("git log | head")}},
		{[]string{"demo", "--args", `{"a": 1}`, "x.py"}, &pb.ExecuteRequest{Source: script("x.py"), Stdin: &pb.ExecuteRequest_JsonArguments{JsonArguments: `{"a": 1}`}}},
		{[]string{"-e", "A=1=2", "--env", "TEST_TOKEN", "--secret-env", "TEST_TOKEN", "--label", "k=v,w", "--dir", "sub", "--key", "k1", "demo", "x.py"}, &pb.ExecuteRequest{
			Source: script("x.py"), Env: map[string]string{"A": "1=2", "TEST_TOKEN": "secret"}, SecretEnv: map[string]string{"TEST_TOKEN": "secret"},
			Labels: map[string]string{"k": "v,w"}, WorkingDirectory: "sub", IdempotencyKey: "k1"}},
		{[]string{"--file", data, "-f", data + ":sub/as.csv", "-f", tool, "demo", "x.py"}, &pb.ExecuteRequest{Source: script("x.py"), Files: []*pb.InputFile{
			{Path: "in.csv", Source: content("x,y")}, {Path: "sub/as.csv", Source: content("x,y")}, {Path: "a:b", Source: content("#!"), Executable: true}}}},
		{[]string{"--file", filepath.Dir(data) + ":project", "demo", "x.py"}, &pb.ExecuteRequest{Source: script("x.py"), Files: []*pb.InputFile{
			{Path: "project/a:b", Source: content("#!"), Executable: true}, {Path: "project/in.csv", Source: content("x,y")}}}},
		{[]string{"--file", filepath.Dir(data) + ":.", "demo", "x.py"}, &pb.ExecuteRequest{Source: script("x.py"), Files: []*pb.InputFile{
			{Path: "a:b", Source: content("#!"), Executable: true}, {Path: "in.csv", Source: content("x,y")}}}},
		{[]string{"--network", "none", "--on-disconnect", "continue", "--queue-timeout", "1s", "demo", "x.py"}, &pb.ExecuteRequest{
			Source: script("x.py"), NetworkRules: &pb.NetworkRules{Allow: []string{"none"}}, OnDisconnect: pb.OnDisconnect_ON_DISCONNECT_CONTINUE, QueueTimeout: durationpb.New(time.Second)}},
		{[]string{"--session", "s1", "--at", "3", "--session-wait", "--commit-failed", "demo", "x.py"}, &pb.ExecuteRequest{
			Source: script("x.py"), Session: &pb.SessionUse{SessionId: "s1", Version: 3, Wait: true, CommitFailed: true}}},
		{[]string{"--learn", "--network-deny", "c.example", "demo", "x.py"}, &pb.ExecuteRequest{Source: script("x.py"), NetworkRules: &pb.NetworkRules{Deny: []string{"c.example"}, Learn: true}}},
		{[]string{"--session", "s1", "demo", "x.py"}, &pb.ExecuteRequest{Source: script("x.py"), Session: &pb.SessionUse{SessionId: "s1"}}},
		{[]string{"--cpu-time", "2s", "--cpus", "0.5", "--processes", "3", "--output", "1k", "--workspace", "2MiB", "--workspace-files", "7", "--open-files", "40", "--network", "a.example:80,443", "--network", "b.example", "--network-deny", "c.example", "demo", "x.py"}, &pb.ExecuteRequest{
			Source: script("x.py"), NetworkRules: &pb.NetworkRules{Allow: []string{"a.example:80,443", "b.example"}, Deny: []string{"c.example"}}, Limits: &pb.ExecutionLimits{CpuTime: durationpb.New(2 * time.Second), MilliCpus: 500, Processes: 3, OutputBytes: 1024, WorkspaceBytes: 2 << 20, WorkspaceFiles: 7, OpenFiles: 40}}},
	}
	for _, test := range tests {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			var got *pb.ExecuteRequest
			done := newRecord().exit(0)
			f := &fake{execute: func(r *pb.ExecuteRequest, s eventtest.Server) error {
				got = r
				return done.send(s, 0, 0)
			}}
			test.want.Skill = "demo"
			if r := f.client(t, strings.NewReader(""), append([]string{"run"}, test.args...)...); r.code != 0 {
				t.Fatalf("got %+v", r)
			}
			if test.want.Env == nil {
				test.want.Env = map[string]string{}
			}
			if !proto.Equal(got, test.want) {
				t.Errorf("request: got %v\nwant %v", got, test.want)
			}
		})
	}
}

// TestRunRefusesHere is for command lines that never reach the daemon.
func TestRunRefusesHere(t *testing.T) {
	os.Unsetenv("TEST_UNSET")
	linked := t.TempDir()
	if err := os.Symlink("/etc/passwd", filepath.Join(linked, "link")); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		args []string
		code int
		want string
	}{
		{[]string{}, 125, "run needs SKILL"},
		{[]string{"demo"}, 125, "nothing to run"},
		{[]string{"", "x.py"}, 125, "skillrun: SKILL is empty"},
		{[]string{"demo", "--", ""}, 125, "the script or command is empty"},
		{[]string{"demo", ""}, 125, "the script or command is empty"},
		{[]string{"demo", "--"}, 125, "nothing to run"},
		{[]string{"--", "demo", "x.py"}, 125, "-- must follow SKILL"},
		{[]string{"demo", "--nonsense", "x.py"}, 125, "unknown flag: --nonsense"},
		{[]string{"--timeout", "0s", "demo", "x.py"}, 125, "--timeout 0s: must be more than 0"},
		{[]string{"--timeout", "-1s", "demo", "x.py"}, 125, "--timeout -1s: must be more than 0"},
		{[]string{"--timeout", "soon", "demo", "x.py"}, 125, "skillrun: --timeout soon: want a time such as 250ms, 30s or 1m30s (see"},
		{[]string{"--memory", "0", "demo", "x.py"}, 125, "skillrun: --memory 0: want a size above 0"},
		{[]string{"--processes", "-1", "demo", "x.py"}, 125, "skillrun: --processes -1: want a whole number, 1 to 4294967295 (see"},
		{[]string{"--processes", "4294967296", "demo", "x.py"}, 125, "skillrun: --processes 4294967296: want a whole number, 1 to 4294967295 (see"},
		{[]string{"--verbose=maybe", "demo", "x.py"}, 125, "skillrun: --verbose maybe: want true or false (see"},
		{[]string{"--processes", "0", "demo", "x.py"}, 125, "--processes 0: must be more than 0"},
		{[]string{"--workspace-files", "0", "demo", "x.py"}, 125, "--workspace-files 0: must be more than 0"},
		{[]string{"--open-files", "0", "demo", "x.py"}, 125, "--open-files 0: must be more than 0"},
		{[]string{"--cpus", "0", "demo", "x.py"}, 125, "want a number of processors above 0"},
		{[]string{"--cpus", "NaN", "demo", "x.py"}, 125, "want a number of processors above 0"},
		{[]string{"--cpus", "1e9", "demo", "x.py"}, 125, "want a number of processors above 0"},
		{[]string{"--cpu-time", "0", "demo", "x.py"}, 125, "--cpu-time 0s: must be more than 0"},
		{[]string{"demo", "--queue-timeout", "-5ms", "x.py"}, 125, "--queue-timeout -5ms: must be more than 0"},
		{[]string{"--language", "bash", "demo", "x.py"}, 125, "--language goes with -c"},
		{[]string{"--on-disconnect", "what", "demo", "x.py"}, 125, "want cancel or continue"},
		{[]string{"--detach", "--artifacts", "out", "demo", "x.py"}, 125, "--artifacts"},
		{[]string{"--detach", "-i", "demo", "x.py"}, 125, "--interactive"},
		{[]string{"--network", "a.example,b.example", "demo", "x.py"}, 125, "--network a.example,b.example: a rule has one destination; repeat --network"},
		{[]string{"--network-deny", "a.example:80,b.example:80", "demo", "x.py"}, 125, "a rule has one destination; repeat --network-deny"},
		{[]string{"--learn", "--network", "a.example", "demo", "x.py"}, 125, "--network"},
		{[]string{"--learn", "--detach", "demo", "x.py"}, 125, "--detach"},
		{[]string{"--at", "2", "demo", "x.py"}, 125, "need --session"},
		{[]string{"--secret-env", "A=b", "demo", "x.py"}, 125, "give the name alone"},
		{[]string{"--secret-env", "TEST_UNSET", "demo", "x.py"}, 125, "TEST_UNSET: not set in this"},
		{[]string{"--env", "A B", "demo", "x.py"}, 125, "--env 'A B': want NAME=value, or NAME alone; a name has no blanks"},
		{[]string{"--env", "TEST_UNSET", "demo", "x.py"}, 125, "TEST_UNSET: not set in this"},
		{[]string{"--label", "x", "demo", "x.py"}, 125, "want key=value"},
		{[]string{"--file", "/nonexistent:x", "demo", "x.py"}, 125, "/nonexistent"},
		{[]string{"--file", linked, "demo", "x.py"}, 125, "not a regular file"},
		{[]string{"--artifacts", "/dev/null/x", "demo", "x.py"}, 125, "--artifacts"},
	}
	for _, test := range tests {
		f := &fake{execute: func(*pb.ExecuteRequest, eventtest.Server) error {
			t.Error("the daemon was asked")
			return nil
		}}
		got := f.client(t, nil, append([]string{"run"}, test.args...)...)
		if got.code != test.code || !strings.Contains(got.stderr, test.want) || strings.Count(got.stderr, "\n") != 1 || got.stdout != "" {
			t.Errorf("%q: got %+v, want code %d and one line with %q", test.args, got, test.code, test.want)
		}
	}
}

func TestRunHelp(t *testing.T) {
	for _, args := range [][]string{{"run", "--help"}, {"run", "demo", "--help"}} {
		if got := (&fake{}).client(t, nil, args...); got.code != 0 || !strings.Contains(got.stdout, "skillrun run [flags] SKILL") {
			t.Errorf("%q: got %+v, want the help", args, got)
		}
	}
}

// echo is a program that prints each piece of its input as it comes.
func echo(s eventtest.Interactive) error {
	r := newRecord().started()
	if m, err := s.Recv(); err != nil || m.GetStart() == nil {
		return fmt.Errorf("start: %v, %v", m, err)
	}
	if err := r.send(s, 0, 0); err != nil {
		return err
	}
	for {
		m, err := s.Recv()
		if err == io.EOF || m.GetCloseStdin() != nil {
			r.exit(0)
			return r.send(s, uint64(len(r.events))-1, 0)
		}
		if err != nil {
			return err
		}
		r.stdout(string(m.GetStdin()))
		if err := r.send(s, uint64(len(r.events))-1, 0); err != nil {
			return err
		}
	}
}

func TestRunStreamsStdin(t *testing.T) {
	f := &fake{interactive: echo}
	f.serve(t, "unix")
	in, w := io.Pipe()
	out, stdout := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- run(t.Context(), []string{"--address", f.address, "run", "demo", "x.py"}, in, stdout, io.Discard)
	}()
	for i := range 3 {
		want := fmt.Sprintf("line %d\n", i)
		io.WriteString(w, want)
		got := make([]byte, len(want))
		if _, err := io.ReadFull(out, got); err != nil || string(got) != want {
			t.Fatalf("got %q, %v, want %q", got, err, want)
		}
	}
	w.Close()
	if got := <-code; got != 0 {
		t.Errorf("code: got %d, want 0", got)
	}
}

func TestRunLeavesStdinAlone(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	closed, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	tests := []struct {
		name  string
		stdin io.Reader
		args  []string
	}{
		{"none", nil, []string{"demo", "x.py"}},
		{"/dev/null", null, []string{"demo", "x.py"}},
		{"closed", closed, []string{"demo", "x.py"}},
		{"--args", untouched{t}, []string{"--args", "{}", "demo", "x.py"}},
		{"--detach", untouched{t}, []string{"--detach", "demo", "x.py"}},
	}
	for _, test := range tests {
		// ExecuteInteractive is UNIMPLEMENTED: only Execute can succeed.
		if got := newRecord().exit(0).fake().client(t, test.stdin, append([]string{"run"}, test.args...)...); got.code != 0 {
			t.Errorf("%s: got %+v", test.name, got)
		}
	}
}

// untouched must not be read.
type untouched struct{ t *testing.T }

func (r untouched) Read([]byte) (int, error) {
	r.t.Error("standard input was read")
	return 0, io.EOF
}

func TestRunUploadsLargeFilesInChunks(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 200_000) // 3.2 MB
	path := filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	chunks := 0
	f := &fake{interactive: func(s eventtest.Interactive) error {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		announced := m.GetStart().GetFiles()[0].GetStreamed()
		var got []byte
		for uint64(len(got)) < announced.GetSizeBytes() {
			m, err := s.Recv()
			if err != nil {
				return err
			}
			if m.GetFileChunk().GetOffsetBytes() != uint64(len(got)) || m.GetFileChunk().GetPath() != "in/big" {
				return status.Errorf(codes.InvalidArgument, "chunk: %v at %d", m.GetFileChunk().GetPath(), m.GetFileChunk().GetOffsetBytes())
			}
			got = append(got, m.GetFileChunk().GetData()...)
			chunks++
		}
		sum := sha256.Sum256(got)
		if hex.EncodeToString(sum[:]) != announced.GetSha256() || !bytes.Equal(got, data) {
			return status.Error(codes.DataLoss, "checksum")
		}
		return newRecord().exit(0).send(s, 0, 0)
	}}
	if got := f.client(t, nil, "run", "--file", path+":in/big", "demo", "x.py"); got.code != 0 || chunks < 2 {
		t.Errorf("got %+v after %d chunks, want success after several", got, chunks)
	}
}

// TestRunSurvivesBrokenStreams cuts the connection under the program's output.
func TestRunSurvivesBrokenStreams(t *testing.T) {
	r := newRecord().started()
	want := ""
	for i := range 60 {
		line := fmt.Sprintf("%d\x00\n", i*i)
		want += line
		r.stdout(line)
	}
	r.exit(5)
	seen := make(chan int, 1)
	stdout := &notifyingWriter{at: len(want) / 3, reached: seen}
	f := r.fake()
	f.execute = func(_ *pb.ExecuteRequest, s eventtest.Server) error {
		r.send(s, 0, 30)
		<-seen // the client has a part of it
		f.cut()
		return nil
	}
	f.serve(t, "unix")
	if got := run(t.Context(), []string{"--address", f.address, "run", "demo", "x.py"}, nil, stdout, io.Discard); got != 5 {
		t.Errorf("code: got %d, want 5", got)
	}
	if got := stdout.String(); got != want {
		t.Errorf("stdout: got %q\nwant %q", got, want)
	}
}

type notifyingWriter struct {
	bytes.Buffer
	at      int
	reached chan<- int
}

func (w *notifyingWriter) Write(p []byte) (int, error) {
	before := w.Len()
	n, err := w.Buffer.Write(p)
	if before < w.at && w.Len() >= w.at {
		w.reached <- w.Len()
	}
	return n, err
}

func TestRunJSON(t *testing.T) {
	r := newRecord().started().stdout("a\xff").stderr("b").exit(2)
	got := r.fake().client(t, nil, "run", "--json", "demo", "x.py")
	if got.code != 2 || got.stderr != "" {
		t.Errorf("got code %d and stderr %q, want 2 and nothing", got.code, got.stderr)
	}
	lines := strings.Split(strings.TrimSuffix(got.stdout, "\n"), "\n")
	if len(lines) != len(r.events) {
		t.Fatalf("got %d lines, want %d", len(lines), len(r.events))
	}
	for i, line := range lines {
		event := &pb.ExecutionEvent{}
		if err := protojson.Unmarshal([]byte(line), event); err != nil {
			t.Fatalf("line %d: %v", i, err)
		}
		if !proto.Equal(event, r.events[i]) {
			t.Errorf("line %d: got %v, want %v", i, event, r.events[i])
		}
	}
	// The fields that a reader without the proto relies on.
	var last struct {
		ExecutionID string `json:"executionId"`
		Sequence    string
		Outcome     struct {
			End      string
			ExitCode *int
			TimedOut *bool
		}
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
		t.Fatal(err)
	}
	if last.ExecutionID != "e1" || last.Sequence != "5" || last.Outcome.End != "EXECUTION_END_EXITED" || last.Outcome.ExitCode == nil || *last.Outcome.ExitCode != 2 || last.Outcome.TimedOut == nil {
		t.Errorf("last line: got %s", lines[len(lines)-1])
	}
}

func TestRunDetached(t *testing.T) {
	var got *pb.ExecuteRequest
	f := &fake{execute: func(r *pb.ExecuteRequest, s eventtest.Server) error {
		got = r
		newRecord().send(s, 0, 0)
		<-s.Context().Done()
		return nil
	}}
	if r, want := f.client(t, nil, "run", "--detach", "demo", "x.py"), (result{0, "e1\n", ""}); r != want {
		t.Errorf("got %+v, want %+v", r, want)
	}
	if got.GetOnDisconnect() != pb.OnDisconnect_ON_DISCONNECT_CONTINUE {
		t.Errorf("on disconnect: got %v, want continue", got.GetOnDisconnect())
	}
	r := f.client(t, nil, "run", "--detach", "--json", "demo", "x.py")
	event := &pb.ExecutionEvent{}
	if err := protojson.Unmarshal([]byte(r.stdout), event); err != nil || event.GetHeader().GetSkill() != "demo" {
		t.Errorf("json: got %+v, %v, want the header", r, err)
	}
}

func TestRunSavesArtifacts(t *testing.T) {
	files := map[string]string{"out.csv": "a,b\n", "sub/plot.png": "\x89PNG"}
	for _, code := range []int32{0, 4} {
		dir := filepath.Join(t.TempDir(), "new", "folder")
		f := newRecord().exit(code).fake().withArtifacts(files)
		if got, want := f.client(t, nil, "run", "-o", dir, "demo", "x.py"), (result{int(code), "", ""}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		for path, want := range files {
			if got, err := os.ReadFile(filepath.Join(dir, path)); err != nil || string(got) != want {
				t.Errorf("%s: got %q, %v, want %q", path, got, err, want)
			}
		}
	}
}

func TestRunDetectsCorruptArtifacts(t *testing.T) {
	for code, want := range map[int32]int{0: 125, 4: 4} {
		dir := t.TempDir()
		f := newRecord().exit(code).fake().withArtifacts(map[string]string{"x": "right"})
		f.artifact = func(_ *pb.GetArtifactRequest, s artifactServer) error {
			return s.Send(&pb.GetArtifactResponse{Data: []byte("wrong")})
		}
		got := f.client(t, nil, "run", "-o", dir, "demo", "x.py")
		if got.code != want || !strings.Contains(got.stderr, `artifact "x": corrupt`) {
			t.Errorf("got %+v, want code %d and corrupt", got, want)
		}
		if left, _ := os.ReadDir(dir); len(left) != 0 {
			t.Errorf("left behind: got %v, want nothing", left)
		}
	}
}

func TestRunReportsAWriteError(t *testing.T) {
	for _, flags := range [][]string{{}, {"--json"}} {
		f := newRecord().stdout("x").exit(0).fake()
		f.serve(t, "unix")
		var stderr bytes.Buffer
		code := run(t.Context(), append([]string{"--address", f.address, "run"}, append(flags, "demo", "x.py")...), nil, fullDisk{}, &stderr)
		if code != 125 || !strings.Contains(stderr.String(), "disk full") {
			t.Errorf("%v: got %d, %q, want 125 and the error", flags, code, stderr.String())
		}
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, fmt.Errorf("disk full") }

func TestAttach(t *testing.T) {
	r := newRecord().started().stdout("ab").stdout("cd").exit(7)
	f := r.fake().withArtifacts(map[string]string{"x": "y"})
	dir := t.TempDir()
	tests := []struct {
		args []string
		want result
	}{
		{[]string{"e1"}, result{7, "abcd", ""}},
		{[]string{"--after", "3", "e1"}, result{7, "cd", ""}},
		{[]string{"-o", dir, "e1"}, result{7, "abcd", ""}},
	}
	for _, test := range tests {
		if got := f.client(t, nil, append([]string{"attach"}, test.args...)...); got != test.want {
			t.Errorf("%q: got %+v, want %+v", test.args, got, test.want)
		}
	}
	if got, err := os.ReadFile(filepath.Join(dir, "x")); string(got) != "y" {
		t.Errorf("artifact: got %q, %v, want %q", got, err, "y")
	}
	if got := f.client(t, nil, "attach", "--json", "--after", "4", "e1"); strings.Count(got.stdout, "\n") != 1 || !strings.Contains(got.stdout, `"outcome"`) {
		t.Errorf("json: got %+v, want the last event", got)
	}
}
