// Package failpoint names the moments in the life of an execution at which tests kill the daemon. Only
// builds with the tag skillrun_faults can be killed there (make test-faults).
package failpoint

// KillVar is the environment variable that names the point at which the daemon dies, and how often it passes
// the point before: "before claim:3" is the fourth time.
const KillVar = "SKILLRUN_KILL_AT"

// A Point is a moment in the life of an execution.
type Point string

// The points, in the order in which an execution passes them.
const (
	BeforeClaim   Point = "before claim"   // the request is checked; nothing has it on disk
	AfterClaim    Point = "after claim"    // the record has the execution and its key; the caller knows nothing yet
	BeforeCreate  Point = "before create"  // it has its slot, and no sandbox
	BeforeStart   Point = "before start"   // its sandbox has limits and mounts, but no program
	AfterStart    Point = "after start"    // the program runs; the record may not say so yet
	DuringOutput  Point = "during output"  // the record has a part of the output
	DuringCollect Point = "during collect" // the artifacts are kept, and no row names them
	BeforeVersion Point = "before version" // the session has the new files, and no version names them
	AfterVersion  Point = "after version"  // the version is durable, and no outcome names it
	BeforeTidy    Point = "before tidy"    // the session's tree is of the new version; old versions are still to be removed
	BeforeOutcome Point = "before outcome" // all processes have ended; the record does not say so yet
	AfterOutcome  Point = "after outcome"  // the record has the outcome; the sandbox is still to be removed
)

// The points of a takeover.
const (
	DuringHandOver Point = "during hand-over" // the earlier daemon has handed over, and the next one does not know
	BeforeServing  Point = "before serving"   // the next daemon has opened everything, and accepts nothing yet
	DuringServing  Point = "during serving"   // the next daemon serves, and the earlier one does not know
	AfterServing   Point = "after serving"    // the next daemon serves, and the earlier one knows
)

// Points are all points.
func Points() []Point {
	return []Point{BeforeClaim, AfterClaim, BeforeCreate, BeforeStart, AfterStart, DuringOutput, DuringCollect, BeforeVersion, AfterVersion, BeforeTidy, BeforeOutcome, AfterOutcome}
}
