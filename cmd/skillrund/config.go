package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/skillrun/skillrun/internal/environment"
	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/image"
	"github.com/skillrun/skillrun/internal/toolview"
	"github.com/skillrun/skillrun/sandbox"
)

// config is the daemon's configuration; docs/operating.md is its reference, and
// a test holds the two together.
type config struct {
	Listen struct {
		Unix     string   `yaml:"unix"`
		UnixMode fileMode `yaml:"unix_mode"`
		TCP      string   `yaml:"tcp"`
		MCPUnix  string   `yaml:"mcp_unix"`
		MCPTCP   string   `yaml:"mcp_tcp"`
	} `yaml:"listen"`
	StateDir string   `yaml:"state_dir"`
	RunDir   string   `yaml:"run_dir"`
	Skills   []string `yaml:"skills"`
	Network  string   `yaml:"network"`
	Shell    bool     `yaml:"shell"`
	Python   string   `yaml:"python"`
	// Images are root file systems by name, and Runtimes what runs in which.
	Images   map[string]imageConfig `yaml:"images"`
	Runtimes map[string]string      `yaml:"runtimes"`
	Pull     struct {
		WallTime duration `yaml:"wall_time"`
		Bytes    size     `yaml:"bytes"`
		Files    int      `yaml:"files"`
	} `yaml:"pull"`
	CgroupParent string `yaml:"cgroup_parent"`
	IDs          struct {
		First uint32 `yaml:"first"`
		Count uint32 `yaml:"count"`
	} `yaml:"ids"`
	Boundaries struct {
		AllowMissing []string `yaml:"allow_missing"`
	} `yaml:"boundaries"`
	Limits struct {
		Default         limits   `yaml:"default"`
		CommandWallTime duration `yaml:"command_wall_time"`
		Max             limits   `yaml:"max"`
	} `yaml:"limits"`
	Concurrency struct {
		Running      int      `yaml:"running"`
		Reserved     int      `yaml:"reserved"`
		Queued       int      `yaml:"queued"`
		QueueTimeout duration `yaml:"queue_timeout"`
	} `yaml:"concurrency"`
	Prepared struct {
		Mother       bool `yaml:"mother"`
		Sandboxes    int  `yaml:"sandboxes"`
		Interpreters int  `yaml:"interpreters"`
	} `yaml:"prepared"`
	Grace       duration `yaml:"grace"`
	CancelGrace duration `yaml:"cancel_grace"`
	Drain       duration `yaml:"drain"`
	Keepalive   duration `yaml:"keepalive"`
	Artifacts   struct {
		Files      int  `yaml:"files"`
		FileBytes  size `yaml:"file_bytes"`
		TotalBytes size `yaml:"total_bytes"`
	} `yaml:"artifacts"`
	Retention struct {
		Age   duration `yaml:"age"`
		Bytes size     `yaml:"bytes"`
	} `yaml:"retention"`
	Snapshots struct {
		Files int  `yaml:"files"`
		Bytes size `yaml:"bytes"`
	} `yaml:"snapshots"`
	Environments struct {
		Index    string   `yaml:"index"`
		Wheels   string   `yaml:"wheels"`
		Sdists   bool     `yaml:"sdists"`
		Bytes    size     `yaml:"bytes"`
		WallTime duration `yaml:"wall_time"`
		Memory   size     `yaml:"memory"`
	} `yaml:"environments"`
	MessageBytes size `yaml:"message_bytes"`
	RequestBytes size `yaml:"request_bytes"` // 0: by the memory there is
	Audit        struct {
		Arguments toolview.AuditArguments `yaml:"arguments"`
	} `yaml:"audit"`
	Log struct {
		Format string     `yaml:"format"`
		Level  slog.Level `yaml:"level"`
	} `yaml:"log"`
}

type limits struct {
	WallTime       duration `yaml:"wall_time"`
	CPUTime        duration `yaml:"cpu_time"`
	Memory         size     `yaml:"memory"`
	Processes      int      `yaml:"processes"`
	Output         size     `yaml:"output"`
	Workspace      size     `yaml:"workspace"`
	WorkspaceFiles int      `yaml:"workspace_files"`
	OpenFiles      int      `yaml:"open_files"`
	CPUs           cpus     `yaml:"cpus"` // 0: no limit
}

// mcpBeside is where MCP is served unless the config says otherwise: beside the
// socket for gRPC, and nowhere if there is none.
func mcpBeside(unix string) string {
	if unix == "" {
		return ""
	}
	return filepath.Join(filepath.Dir(unix), "mcp.sock")
}

// notSet tells a key that is missing from one that is empty: no path holds NUL.
const notSet = "\x00"

// maxPrepared bounds the sandboxes that wait ahead of requests: each has file
// descriptors and mounts.
const maxPrepared = 256

// mostRunning is how many executions at once are the default of the largest machine.
const mostRunning = 1000

// buildsAtOnce is how many sandboxes there are beside those of executions: one that
// installs packages, which is followed by one that compiles them.
const buildsAtOnce = 2

// minBuildMemory is what pip itself needs to build the smallest environment.
const minBuildMemory = 128 << 20

func defaultConfig() config {
	var c config
	c.Listen.Unix = "/run/skillrun/skillrun.sock"
	c.Listen.UnixMode = 0o660
	c.Listen.MCPUnix = mcpBeside(c.Listen.Unix)
	c.StateDir = "/var/lib/skillrun"
	c.RunDir = "/run/skillrun"
	c.Skills = []string{"/usr/share/skillrun/skills"}
	c.Network = "none"
	c.Python = "auto"
	c.Images = map[string]imageConfig{}
	c.Runtimes = map[string]string{defaultRuntime: hostRuntime}
	c.Pull.WallTime, c.Pull.Bytes, c.Pull.Files = duration(10*time.Minute), image.DefaultBytes, image.DefaultFiles
	c.IDs.First, c.IDs.Count = 1<<28, 65536
	c.Boundaries.AllowMissing = []string{}
	b := executor.StandardBounds()
	c.Limits.Default, c.Limits.Max = fromLimits(b.Default), fromLimits(b.Max)
	c.Limits.CommandWallTime = duration(b.CommandWall)
	c.Concurrency.Running = min(8*runtime.NumCPU(), mostRunning)
	c.Concurrency.Reserved = 2
	c.Concurrency.Queued = 1000
	c.Concurrency.QueueTimeout = duration(30 * time.Second)
	c.Prepared.Mother, c.Prepared.Sandboxes, c.Prepared.Interpreters = true, 8, 4
	c.Grace = duration(500 * time.Millisecond)
	c.CancelGrace = duration(2 * time.Second)
	c.Drain = duration(30 * time.Second)
	c.Keepalive = duration(15 * time.Second)
	c.Artifacts.Files, c.Artifacts.FileBytes, c.Artifacts.TotalBytes = 10_000, 256<<20, 512<<20
	c.Retention.Age, c.Retention.Bytes = duration(24*time.Hour), 10<<30
	c.Snapshots.Files, c.Snapshots.Bytes = 20_000, 1<<30
	c.Environments.Bytes, c.Environments.Memory = environment.DefaultBytes, environment.DefaultMemory
	c.Environments.WallTime = duration(environment.DefaultWall)
	c.MessageBytes = 16 << 20
	c.Audit.Arguments = toolview.AuditOff
	c.Log.Format, c.Log.Level = "text", slog.LevelInfo
	return c
}

// loadConfig reads the file at path over the defaults. An empty path is the
// defaults alone.
func loadConfig(path string) (config, error) {
	c := defaultConfig()
	if path == "" {
		return c, c.validate()
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return c, fmt.Errorf("config: %w", err)
	}
	c.Listen.MCPUnix = notSet
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return c, fmt.Errorf("config %s: %s", path, plainYAML(err))
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		return c, fmt.Errorf("config %s: more than one document", path)
	}
	if c.Listen.MCPUnix == notSet {
		c.Listen.MCPUnix = mcpBeside(c.Listen.Unix)
	}
	// Relative paths are relative to the file, wherever the daemon starts.
	dir, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return c, err
	}
	for _, p := range []*string{&c.StateDir, &c.RunDir, &c.Listen.Unix, &c.Listen.MCPUnix, &c.Environments.Wheels} {
		*p = absolute(dir, *p)
	}
	for i := range c.Skills {
		c.Skills[i] = absolute(dir, c.Skills[i])
	}
	if c.Runtimes[defaultRuntime] == "" { // "runtimes:" and nothing
		c.Runtimes = maps.Clone(c.Runtimes)
		if c.Runtimes == nil {
			c.Runtimes = map[string]string{}
		}
		c.Runtimes[defaultRuntime] = hostRuntime
	}
	for name, i := range c.Images {
		i.Rootfs = absolute(dir, i.Rootfs)
		c.Images[name] = i
	}
	if err := c.validate(); err != nil {
		return c, fmt.Errorf("config %s: %w", path, err)
	}
	return c, nil
}

func absolute(dir, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

var unknownField = regexp.MustCompile(`field (\S+) not found in type \S+`)

// plainYAML says the decoder's errors in the user's words: the line and the key.
func plainYAML(err error) string {
	s := strings.TrimPrefix(err.Error(), "yaml: ")
	s = strings.TrimPrefix(s, "unmarshal errors:\n")
	s = unknownField.ReplaceAllString(s, "unknown key $1")
	return strings.ReplaceAll(strings.TrimSpace(s), "\n  ", "; ")
}

func (c *config) validate() error {
	var errs []error
	bad := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf(key+": "+format, args...))
	}
	if c.Listen.Unix == "" && c.Listen.TCP == "" {
		bad("listen", "neither unix nor tcp is set; nobody could reach the daemon")
	}
	// sun_path holds 108 bytes with its NUL, unix(7).
	for key, path := range map[string]string{"listen.unix": c.Listen.Unix, "listen.mcp_unix": c.Listen.MCPUnix} {
		if len(path) > 107 {
			bad(key, "%d bytes; a socket's path has at most 107", len(path))
		}
	}
	if c.Listen.MCPUnix != "" && c.Listen.MCPUnix == c.Listen.Unix {
		bad("listen.mcp_unix", "the same as listen.unix; each needs a socket of its own")
	}
	for key, address := range map[string]string{"listen.tcp": c.Listen.TCP, "listen.mcp_tcp": c.Listen.MCPTCP} {
		if address == "" {
			continue
		}
		if err := loopback(address); err != nil {
			bad(key, "%v", err)
		}
	}
	switch {
	case c.Network != "none" && c.Network != "host":
		bad("network", "%q; must be none or host", c.Network)
	case c.Network == "host" && c.Listen.TCP != "":
		bad("network", "host gives scripts this machine's network, and listen.tcp asks for no credentials: a script could call the daemon itself. Remove one of the two")
	case c.Network == "host" && c.Listen.MCPTCP != "":
		bad("network", "host gives scripts this machine's network, and listen.mcp_tcp asks for no credentials: a script could call the daemon itself. Remove one of the two")
	}
	if c.Python != "auto" && c.Python != "system" && c.Python != "embedded" {
		bad("python", "%q; must be auto, system or embedded", c.Python)
	}
	c.checkImages(bad)
	if c.StateDir == "" {
		bad("state_dir", "empty")
	}
	if c.RunDir == "" {
		bad("run_dir", "empty")
	}
	if c.CgroupParent != "" && !filepath.IsAbs(c.CgroupParent) {
		bad("cgroup_parent", "%q; must be absolute, as in /proc/self/cgroup", c.CgroupParent)
	}
	if c.IDs.First < 65536 {
		bad("ids.first", "%d; accounts live below 65536", c.IDs.First)
	}
	if c.IDs.Count < 2 || uint64(c.IDs.First)+uint64(c.IDs.Count) > 1<<32-2 {
		bad("ids.count", "%d from %d; need at least 2, below 4294967294", c.IDs.Count, c.IDs.First)
	} else if need, room := c.sandboxesAtOnce(), uint64(max(0, sandbox.Room(c.IDs.Count))); need > room {
		key, which := "ids.count", fmt.Sprintf("%d are", c.IDs.Count)
		if most := uint64(sandbox.Room(1 << 31)); need > most {
			key, which, room = "concurrency.running", "all that a daemon takes are", most
		}
		bad(key, "%s ids for %d sandboxes; concurrency.running, concurrency.reserved, prepared.sandboxes and a build need %d", which, room, need)
	}
	lowerable := sandbox.Lowerable()
	for i, name := range c.Boundaries.AllowMissing {
		if !slices.Contains(lowerable, name) {
			bad("boundaries.allow_missing", "%q is none that can be missing: no boundary has that name, or no sandbox can be made without it; skillrund --doctor lists them", name)
		} else if slices.Contains(c.Boundaries.AllowMissing[:i], name) {
			bad("boundaries.allow_missing", "%q is there twice", name)
		}
	}
	positive := map[string]int64{
		"concurrency.running": int64(c.Concurrency.Running), "concurrency.queue_timeout": int64(c.Concurrency.QueueTimeout),
		"limits.command_wall_time": int64(c.Limits.CommandWallTime), "keepalive": int64(c.Keepalive), "drain": int64(c.Drain),
		"artifacts.files": int64(c.Artifacts.Files), "artifacts.file_bytes": int64(c.Artifacts.FileBytes), "artifacts.total_bytes": int64(c.Artifacts.TotalBytes),
		"retention.age": int64(c.Retention.Age), "retention.bytes": int64(c.Retention.Bytes),
		"environments.bytes": int64(c.Environments.Bytes), "environments.wall_time": int64(c.Environments.WallTime),
		"pull.wall_time": int64(c.Pull.WallTime), "pull.bytes": int64(c.Pull.Bytes), "pull.files": int64(c.Pull.Files),
		"snapshots.files": int64(c.Snapshots.Files), "snapshots.bytes": int64(c.Snapshots.Bytes),
	}
	for key, value := range positive {
		if value <= 0 {
			bad(key, "must be more than 0")
		}
	}
	if n := c.Prepared.Sandboxes; n < 0 || n > maxPrepared {
		bad("prepared.sandboxes", "must be 0 to %d", maxPrepared)
	}
	if n := c.Prepared.Interpreters; n < 0 || n > maxPrepared {
		bad("prepared.interpreters", "must be 0 to %d", maxPrepared)
	}
	if p := c.Prepared; !p.Mother && p.Sandboxes+p.Interpreters > 0 {
		bad("prepared.mother", "must be true, or prepared.sandboxes and prepared.interpreters 0: she makes both")
	}
	if c.Concurrency.Queued < 0 || c.Concurrency.Reserved < 0 || c.Grace < 0 || c.CancelGrace < 0 {
		bad("concurrency.queued, concurrency.reserved, grace, cancel_grace", "must not be negative")
	}
	if c.Environments.Index != "" {
		if _, err := environment.ParseIndex(c.Environments.Index); err != nil {
			bad("environments.index", "%v", err) // it may hold a password, so it is not shown
		}
	}
	if c.Environments.Memory < minBuildMemory {
		bad("environments.memory", "%d; at least %d", c.Environments.Memory, minBuildMemory)
	}
	if c.MessageBytes < 64<<10 || c.MessageBytes > 256<<20 {
		bad("message_bytes", "%d; must be between 64KiB and 256MiB", c.MessageBytes)
	}
	if c.RequestBytes != 0 && c.RequestBytes < c.MessageBytes {
		bad("request_bytes", "%d; must be 0, or at least message_bytes, %d", c.RequestBytes, c.MessageBytes)
	}
	switch c.Audit.Arguments {
	case toolview.AuditOff, toolview.AuditHash, toolview.AuditTruncated:
	default:
		bad("audit.arguments", "%q; must be off, hash or truncated", c.Audit.Arguments)
	}
	if c.Log.Format != "text" && c.Log.Format != "json" {
		bad("log.format", "%q; must be text or json", c.Log.Format)
	}
	errs = append(errs, c.Limits.Default.below(c.Limits.Max)...)
	if c.Limits.CommandWallTime > c.Limits.Max.WallTime {
		bad("limits.command_wall_time", "above limits.max.wall_time")
	}
	if c.Limits.Max.WallTime > duration(600*time.Second) {
		bad("limits.max.wall_time", "%s; at most 600s", time.Duration(c.Limits.Max.WallTime))
	}
	return errors.Join(errs...)
}

// sandboxesAtOnce is how many there can be. What is out of its range counts as well, and
// no sum is too large for the type.
func (c *config) sandboxesAtOnce() uint64 {
	sum := uint64(buildsAtOnce)
	for _, n := range []int{c.Concurrency.Running, c.Concurrency.Reserved, c.Prepared.Sandboxes} {
		sum += uint64(min(max(0, n), math.MaxUint32))
	}
	return sum
}

// below checks that every default is set and within its maximum.
func (l limits) below(most limits) []error {
	var errs []error
	for _, f := range []struct {
		key            string
		value, ceiling int64
		zero           bool
	}{
		{"wall_time", int64(l.WallTime), int64(most.WallTime), false},
		{"cpu_time", int64(l.CPUTime), int64(most.CPUTime), true},
		{"memory", int64(l.Memory), int64(most.Memory), false},
		{"processes", int64(l.Processes), int64(most.Processes), false},
		{"output", int64(l.Output), int64(most.Output), false},
		{"workspace", int64(l.Workspace), int64(most.Workspace), false},
		{"workspace_files", int64(l.WorkspaceFiles), int64(most.WorkspaceFiles), false},
		{"open_files", int64(l.OpenFiles), int64(most.OpenFiles), false},
	} {
		if f.ceiling <= 0 {
			errs = append(errs, fmt.Errorf("limits.max.%s: must be more than 0", f.key))
		}
		if f.value < 0 || (f.value == 0 && !f.zero) {
			errs = append(errs, fmt.Errorf("limits.default.%s: must be more than 0", f.key))
		}
		if f.value > f.ceiling {
			errs = append(errs, fmt.Errorf("limits.default.%s: above limits.max.%s", f.key, f.key))
		}
	}
	if most.CPUs > 0 && l.CPUs > most.CPUs {
		errs = append(errs, errors.New("limits.default.cpus: above limits.max.cpus"))
	}
	if l.Memory > 0 && l.Memory < executor.MinMemoryBytes {
		errs = append(errs, fmt.Errorf("limits.default.memory: below the least that can start, %d bytes", executor.MinMemoryBytes))
	}
	if l.OpenFiles > 0 && l.OpenFiles < executor.MinOpenFiles {
		errs = append(errs, fmt.Errorf("limits.default.open_files: below the least that can start, %d", executor.MinOpenFiles))
	}
	return errs
}

// loopback refuses an address that other machines could reach: whoever can
// connect over TCP is believed.
func loopback(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q is not a port", port)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("%q is reachable from outside and TCP asks for no credentials; use a loopback address such as 127.0.0.1", host)
	}
	return nil
}

func (c *config) sandbox(log *slog.Logger) sandbox.Config {
	return sandbox.Config{
		StateDir: filepath.Join(c.StateDir, "sandbox"), RunDir: c.RunDir, CgroupParent: c.CgroupParent,
		FirstID: c.IDs.First, IDs: c.IDs.Count, Mother: c.Prepared.Mother, Prepared: c.Prepared.Sandboxes, Interpreters: c.Prepared.Interpreters, Log: log,
		// The daemon starts, and says what is missing; judge decides what runs.
		Tolerate: sandbox.Lowerable(),
	}
}

func (c *config) bounds() executor.Bounds {
	return executor.Bounds{
		Default: c.Limits.Default.limits(), CommandWall: time.Duration(c.Limits.CommandWallTime), Max: c.Limits.Max.limits(),
	}
}

func (l limits) limits() executor.Limits {
	return executor.Limits{
		Wall: time.Duration(l.WallTime), CPU: time.Duration(l.CPUTime), MemoryBytes: int64(l.Memory), Processes: l.Processes,
		OutputBytes: int64(l.Output), WorkspaceBytes: int64(l.Workspace), WorkspaceFiles: l.WorkspaceFiles, OpenFiles: l.OpenFiles,
		MilliCPUs: int(l.CPUs),
	}
}

func fromLimits(l executor.Limits) limits {
	return limits{
		WallTime: duration(l.Wall), CPUTime: duration(l.CPU), Memory: size(l.MemoryBytes), Processes: l.Processes,
		Output: size(l.OutputBytes), Workspace: size(l.WorkspaceBytes), WorkspaceFiles: l.WorkspaceFiles, OpenFiles: l.OpenFiles,
		CPUs: cpus(l.MilliCPUs),
	}
}
