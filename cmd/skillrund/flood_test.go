package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// withMemory starts a daemon with this limit of memory. The limit does not include its
// sandboxes, whose cgroups are next to the daemon's.
func withMemory(t *testing.T, dir, limit, extra string) *running {
	t.Helper()
	name := filepath.Base(dir)
	top, file := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	tops, err := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		top, file, tops = "/sys/fs/cgroup", "memory.max", []string{"/sys/fs/cgroup/cgroup.procs"}
	} else if _, err := os.Stat(filepath.Join(top, file)); err != nil {
		t.Skip("no memory controller to limit the daemon by")
	}
	newGroup := func(path string) {
		t.Helper()
		if err := os.Mkdir(path, 0o755); err != nil && !os.IsExist(err) { // a hierarchy may be mounted under two names
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
				t.Error(err)
			}
		})
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // cgroup v1 admits no process while these are empty, cpuset(7)
			if data, err := os.ReadFile(filepath.Join(filepath.Dir(path), file)); err == nil {
				os.WriteFile(filepath.Join(path, file), data, 0)
			}
		}
	}
	for _, path := range tops {
		newGroup(filepath.Join(filepath.Dir(path), name+"-boxes"))
	}
	group := filepath.Join(top, name)
	newGroup(group)
	if err := os.WriteFile(filepath.Join(group, file), []byte(limit), 0); err != nil {
		t.Fatal(err)
	}
	extra += "cgroup_parent: /" + name + "-boxes\n"
	d := launch(t, dir, extra, "/bin/sh", "-c", `echo $$ >"$0/cgroup.procs"; exec "$@"`, group)
	d.dial("unix://" + dir + "/s.sock")
	d.waitServing()
	return d
}

// A daemon with 128 MiB of memory survives a hundred concurrent requests of 4 MiB. It
// answers each of them, and other requests between them.
func TestFloodOfLargeRequests(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeHostileSkill(t, dir)
	// The first start unpacks the embedded Python, which would need as much memory again.
	startDaemonIn(t, dir, "").stop()
	d := withMemory(t, dir, "128M", "concurrency: {running: 2, queued: 200, queue_timeout: 60s}\n")
	t.Cleanup(d.stop)
	big := code("hostile", "import sys; print(len(sys.stdin.buffer.read()))")
	big.Stdin = &pb.ExecuteRequest_StdinBytes{StdinBytes: make([]byte, 4<<20)}
	var ran, refused atomic.Int64
	var flood sync.WaitGroup
	for range 10 {
		conn, err := grpc.NewClient("unix://"+dir+"/s.sock", grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		runs := executionClient{pb.NewExecutionServiceClient(conn)}
		for range 10 {
			flood.Go(func() {
				s, err := runs.Execute(t.Context(), big)
				var r *result
				if err == nil {
					r, err = collect(t, s, 0, nil)
				}
				switch {
				case err == nil && r.outcome.GetEnd() == pb.ExecutionEnd_EXECUTION_END_EXITED:
					ran.Add(1)
				case status.Code(err) == codes.Unavailable && hasRetryInfo(err):
					refused.Add(1)
				default:
					t.Errorf("got %v, %v; want it run, or refused with a time to wait", err, r)
				}
			})
		}
	}
	for range 20 {
		if _, err := healthpb.NewHealthClient(d.conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
			t.Errorf("health: %v", err)
		}
		if _, err := d.runs.ListExecutions(t.Context(), &pb.ListExecutionsRequest{PageSize: 10}); err != nil {
			t.Errorf("list: %v", err)
		}
	}
	d.works()
	flood.Wait()
	t.Logf("%d ran, %d were refused", ran.Load(), refused.Load())
	if ran.Load() == 0 || refused.Load() == 0 {
		t.Error("want some of both")
	}
	d.works()
	d.run(big).wantStdout(t, "4194304\n")
	// The largest possible request, with no other one at the same time.
	largest := code("hostile", "import sys; print(len(sys.stdin.buffer.read()))")
	largest.Stdin = &pb.ExecuteRequest_StdinBytes{StdinBytes: make([]byte, 16<<20-200)}
	// The bytes of the execution before count until a moment after its outcome.
	var r *result
	until(t, "the bytes of an ended execution still count", func() bool {
		var err error
		if r, err = d.try(largest); err != nil && !(status.Code(err) == codes.Unavailable && hasRetryInfo(err)) {
			t.Fatal(err)
		}
		return err == nil
	})
	r.wantStdout(t, "16777016\n")
	select {
	case err := <-d.exited:
		t.Fatal(errors.Join(errors.New("the daemon exited"), err))
	default:
	}
	if line := fmt.Sprintf("bytes=%d", 128<<20); !strings.Contains(d.log.String(), line) {
		t.Errorf("the log does not say %q", line)
	}
}
