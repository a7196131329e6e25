package executor

import (
	"cmp"
	"fmt"
	"time"

	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/skill/manifest"
	"github.com/skillrun/skillrun/internal/tenant"
)

// Bounds are a tenant's limits on executions: the defaults and the maxima.
type Bounds = tenant.Bounds

// MinMemoryBytes is the least memory that an execution may ask for. The sandbox
// itself and a small program need it. With less memory, the start would fail, or
// the program soon after.
const MinMemoryBytes = manifest.MinMemoryBytes

// MinOpenFiles is the least number of open files that a request may ask for: the
// start of a program needs some files itself.
const MinOpenFiles = 32

// MinMilliCPUs and MaxMilliCPUs bound the processors that a request may ask for, in
// thousandths. The kernel can't give less than a hundredth of a processor. A limit of more than
// a thousand processors bounds nothing.
const (
	MinMilliCPUs = 10
	MaxMilliCPUs = 1_000_000
)

// StandardBounds are the documented defaults, for a configuration without bounds.
func StandardBounds() Bounds {
	return Bounds{
		Default: Limits{
			Wall: 30 * time.Second, MemoryBytes: 512 << 20, Processes: 64, OutputBytes: 10 << 20,
			WorkspaceBytes: 256 << 20, WorkspaceFiles: 10_000, OpenFiles: 1024,
		},
		CommandWall: 300 * time.Second,
		Max: Limits{
			Wall: 600 * time.Second, CPU: 2400 * time.Second, MemoryBytes: 4 << 30, Processes: 1024,
			OutputBytes: 1 << 30, WorkspaceBytes: 4 << 30, WorkspaceFiles: 1_000_000, OpenFiles: 65_536,
		},
	}
}

// effective derives the limits in force: the request's value, else the skill's, else the
// tenant's default. A request above a ceiling is an error; a derived value is lowered to the
// ceiling.
func effective(b Bounds, asked Limits, kind permission.SourceKind, m manifest.Manifest) (Limits, error) {
	def, setBy := b.Default, cmp.Or(b.SetBy, "daemon")
	if kind == permission.Command {
		def.Wall = b.CommandWall
	}
	var out Limits
	wall, err := pick("limits.wall_time", setBy, asked.Wall, m.MaxExecutionTime, def.Wall, b.Max.Wall)
	if err != nil {
		return out, err
	}
	memory, err := pick("limits.memory_bytes", setBy, byteCount(asked.MemoryBytes), byteCount(m.MaxMemoryBytes), byteCount(def.MemoryBytes), byteCount(b.Max.MemoryBytes))
	if err != nil {
		return out, err
	}
	if memory < MinMemoryBytes {
		return out, &LimitError{Field: "limits.memory_bytes", Asked: memory.String(), Ceiling: byteCount(MinMemoryBytes).String(), TooSmall: true}
	}
	cpu, err := pick("limits.cpu_time", setBy, asked.CPU, 0, def.CPU, b.Max.CPU)
	if err != nil {
		return out, err
	}
	output, err := pick("limits.output_bytes", setBy, byteCount(asked.OutputBytes), 0, byteCount(def.OutputBytes), byteCount(b.Max.OutputBytes))
	if err != nil {
		return out, err
	}
	space, err := pick("limits.workspace_bytes", setBy, byteCount(asked.WorkspaceBytes), 0, byteCount(def.WorkspaceBytes), byteCount(b.Max.WorkspaceBytes))
	if err != nil {
		return out, err
	}
	processes, err := pick("limits.processes", setBy, count(asked.Processes), 0, count(def.Processes), count(b.Max.Processes))
	if err != nil {
		return out, err
	}
	files, err := pick("limits.workspace_files", setBy, count(asked.WorkspaceFiles), 0, count(def.WorkspaceFiles), count(b.Max.WorkspaceFiles))
	if err != nil {
		return out, err
	}
	open, err := pick("limits.open_files", setBy, count(asked.OpenFiles), 0, count(def.OpenFiles), count(b.Max.OpenFiles))
	if err != nil {
		return out, err
	}
	if open < MinOpenFiles {
		return out, &LimitError{Field: "limits.open_files", Asked: open.String(), Ceiling: count(MinOpenFiles).String(), TooSmall: true}
	}
	processors, err := processors(b, asked.MilliCPUs)
	if err != nil {
		return out, err
	}
	return Limits{
		MilliCPUs: processors,
		Wall:      wall, CPU: cpu, MemoryBytes: int64(memory), Processes: int(processes), OutputBytes: int64(output),
		WorkspaceBytes: int64(space), WorkspaceFiles: int(files), OpenFiles: int(open),
	}, nil
}

// processors chooses the only limit that may be unset. If the daemon has no ceiling, the request's
// value applies, else the daemon's default, else no limit.
func processors(b Bounds, asked int) (int, error) {
	const field = "limits.milli_cpus"
	ceiling := b.Max.MilliCPUs
	if ceiling == 0 {
		ceiling = MaxMilliCPUs
	}
	def := b.Default.MilliCPUs
	if def == 0 {
		def = b.Max.MilliCPUs
	}
	n, err := pick(field, cmp.Or(b.SetBy, "daemon"), count(asked), 0, count(def), count(ceiling))
	if err == nil && asked > 0 && asked < MinMilliCPUs {
		err = &LimitError{Field: field, Asked: count(asked).String(), Ceiling: count(MinMilliCPUs).String(), TooSmall: true}
	}
	return int(n), err
}

// pick chooses one limit: asked is the request's value, own the skill's, def and most the
// default and maximum of setBy. Zero means unset for asked and own. A skill can lower the
// ceiling, and never raise it.
func pick[T interface {
	~int | ~int64
	fmt.Stringer
}](field, setBy string, asked, own, def, most T) (T, error) {
	ceiling := most
	if own > 0 && own < ceiling {
		ceiling, setBy = own, "skill"
	}
	switch {
	case asked < 0:
		return 0, &RequestError{field, "negative; leave it out to get the default"}
	case asked > ceiling:
		return 0, &LimitError{Field: field, Asked: asked.String(), Ceiling: ceiling.String(), SetBy: setBy}
	case asked > 0:
		return asked, nil
	case own > 0:
		return ceiling, nil
	}
	return min(def, ceiling), nil
}

// byteCount and count print a limit in an error, with its unit. pick needs types with a String
// method; the fields of Limits are plain numbers.
type byteCount int64

func (b byteCount) String() string { return fmt.Sprintf("%d bytes", int64(b)) }

type count int

func (c count) String() string { return fmt.Sprint(int(c)) }
