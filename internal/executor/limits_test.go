package executor

import (
	"errors"
	"testing"
	"time"

	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/skill/manifest"
)

func TestEffectiveLimits(t *testing.T) {
	b := StandardBounds()
	for _, tt := range []struct {
		name     string
		asked    Limits
		kind     permission.SourceKind
		manifest manifest.Manifest
		want     func(*Limits)
	}{
		{"defaults of a script", Limits{}, permission.Script, manifest.Manifest{}, func(*Limits) {}},
		{"defaults of code", Limits{}, permission.Code, manifest.Manifest{}, func(*Limits) {}},
		{"defaults of a command", Limits{}, permission.Command, manifest.Manifest{}, func(l *Limits) { l.Wall = 300 * time.Second }},
		{"the skill's own are its defaults", Limits{}, permission.Script,
			manifest.Manifest{MaxExecutionTime: 120 * time.Second, MaxMemoryBytes: 1 << 30},
			func(l *Limits) { l.Wall, l.MemoryBytes = 120*time.Second, 1<<30 }},
		{"the skill's own lower a command's default", Limits{}, permission.Command,
			manifest.Manifest{MaxExecutionTime: 60 * time.Second}, func(l *Limits) { l.Wall = 60 * time.Second }},
		{"the skill's own above the daemon's are lowered", Limits{}, permission.Script,
			manifest.Manifest{MaxMemoryBytes: 1 << 40}, func(l *Limits) { l.MemoryBytes = b.Max.MemoryBytes }},
		{"what is asked", Limits{Wall: 100 * time.Millisecond, CPU: time.Second, MemoryBytes: 64 << 20, Processes: 3, OutputBytes: 100, WorkspaceBytes: 1 << 20, WorkspaceFiles: 5, OpenFiles: 32, MilliCPUs: 10},
			permission.Script, manifest.Manifest{}, func(l *Limits) {
				*l = Limits{Wall: 100 * time.Millisecond, CPU: time.Second, MemoryBytes: 64 << 20, Processes: 3, OutputBytes: 100, WorkspaceBytes: 1 << 20, WorkspaceFiles: 5, OpenFiles: 32, MilliCPUs: 10}
			}},
		{"the ceiling itself", Limits{Wall: 600 * time.Second}, permission.Script, manifest.Manifest{}, func(l *Limits) { l.Wall = 600 * time.Second }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := b.Default
			tt.want(&want)
			got, err := effective(b, tt.asked, tt.kind, tt.manifest)
			if err != nil || got != want {
				t.Errorf("got %+v, %v\nwant %+v", got, err, want)
			}
		})
	}
}

func TestEffectiveLimitsRefuses(t *testing.T) {
	b := StandardBounds()
	own := manifest.Manifest{MaxExecutionTime: 60 * time.Second, MaxMemoryBytes: 256 << 20}
	for _, tt := range []struct {
		name     string
		asked    Limits
		manifest manifest.Manifest
		field    string
		setBy    string
	}{
		{"601 s", Limits{Wall: 601 * time.Second}, manifest.Manifest{}, "limits.wall_time", "daemon"},
		{"above the skill's time", Limits{Wall: 61 * time.Second}, own, "limits.wall_time", "skill"},
		{"above the skill's memory", Limits{MemoryBytes: 257 << 20}, own, "limits.memory_bytes", "skill"},
		{"memory", Limits{MemoryBytes: 1 << 62}, manifest.Manifest{}, "limits.memory_bytes", "daemon"},
		{"cpu", Limits{CPU: 1 << 62}, manifest.Manifest{}, "limits.cpu_time", "daemon"},
		{"processes", Limits{Processes: 1025}, manifest.Manifest{}, "limits.processes", "daemon"},
		{"output", Limits{OutputBytes: 2 << 30}, manifest.Manifest{}, "limits.output_bytes", "daemon"},
		{"workspace", Limits{WorkspaceBytes: 5 << 30}, manifest.Manifest{}, "limits.workspace_bytes", "daemon"},
		{"files", Limits{WorkspaceFiles: 1_000_001}, manifest.Manifest{}, "limits.workspace_files", "daemon"},
		{"processors", Limits{MilliCPUs: MaxMilliCPUs + 1}, manifest.Manifest{}, "limits.milli_cpus", "daemon"},
		{"open files", Limits{OpenFiles: 65_537}, manifest.Manifest{}, "limits.open_files", "daemon"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := effective(b, tt.asked, permission.Script, tt.manifest)
			var over *LimitError
			if !errors.As(err, &over) || over.Field != tt.field || over.SetBy != tt.setBy {
				t.Errorf("got %v, want a LimitError on %s set by the %s", err, tt.field, tt.setBy)
			}
		})
	}
	t.Run("less memory than can start", func(t *testing.T) {
		_, err := effective(b, Limits{MemoryBytes: 1 << 20}, permission.Script, manifest.Manifest{})
		var under *LimitError
		if !errors.As(err, &under) || !under.TooSmall {
			t.Errorf("got %v, want a LimitError that says too small", err)
		}
	})
	t.Run("negative", func(t *testing.T) {
		_, err := effective(b, Limits{Wall: -1}, permission.Script, manifest.Manifest{})
		var bad *RequestError
		if !errors.As(err, &bad) || bad.Field != "limits.wall_time" {
			t.Errorf("got %v, want a RequestError on limits.wall_time", err)
		}
	})
}

// An execution may have no limit of processors. A daemon's ceiling is also its default.
func TestEffectiveProcessors(t *testing.T) {
	for _, tt := range []struct {
		asked, def, most, want int
		refused                bool
	}{
		{0, 0, 0, 0, false},
		{500, 0, 0, 500, false},
		{0, 250, 0, 250, false},
		{500, 250, 0, 500, false},
		{0, 0, 1500, 1500, false},
		{0, 250, 1500, 250, false},
		{1500, 250, 1500, 1500, false},
		{1501, 250, 1500, 0, true},
		{9, 0, 0, 0, true},
		{10, 0, 0, 10, false},
	} {
		b := StandardBounds()
		b.Default.MilliCPUs, b.Max.MilliCPUs = tt.def, tt.most
		got, err := effective(b, Limits{MilliCPUs: tt.asked}, permission.Script, manifest.Manifest{})
		var limit *LimitError
		if tt.refused {
			if !errors.As(err, &limit) || limit.Field != "limits.milli_cpus" {
				t.Errorf("%+v: got %v, want a LimitError on limits.milli_cpus", tt, err)
			}
		} else if err != nil || got.MilliCPUs != tt.want {
			t.Errorf("%+v: got %d, %v", tt, got.MilliCPUs, err)
		}
	}
}
