package main

import (
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/skillrun/skillrun/internal/eventtest"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A command that waits for the daemon says so on a terminal, once, and goes on.
func TestWaitForTheDaemonIsShown(t *testing.T) {
	t.Setenv("TERM", "xterm")
	var asked atomic.Int32
	f := &fake{execute: func(_ *pb.ExecuteRequest, s eventtest.Server) error {
		if asked.Add(1)%4 != 0 {
			return refusal(codes.Unavailable, "DRAINING", "draining")
		}
		return newRecord().stderr("oops\n").exit(0).send(s, 0, 0)
	}}
	f.serve(t, "unix")
	told := "skillrun: the daemon at " + f.address + " stops; waiting up to 1m0s for the next one (Ctrl-C ends the wait)\r\n"
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"run", "demo", "x.py"}, told + "oops\r\n"},
		{[]string{"run", "--wait", "2m", "demo", "x.py"}, strings.Replace(told, "1m0s", "2m0s", 1) + "oops\r\n"},
		{[]string{"run", "-q", "demo", "x.py"}, "oops\r\n"},
		{[]string{"run", "--json", "demo", "x.py"}, ""},
	} {
		screen, all := openScreen(t)
		code := run(t.Context(), append([]string{"--address", f.address}, test.args...), nil, io.Discard, screen)
		if got := all(); code != 0 || got != test.want {
			t.Errorf("%v: got %d and %q, want %q", test.args, code, got, test.want)
		}
	}
	if got := f.client(t, nil, "run", "demo", "x.py"); got.code != 0 || got.stderr != "oops\n" {
		t.Errorf("no terminal: got %+v", got)
	}
}

// After the wait, the error says whether the request may have started something.
func TestWaitInVain(t *testing.T) {
	broken := newRecord().stdout("out\n").fake()
	broken.execute = func(_ *pb.ExecuteRequest, s eventtest.Server) error { return newRecord().stdout("out\n").send(s, 0, 0) }
	broken.attach = func(*pb.AttachExecutionRequest, eventtest.Server) error {
		return refusal(codes.Unavailable, "", "the connection broke")
	}
	broken.serve(t, "unix")
	// It drains, and the next daemon breaks the stream of every third request.
	var asked atomic.Int32
	unknown := &fake{execute: func(*pb.ExecuteRequest, eventtest.Server) error {
		if asked.Add(1)%3 != 0 {
			return refusal(codes.Unavailable, "DRAINING", "draining")
		}
		return status.Error(codes.Unavailable, "the connection broke")
	}}
	unknown.serve(t, "unix")
	broke := &fake{execute: func(*pb.ExecuteRequest, eventtest.Server) error {
		return status.Error(codes.Unavailable, "the connection broke")
	}}
	broke.serve(t, "unix")
	const mayRun = "the program may have started: 'skillrun ps --all' shows it)"
	const nowhere = "unix:///nonexistent/skillrun.sock"
	for _, test := range []struct {
		address string
		args    []string
		stdout  string
		want    []string // parts of the one line on stderr
	}{
		{nowhere, []string{"run", "demo", "x.py"}, "", []string{nowhere, "no such file", "nothing has started; --wait waits longer"}},
		{nowhere, []string{"run", "-d", "demo", "x.py"}, "", []string{"nothing has started"}},
		{nowhere, []string{"run", "--key", "k", "demo", "x.py"}, "", []string{"the same command with the same --key never runs twice"}},
		{nowhere, []string{"attach", "e1"}, "", []string{"skillrun attach e1"}},
		{nowhere, []string{"show", "e1"}, "", []string{"no such file", "; --wait waits longer)"}},
		{nowhere, []string{"session", "rm", "s1"}, "", []string{"no such file", "; --wait waits longer)"}},
		{broken.address, []string{"run", "demo", "x.py"}, "out\n", []string{"the end of the program is not known", "skillrun attach e1"}},
		{unknown.address, []string{"run", "demo", "x.py"}, "", []string{"the connection broke", mayRun}},
		{broke.address, []string{"run", "demo", "x.py"}, "", []string{"the connection broke", mayRun}},
		{broke.address, []string{"run", "-d", "demo", "x.py"}, "", []string{"the connection broke", mayRun}},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			t.Parallel()
			f := &fake{address: test.address}
			// Long enough for two tries on a slow machine. Only then has it waited.
			got := f.client(t, nil, append(test.args[:1:1], append([]string{"--wait", "5s"}, test.args[1:]...)...)...)
			if got.code != codeFailed || got.stdout != test.stdout || strings.Count(got.stderr, "\n") != 1 {
				t.Errorf("got %+v, want code %d and one line", got, codeFailed)
			}
			for _, want := range test.want {
				if !strings.Contains(got.stderr, want) {
					t.Errorf("got %q, want %q", got.stderr, want)
				}
			}
		})
	}
}

// A call of a tool and a build begin again with the next daemon.
func TestStreamsWaitForTheDaemon(t *testing.T) {
	var asked atomic.Int32
	f := &fake{
		callTool: func(r *pb.CallToolRequest, s grpc.ServerStreamingServer[pb.CallToolResponse]) error {
			if asked.Add(1)%3 != 0 {
				return refusal(codes.Unavailable, "DRAINING", "draining")
			}
			return s.Send(&pb.CallToolResponse{Event: &pb.CallToolResponse_Result{Result: &pb.ToolResult{Content: r.GetName()}}})
		},
		prepare: func(r *pb.PrepareSkillRequest, s grpc.ServerStreamingServer[pb.PrepareSkillResponse]) error {
			if asked.Add(1)%3 != 0 {
				return refusal(codes.Unavailable, "DRAINING", "draining")
			}
			return s.Send(&pb.PrepareSkillResponse{Event: &pb.PrepareSkillResponse_Environment{Environment: &pb.SkillEnvironment{}}})
		},
	}
	for line, want := range map[string]string{"tool call hello": "hello\n", "prepare demo": "demo: needs no packages\n"} {
		asked.Store(0)
		if got := f.client(t, nil, strings.Fields(line)...); got.code != 0 || got.stdout != want || asked.Load() != 3 {
			t.Errorf("%s: got %+v after %d calls, want %q after 3", line, got, asked.Load(), want)
		}
		asked.Store(0)
		if got := f.client(t, nil, append([]string{"--wait", "0"}, strings.Fields(line)...)...); got.code != codeFailed || !strings.Contains(got.stderr, "DRAINING") {
			t.Errorf("%s --wait 0: got %+v", line, got)
		}
	}
}
