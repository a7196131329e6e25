package server

import (
	"errors"
	"math"
	"reflect"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/network/policy"
	"github.com/skillrun/skillrun/internal/permission"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// Nothing that a message says is lost on the way.
func TestNewRequest(t *testing.T) {
	who := permission.Principal{Tenant: "t", Name: "n"}
	json := "{}"
	m := &pb.ExecuteRequest{
		Skill:            "demo@sha256:x",
		Source:           &pb.ExecuteRequest_Code{Code: &pb.InlineCode{Text: "print()", Language: "python"}},
		Args:             []string{"a", "b"},
		Stdin:            &pb.ExecuteRequest_JsonArguments{JsonArguments: json},
		WorkingDirectory: "d",
		Files: []*pb.InputFile{
			{Path: "f", Source: &pb.InputFile_Content{Content: []byte("c")}, Executable: true},
			announce("g", "x"),
		},
		Env:       map[string]string{"A": "1"},
		SecretEnv: map[string]string{"B": "2"},
		Labels:    map[string]string{"l": "v"},
		Limits: &pb.ExecutionLimits{
			WallTime: durationpb.New(time.Second), CpuTime: durationpb.New(2 * time.Second), MemoryBytes: 3, Processes: 4,
			OutputBytes: 5, WorkspaceBytes: 6, WorkspaceFiles: 7, OpenFiles: 8, MilliCpus: 9,
		},
		NetworkRules:   &pb.NetworkRules{Allow: []string{"public"}, Deny: []string{"a.example"}},
		OnDisconnect:   pb.OnDisconnect_ON_DISCONNECT_CONTINUE,
		IdempotencyKey: "k",
		QueueTimeout:   durationpb.New(9 * time.Second),
	}
	got, err := newRequest(who, m, true)
	if err != nil {
		t.Fatal(err)
	}
	want := executor.Request{
		Principal: who,
		Skill:     "demo@sha256:x",
		Source:    permission.Source{Kind: permission.Code, Code: "print()", Language: "python"},
		Args:      []string{"a", "b"},
		Stdin:     executor.Stdin{JSON: &json},
		Dir:       "d",
		Env:       map[string]string{"A": "1"},
		SecretEnv: map[string]executor.Secret{"B": "2"},
		Labels:    map[string]string{"l": "v"},
		Limits: executor.Limits{
			Wall: time.Second, CPU: 2 * time.Second, MemoryBytes: 3, Processes: 4,
			OutputBytes: 5, WorkspaceBytes: 6, WorkspaceFiles: 7, OpenFiles: 8, MilliCPUs: 9,
		},
		Network:      &policy.Config{Allow: []string{"public"}, Deny: []string{"a.example"}},
		Key:          "k",
		QueueTimeout: 9 * time.Second,
	}
	files := got.Files
	got.Files = nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if len(files) != 2 || files[0].Path != "f" || string(files[0].Content) != "c" || !files[0].Executable || files[1].Path != "g" || files[1].Executable {
		t.Errorf("files %+v", files)
	}
}

// Unset fields stay unset, so that the executor derives them.
func TestNewRequestLeavesUnset(t *testing.T) {
	got, err := newRequest(permission.Principal{}, script("x"), false)
	if err != nil {
		t.Fatal(err)
	}
	if got.Limits != (executor.Limits{}) || got.Network != nil || got.Stdin.JSON != nil || got.Stdin.Bytes != nil || got.QueueTimeout != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestNewRequestRefuses(t *testing.T) {
	limits := func(l *pb.ExecutionLimits) func(*pb.ExecuteRequest) {
		return func(m *pb.ExecuteRequest) { m.Limits = l }
	}
	for _, c := range []struct {
		field string
		edit  func(*pb.ExecuteRequest)
	}{
		{"source", func(m *pb.ExecuteRequest) { m.Source = nil }},
		{"limits.wall_time", limits(&pb.ExecutionLimits{WallTime: &durationpb.Duration{}})},
		{"limits.wall_time", limits(&pb.ExecutionLimits{WallTime: durationpb.New(-1)})},
		{"limits.wall_time", limits(&pb.ExecutionLimits{WallTime: &durationpb.Duration{Seconds: 1, Nanos: -1}})},
		{"limits.wall_time", limits(&pb.ExecutionLimits{WallTime: &durationpb.Duration{Seconds: math.MaxInt64}})},
		{"limits.cpu_time", limits(&pb.ExecutionLimits{CpuTime: &durationpb.Duration{}})},
		{"queue_timeout", func(m *pb.ExecuteRequest) { m.QueueTimeout = &durationpb.Duration{Nanos: 2e9} }},
		{"on_disconnect", func(m *pb.ExecuteRequest) { m.OnDisconnect = 9 }},
		{"files[1]", func(m *pb.ExecuteRequest) {
			m.Files = []*pb.InputFile{{Path: "a", Source: &pb.InputFile_Content{}}, {Path: "b"}}
		}},
		{"files[0].streamed", func(m *pb.ExecuteRequest) { m.Files = []*pb.InputFile{announce("a", "")} }},
	} {
		m := script("x")
		c.edit(m)
		_, err := newRequest(permission.Principal{}, m, false)
		if bad, ok := errors.AsType[*executor.RequestError](err); !ok || bad.Field != c.field {
			t.Errorf("got %v, want an error about %s", err, c.field)
		}
	}
}

// No number becomes another one by its size.
func TestNewLimitsIsLossless(t *testing.T) {
	got, err := newLimits(&pb.ExecutionLimits{
		MemoryBytes: math.MaxUint64, OutputBytes: math.MaxInt64 + 1, WorkspaceBytes: math.MaxInt64,
		Processes: math.MaxUint32, WorkspaceFiles: math.MaxUint32, OpenFiles: math.MaxUint32,
	})
	want := executor.Limits{
		MemoryBytes: math.MaxInt64, OutputBytes: math.MaxInt64, WorkspaceBytes: math.MaxInt64,
		Processes: math.MaxUint32, WorkspaceFiles: math.MaxUint32, OpenFiles: math.MaxUint32,
	}
	if err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

func TestNewSignal(t *testing.T) {
	for name, want := range map[string]unix.Signal{
		"SIGHUP": 1, "SIGINT": 2, "SIGQUIT": 3, "SIGKILL": 9, "SIGUSR1": 10, "SIGUSR2": 12, "SIGTERM": 15,
		"SIGCONT": 18, "SIGSTOP": 19, "SIGWINCH": 28, "SIGSEGV": 0, "": 0, "KILL": 0,
	} {
		got, err := newSignal(name)
		if got != want || (err != nil) != (want == 0) {
			t.Errorf("%q: got %d, %v; want %d", name, got, err, want)
		}
	}
}

// A request for an unknown signal is answered with the list of signals.
func TestUnknownSignalListsTheSignals(t *testing.T) {
	_, err := newSignal("SIGFOO")
	want := `signal: "SIGFOO" is not a signal that can be sent; choose one of SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGKILL, SIGUSR1, SIGUSR2, SIGCONT, SIGSTOP, SIGWINCH`
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

// Whatever bytes a caller sends, conversion ends in a request or in an error that
// the table knows.
func FuzzNewRequest(f *testing.F) {
	for _, m := range []*pb.ExecuteRequest{
		script("x", "y"),
		{Source: &pb.ExecuteRequest_Code{}, Limits: &pb.ExecutionLimits{WallTime: &durationpb.Duration{Nanos: -1}}},
		{Source: &pb.ExecuteRequest_Command{Command: "ls"}, Files: []*pb.InputFile{announce("a", "b"), {}}},
	} {
		data, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m := &pb.ExecuteRequest{}
		if proto.Unmarshal(data, m) != nil {
			return
		}
		r, err := newRequest(permission.Principal{}, m, true)
		if err != nil {
			if _, ok := classify(err); !ok {
				t.Errorf("%v is not in the table", err)
			}
			return
		}
		if len(r.Files) != len(m.Files) || r.Source.Kind == 0 || r.Limits.MemoryBytes < 0 || r.Limits.Wall < 0 {
			t.Errorf("got %+v", r)
		}
	})
}
