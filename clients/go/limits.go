package skillrun

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// Limits bound one execution. A zero field is derived from the skill, the tenant
// and the daemon; a value above one of their ceilings is refused.
type Limits struct {
	WallTime       time.Duration // from the start of the program, at most 600 s
	CPUTime        time.Duration // of all processes together
	MemoryBytes    uint64        // of all processes, with page cache and tmpfs
	Processes      uint32        // processes and threads at once
	OutputBytes    uint64        // delivered of each of stdout and stderr
	WorkspaceBytes uint64        // written to /workspace
	WorkspaceFiles uint32        // files and directories made there
	OpenFiles      uint32        // of each process
	MilliCPUs      uint32        // thousandths of a processor, of all processes together; 500 is half of one
}

func (l Limits) message() *pb.Limits {
	if l == (Limits{}) {
		return nil
	}
	return &pb.Limits{
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

// duration leaves zero unset. A negative value goes to the daemon, which refuses
// it with its reason.
func duration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}
