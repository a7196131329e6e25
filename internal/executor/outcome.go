package executor

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/skillrun/skillrun/internal/network/policy"
)

// End says how an execution ended.
type End string

const (
	Exited      End = "EXITED"       // the program returned an exit code
	Signaled    End = "SIGNALED"     // a signal that the daemon did not send
	TimedOut    End = "TIMED_OUT"    // wall, CPU or queue
	OOMKilled   End = "OOM_KILLED"   // its memory limit was reached
	Cancelled   End = "CANCELLED"    // by a client, a lost connection or a drain
	DaemonLost  End = "DAEMON_LOST"  // the daemon died while it ran or waited
	SetupFailed End = "SETUP_FAILED" // no program ran
)

// Ends lists every End.
var Ends = []End{Exited, Signaled, TimedOut, OOMKilled, Cancelled, DaemonLost, SetupFailed}

// TimeoutCode is the exit code of an execution that timed out, as timeout(1) has it. It has
// this code after a wait in the queue too.
const TimeoutCode = 124

// An Outcome is the end of an execution with the evidence for it. The record has it as JSON, and
// a daemon reads outcomes that an earlier version has written: see Header.
type Outcome struct {
	End      End    `json:"end"`
	ExitCode *int   `json:"exit_code,omitempty"` // nil: no program ran, or its end is not known
	Signal   string `json:"signal,omitempty"`    // "SIGKILL"
	// Also true for a wait in the queue. A program that itself exits with 124 does not set it.
	TimedOut    bool       `json:"timed_out,omitempty"`
	Evidence    Evidence   `json:"evidence"`
	Usage       Usage      `json:"usage"`
	Stdout      Truncation `json:"stdout"`
	Stderr      Truncation `json:"stderr"`
	Artifacts   []Artifact `json:"-"` // the first ones; the record has all
	Count       int        `json:"artifact_count"`
	Refused     []string   `json:"artifacts_refused,omitempty"`
	SkillDigest string     `json:"skill_digest"`
	Limits      Limits     `json:"limits"`
	// Session is nil without a session.
	Session *SessionOutcome `json:"session,omitempty"`
	// SessionChanges are the first of the files that the commit to the session has changed, as far as
	// maxSessionChanges and maxSessionChangeBytes allow.
	SessionChanges []SessionChange `json:"session_changes,omitempty"`
	Advice         string          `json:"advice,omitempty"`
	// Learned is nil if the execution did not learn.
	Learned *Learned `json:"learned,omitempty"`
}

// An outcome lists at most so many artifacts, with paths of so many bytes together,
// that its message stays within what clients take; the rest is paged.
const (
	MaxListedArtifacts = 1000
	maxListedBytes     = 1 << 20
)

// maxRefusedBytes bounds one line about a file that is not an artifact.
const maxRefusedBytes = 300

// Deadline names a deadline. Evidence has one exactly if the end is TimedOut.
type Deadline string

const (
	WallDeadline  Deadline = "WALL"
	CPUDeadline   Deadline = "CPU"
	QueueDeadline Deadline = "QUEUE"
)

// OOMScope says whose memory ran out. Evidence has one exactly if the kernel killed processes for
// memory.
type OOMScope string

const (
	OwnMemory     OOMScope = "EXECUTION" // the execution's own, limits.memory_bytes
	TenantMemory  OOMScope = "TENANT"    // of all executions of the tenant together
	MachineMemory OOMScope = "MACHINE"   // of the machine, or of a cgroup above all sandboxes
)

// Evidence holds the observations of the kernel and the daemon that explain an end.
type Evidence struct {
	// OOMKills counts processes of the sandbox that the kernel killed for memory; a program can
	// survive the kill of a child.
	OOMKills     uint64   `json:"oom_kills,omitempty"`
	OOMScope     OOMScope `json:"oom_scope,omitempty"`
	PidsMax      uint64   `json:"pids_max,omitempty"`       // refused forks
	PidsOfTenant bool     `json:"pids_of_tenant,omitempty"` // the tenant's limit refused them, not the execution's
	Deadline     Deadline `json:"deadline,omitempty"`
	CancelledBy  string   `json:"cancelled_by,omitempty"`
	CancelReason string   `json:"cancel_reason,omitempty"`
	// Only with SetupFailed. SetupError is the caller's part of the cause, else
	// internalSetupError.
	SetupStep  string `json:"setup_step,omitempty"`
	SetupError string `json:"setup_error,omitempty"`
	// NetworkDenied counts the lookups and connections that the rules refused. A refusal does not end the
	// program, which may handle the error.
	NetworkDenied int64 `json:"network_denied,omitempty"`
}

// Usage measures the resources of one execution: the processor time of all its processes, and
// Wall from the start of the program to the end of the last process. Durations are in
// nanoseconds in JSON. MemoryPeakBytes includes the page cache and tmpfs files of the sandbox.
type Usage struct {
	UserCPU         time.Duration `json:"user_cpu"`
	SystemCPU       time.Duration `json:"system_cpu"`
	MemoryPeakBytes int64         `json:"memory_peak_bytes"`
	Wall            time.Duration `json:"wall"`
	// Queue is the wait for a slot. Setup is the time that the sandbox's start took.
	Queue time.Duration `json:"queue"`
	Setup time.Duration `json:"setup"`
	// Network is nil if the execution had none.
	Network *NetworkUsage `json:"network,omitempty"`
}

// NetworkUsage measures the network of one execution. Bytes are the program's data without headers of packets.
type NetworkUsage struct {
	Count    int64 `json:"count"` // connections, and exchanges of UDP packets with one address and port
	Sent     int64 `json:"sent"`
	Received int64 `json:"received"`
	// Incomplete: a helper died, so the connections that it carried then are in no number and no list.
	Incomplete bool `json:"incomplete,omitempty"`
	// Connections are the first that ended, at most MaxListedConnections.
	Connections []policy.Connection `json:"connections,omitempty"`
	// Denials are the first refusals, at most maxListedDenials.
	Denials []policy.Denial `json:"denials,omitempty"`
}

// Truncation says how much of a stream was kept.
type Truncation struct {
	DeliveredBytes int64 `json:"delivered_bytes"`
	TotalBytes     int64 `json:"total_bytes"`
}

// Truncated reports whether the program printed more than was delivered.
func (t Truncation) Truncated() bool { return t.TotalBytes > t.DeliveredBytes }

// An Artifact is a regular file that the program left in its workspace.
type Artifact struct {
	Path       string `json:"path"`          // valid UTF-8
	Raw        []byte `json:"raw,omitempty"` // the exact name, if Path is not
	SizeBytes  int64  `json:"size_bytes"`
	SHA256     string `json:"sha256"`
	Executable bool   `json:"executable,omitempty"`
}

// newArtifact keeps the exact name and a readable form of it.
func newArtifact(path string, size int64, sha256 string, executable bool) Artifact {
	a := Artifact{Path: path, SizeBytes: size, SHA256: sha256, Executable: executable}
	if !utf8.ValidString(path) {
		a.Path, a.Raw = strings.ToValidUTF8(path, "\uFFFD"), []byte(path)
	}
	return a
}
