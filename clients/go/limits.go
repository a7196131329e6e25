package skillrun

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// Limits of one execution. A zero field means the value of the skill, the tenant or the
// daemon. A value above one of their ceilings is refused.
type Limits struct {
	WallTime       time.Duration // from the start of the program, at most 600 s
	CPUTime        time.Duration // of all processes together
	MemoryBytes    uint64        // of all processes, with page cache and tmpfs
	Processes      uint32        // processes and threads at the same time, besides the program itself
	OutputBytes    uint64        // bytes delivered of stdout and of stderr, each
	WorkspaceBytes uint64        // bytes written to /workspace
	WorkspaceFiles uint32        // files and directories created there
	OpenFiles      uint32        // of each process
	MilliCPUs      uint32        // thousandths of a processor, for all processes together; 500 is half a processor
}

// message returns nil if no limit is set, so that the request stays small.
func (l Limits) message() *pb.ExecutionLimits {
	if l == (Limits{}) {
		return nil
	}
	return &pb.ExecutionLimits{
		WallTime:       duration(l.WallTime),
		CpuTime:        duration(l.CPUTime),
		MemoryBytes:    l.MemoryBytes,
		Processes:      l.Processes,
		OutputBytes:    l.OutputBytes,
		WorkspaceBytes: l.WorkspaceBytes,
		WorkspaceFiles: l.WorkspaceFiles,
		OpenFiles:      l.OpenFiles,
		MilliCpus:      l.MilliCPUs,
	}
}

// duration leaves zero unset. It passes on a negative value, which the daemon refuses with
// a reason.
func duration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}
