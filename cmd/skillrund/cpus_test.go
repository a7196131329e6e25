package main

import (
	"os/exec"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// The header has the number of processors that a request asked for. A request above the
// maximum is refused, and a request that asks for none gets the maximum.
func TestProcessorsOfAnExecution(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeHostileSkill(t, dir)
	d := startDaemonIn(t, dir, "limits: {max: {cpus: 1.5}}\n")
	out, err := exec.Command(binary(t, "skillrun"), "--address", "unix://"+dir+"/s.sock", "run", "--json", "--cpus", "0.5", "hostile", "-c", "print(1)").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), `"milli_cpus":500`) && !strings.Contains(string(out), `"milliCpus":500`) {
		t.Errorf("the header does not say 500:\n%s", out)
	}
	req := code("hostile", "print(1)")
	if got := d.run(req).header.Limits.MilliCpus; got != 1500 {
		t.Errorf("who does not ask gets %d, want 1500", got)
	}
	req.Limits = &pb.ExecutionLimits{MilliCpus: 1501}
	_, err = d.try(req)
	wantCode(t, "above the ceiling", err, codes.InvalidArgument)
}
