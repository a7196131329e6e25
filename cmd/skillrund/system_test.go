package main

import (
	"crypto/rand"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

func TestCapabilities(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "concurrency: {running: 3, reserved: 2}\n") // startDaemon waits until it serves
	c, err := d.system.GetCapabilities(t.Context(), &pb.GetCapabilitiesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Boundaries) < 15 {
		t.Errorf("%d boundaries", len(c.Boundaries))
	}
	for _, b := range c.Boundaries {
		if !b.GetFound() || b.Name == "" || b.Why == "" {
			t.Errorf("boundary %v: the daemon serves without it, or it says nothing", b)
		}
	}
	languages := map[string]string{}
	for _, r := range c.Runtimes {
		languages[r.Language] = r.Version
	}
	for _, want := range []string{"python", "bash", "node"} {
		if languages[want] == "" {
			t.Errorf("no %s with a version among %v", want, c.Runtimes)
		}
	}
	// A group that the contract lacks would be unspecified.
	for _, b := range c.Boundaries {
		if b.Group == pb.BoundaryGroup_BOUNDARY_GROUP_UNSPECIFIED {
			t.Errorf("boundary %s has no group", b.Name)
		}
	}
	if c.Version == "" || c.Kernel == "" || c.CgroupVersion == pb.CgroupVersion_CGROUP_VERSION_UNSPECIFIED || c.Network != pb.NetworkMode_NETWORK_MODE_NONE || c.MaxLimits.GetMemoryBytes() == 0 || c.DefaultLimits.GetWallTime() == nil || c.MaxRunning != 3+2 {
		t.Errorf("got %v", c)
	}
}

func TestListAndGet(t *testing.T) {
	t.Parallel()
	d := startShared(t)
	mine := rand.Text() // marks this test's executions, with -count as well
	var ids []string
	for i, text := range []string{"print(1)", "import sys; sys.exit(3)", "print(3)"} {
		req := code("calculator", text)
		req.Labels = map[string]string{"n": string(rune('a' + i)), "all": mine}
		ids = append(ids, d.run(req).id)
	}
	page, err := d.runs.ListExecutions(t.Context(), &pb.ListExecutionsRequest{Labels: map[string]string{"all": mine}, PageSize: 2})
	if err != nil || len(page.Executions) != 2 || page.Executions[0].ExecutionId != ids[2] || page.NextPageToken == "" {
		t.Fatalf("first page: %v, %v; want the newest two and a token", page, err)
	}
	page, err = d.runs.ListExecutions(t.Context(), &pb.ListExecutionsRequest{Labels: map[string]string{"all": mine}, PageSize: 2, PageToken: page.NextPageToken})
	if err != nil || len(page.Executions) != 1 || page.Executions[0].ExecutionId != ids[0] || page.NextPageToken != "" {
		t.Errorf("second page: %v, %v; want the oldest and no token", page, err)
	}
	page, err = d.runs.ListExecutions(t.Context(), &pb.ListExecutionsRequest{Labels: map[string]string{"n": "b", "all": mine}, Ends: []pb.ExecutionEnd{pb.ExecutionEnd_EXECUTION_END_EXITED}, Skill: "calculator", States: []pb.ExecutionState{pb.ExecutionState_EXECUTION_STATE_ENDED}})
	if err != nil || len(page.Executions) != 1 || page.Executions[0].Outcome.GetExitCode() != 3 {
		t.Errorf("filtered: %v, %v", page, err)
	}
	e, err := d.runs.GetExecution(t.Context(), &pb.GetExecutionRequest{ExecutionId: ids[1]})
	if err != nil || e.State != pb.ExecutionState_EXECUTION_STATE_ENDED || e.Principal != "uid:0" || e.SourceKind != pb.SourceKind_SOURCE_KIND_CODE || e.StartTime == nil || e.EndTime == nil || e.LastSequence == 0 {
		t.Errorf("get: %v, %v", e, err)
	}
	if e.ExpireTime.AsTime().Sub(e.EndTime.AsTime()) <= 0 || e.Request == nil || strings.Contains(e.String(), "sys.exit") {
		t.Errorf("expires at %v, request %v; want a time after the end, and no code", e.ExpireTime, e.Request)
	}
	_, err = d.runs.GetExecution(t.Context(), &pb.GetExecutionRequest{ExecutionId: "none"})
	wantStatus(t, err, "NotFound", "EXECUTION_NOT_FOUND")
}

// A deleted execution leaves no file in the daemon's state.
func TestDelete(t *testing.T) {
	t.Parallel()
	d := startShared(t)
	r := d.run(shell("calculator", "head -c 100000 /dev/zero; echo x >out.txt"))
	r.wantExit(t, 0)
	of := func() (found []string) {
		err := filepath.WalkDir(filepath.Join(d.dir, "state/record"), func(path string, _ fs.DirEntry, err error) error {
			if strings.Contains(path, r.id) {
				found = append(found, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if len(of()) == 0 {
		t.Fatal("the execution has no files")
	}
	if out, err := d.cli("delete", r.id).CombinedOutput(); err != nil || string(out) != r.id+" deleted\n" {
		t.Fatalf("got %v: %s", err, out)
	}
	if left := of(); len(left) > 0 {
		t.Errorf("left %v", left)
	}
	_, err := d.runs.GetExecution(t.Context(), &pb.GetExecutionRequest{ExecutionId: r.id})
	wantStatus(t, err, "NotFound", "EXECUTION_NOT_FOUND")
}

// A script can start a server and connect to it by address and by name.
func TestLoopbackIsUp(t *testing.T) {
	t.Parallel()
	d := startShared(t)
	r := d.run(code("calculator", `
import http.server, threading, urllib.request
s = http.server.HTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=s.serve_forever, daemon=True).start()
for host in ('127.0.0.1', 'localhost'):
    print(urllib.request.urlopen(f'http://{host}:{s.server_port}/SKILL.md').status)
`))
	r.wantExit(t, 0)
	r.wantStdout(t, "200\n200\n")
}
