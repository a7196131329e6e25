package main

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/skillrun/skillrun/internal/environment"
	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/image"
	"github.com/skillrun/skillrun/internal/ingress"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/toolview"
	"github.com/skillrun/skillrun/sandbox"
)

// config is the daemon's configuration. deploy/skillrund.yaml documents each key with its
// default, and a test compares the two. The units are in the types: duration, size (bytes),
// cpus (thousandths), see units.go.
//
// The life of a value: defaultConfig, then the file over it (decode), then resolve for the
// values that follow from others, then validate.
type config struct {
	// An empty address: the daemon does not listen there.
	Listen struct {
		Unix     string   `yaml:"unix"`
		UnixMode fileMode `yaml:"unix_mode"`
		// The group of both Unix sockets, a name or a number. Empty: the daemon's own.
		UnixGroup string `yaml:"unix_group"`
		TCP       string `yaml:"tcp"`
		MCPUnix   string `yaml:"mcp_unix"`
		MCPTCP    string `yaml:"mcp_tcp"`
		// On the listeners of MCP.
		SkillsIndex bool `yaml:"skills_index"`
		// For Prometheus. The listener only gives numbers; no request changes anything.
		MetricsTCP string `yaml:"metrics_tcp"`
		// PEM files, for all TCP listeners. Both are set, or both are empty.
		TLS struct {
			Certificate string `yaml:"certificate"`
			Key         string `yaml:"key"`
		} `yaml:"tls"`
		// Of each listener; PeerConnections of one user or address in one tenant.
		Connections     int `yaml:"connections"`
		PeerConnections int `yaml:"peer_connections"`
		// Insecure allows TCP without TLS on an address that other machines reach.
		Insecure bool `yaml:"insecure"`
	} `yaml:"listen"`
	Identity identityConfig `yaml:"identity"`
	// Without tenants, all callers share the quotas of this file.
	Tenants map[string]tenantConfig `yaml:"tenants"`
	// A directory with one file NAME.yaml for each tenant.
	TenantsDir string `yaml:"tenants_dir"`
	// A directory with a directory NAME for the secrets of each tenant that has a file in TenantsDir.
	SecretsDir string `yaml:"secrets_dir"`
	// Only one daemon at a time uses StateDir (lockState). RunDir has mount points only.
	StateDir string        `yaml:"state_dir"`
	RunDir   string        `yaml:"run_dir"`
	Skills   []skillRoot   `yaml:"skills"`
	Network  networkConfig `yaml:"network"`
	// The name servers that helpers ask, as addresses with or without a port. Empty: the servers in /etc/resolv.conf.
	NetworkResolvers []string `yaml:"network_resolvers"`
	// Addresses that lead to this machine although no interface has them, for example by NAT.
	NetworkOwnAddresses []string      `yaml:"network_own_addresses"`
	NetworkLimits       networkLimits `yaml:"network_limits"`
	NetworkProxy        proxyConfig   `yaml:"network_proxy"`
	Shell               bool          `yaml:"shell"`
	// The programs that command lines of skills without allowed-tools may run.
	WithoutAllowedTools commandRules `yaml:"without_allowed_tools"`
	Python              string       `yaml:"python"`
	Packages            string       `yaml:"packages"`
	// Images maps names to root file systems. Runtimes maps languages to these names.
	Images   map[string]imageConfig `yaml:"images"`
	Runtimes map[string]string      `yaml:"runtimes"`
	// Limits on pulling images at a start. WallTime is for all images together, the others are for each
	// image.
	Pull struct {
		WallTime duration `yaml:"wall_time"`
		Bytes    size     `yaml:"bytes"`
		Files    int      `yaml:"files"`
	} `yaml:"pull"`
	// As /proc/self/cgroup spells paths. Empty: the daemon's own cgroup.
	CgroupParent string `yaml:"cgroup_parent"`
	// A range of user and group ids of this machine. See checkIDs for its size.
	IDs struct {
		First uint32 `yaml:"first"`
		Count uint32 `yaml:"count"`
		// Of the processes that carry packets; 0: the id after the range.
		Network uint32 `yaml:"network"`
	} `yaml:"ids"`
	// Names of boundaries, as --doctor prints them.
	Boundaries struct {
		AllowMissing []string `yaml:"allow_missing"`
	} `yaml:"boundaries"`
	// A request gets Default if neither the request nor the skill sets a limit. It never gets more than
	// Max.
	// CommandWallTime is the default wall time of command lines.
	Limits struct {
		Default         limits   `yaml:"default"`
		CommandWallTime duration `yaml:"command_wall_time"`
		Max             limits   `yaml:"max"`
	} `yaml:"limits"`
	// Numbers of executions. Reserved slots are in addition to Running, for callers that run
	// nothing. Memory and CPUs bound the sums of the limits of running executions; 0: no bound.
	Concurrency struct {
		Memory       size     `yaml:"memory"`
		CPUs         cpus     `yaml:"cpus"`
		Running      int      `yaml:"running"`
		Reserved     int      `yaml:"reserved"`
		Queued       int      `yaml:"queued"`
		QueueTimeout duration `yaml:"queue_timeout"`
	} `yaml:"concurrency"`
	// The numbers of prewarmed sandboxes and Python zygotes, and the way to make sandboxes.
	Prepared struct {
		Zygote         bool `yaml:"zygote"`
		Sandboxes      int  `yaml:"sandboxes"`
		PythonZygotes  int  `yaml:"python_zygotes"`
		TenantZygotes  int  `yaml:"tenant_zygotes"`
		PythonFastExit bool `yaml:"python_fast_exit"`
	} `yaml:"prepared"`
	// Grace and CancelGrace are the time between SIGTERM and SIGKILL; Drain limits the end of the
	// daemon; Keepalive is the longest silence on a stream.
	Grace       duration `yaml:"grace"`
	CancelGrace duration `yaml:"cancel_grace"`
	Drain       duration `yaml:"drain"`
	Keepalive   duration `yaml:"keepalive"`
	// For one execution; FileBytes for one file of it.
	Artifacts struct {
		Files      int  `yaml:"files"`
		FileBytes  size `yaml:"file_bytes"`
		TotalBytes size `yaml:"total_bytes"`
	} `yaml:"artifacts"`
	// For all ended executions together. The oldest go first.
	Retention struct {
		Age   duration `yaml:"age"`
		Bytes size     `yaml:"bytes"`
	} `yaml:"retention"`
	// Files and Bytes are for one skill; a larger one is not loaded. The others are about the skills that
	// each tenant pushes: PushedBytes is for all kept versions together, PushedVersions for the kept
	// versions of one skill, Sources are patterns of hosts.
	Snapshots struct {
		Files          int      `yaml:"files"`
		Bytes          size     `yaml:"bytes"`
		PushedBytes    size     `yaml:"pushed_bytes"`
		PushedVersions int      `yaml:"pushed_versions"`
		Sources        []string `yaml:"sources"`
	} `yaml:"snapshots"`
	// Count and TotalBytes are the defaults of quotas of tenants. Bytes and Files are for one version of a
	// session, Versions are kept of each. IdleTTL is the default, TTL the default and the maximum.
	// MCPIdleTTL is for the sessions of conversations over MCP; 0: conversations have no sessions.
	Sessions struct {
		Count      int      `yaml:"count"`
		TotalBytes size     `yaml:"total_bytes"`
		Bytes      size     `yaml:"bytes"`
		Files      int      `yaml:"files"`
		Versions   int      `yaml:"versions"`
		IdleTTL    duration `yaml:"idle_ttl"`
		TTL        duration `yaml:"ttl"`
		MCPIdleTTL duration `yaml:"mcp_idle_ttl"`
	} `yaml:"sessions"`
	// Index and Registry are URLs and may have a password in them, which must not be logged. Bytes is for all
	// environments, WallTime and Memory are for one build.
	Environments struct {
		Index          string   `yaml:"index"`
		Wheels         string   `yaml:"wheels"`
		Sdists         bool     `yaml:"sdists"`
		Registry       string   `yaml:"registry"`
		Tarballs       string   `yaml:"tarballs"`
		InstallScripts bool     `yaml:"install_scripts"`
		Bytes          size     `yaml:"bytes"`
		WallTime       duration `yaml:"wall_time"`
		Memory         size     `yaml:"memory"`
	} `yaml:"environments"`
	// MessageBytes is for one message, RequestBytes for all requests that the daemon holds.
	MessageBytes size `yaml:"message_bytes"`
	RequestBytes size `yaml:"request_bytes"` // 0: a share of the daemon's memory limit
	// An empty Dir means the directory audit in StateDir. FileBytes is for one of the Files.
	Audit struct {
		Enabled   bool   `yaml:"enabled"`
		Dir       string `yaml:"dir"`
		FileBytes size   `yaml:"file_bytes"`
		Files     int    `yaml:"files"`
	} `yaml:"audit"`
	Tracing tracingConfig `yaml:"tracing"`
	// Arguments decides about the arguments of ExecuteScript, in the lines of its contract.
	Log struct {
		Format    string                  `yaml:"format"`
		Level     slog.Level              `yaml:"level"`
		Arguments toolview.AuditArguments `yaml:"arguments"`
	} `yaml:"log"`

	unread error           // why tenants_dir cannot be read; nil: it can be
	loaded []*tenantSource // of Tenants and of TenantsDir, in the order of their names
}

// A skillRoot is a folder that holds skills. A text in the file is its path.
type skillRoot struct {
	Path      string `yaml:"path"`
	Namespace string `yaml:"namespace"`
	Recursive bool   `yaml:"recursive"`
}

// limits are one set of limits, the defaults or the maxima. A default of 0 means no limit for
// cpu_time and cpus, and is an error for the others (checkLimits).
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

// mcpBeside returns the default of listen.mcp_unix: mcp.sock in the directory of
// listen.unix, or "" if that is empty.
func mcpBeside(unix string) string {
	if unix == "" {
		return ""
	}
	return filepath.Join(filepath.Dir(unix), "mcp.sock")
}

// maxPrepared bounds prepared.sandboxes and prepared.python_zygotes: each prewarmed sandbox
// holds file descriptors and mounts.
const maxPrepared = 256

// mostRunning bounds the default of concurrency.running on machines with many processors.
const mostRunning = 1000

// buildsAtOnce is how many sandboxes a build of an environment needs at most: one installs
// the packages, and the next one compiles them.
const buildsAtOnce = 2

// minBuildMemory is the memory that pip needs for the smallest environment.
const minBuildMemory = 128 << 20

// defaultConfig returns the built-in defaults. deploy/skillrund.yaml must have the same values; a test
// compares the two.
func defaultConfig() config {
	var c config
	c.Listen.Unix = "/run/skillrun/skillrun.sock"
	c.Listen.UnixMode, c.Listen.UnixGroup = 0o660, defaultGroup
	c.Listen.MCPUnix = mcpBeside(c.Listen.Unix)
	c.Listen.Connections, c.Listen.PeerConnections = ingress.DefaultConnections, ingress.DefaultPeerConnections
	c.Identity.Callers, c.Identity.SPIFFE, c.Identity.Issuers = []callerRow{}, map[string]string{}, []issuerConfig{}
	c.Tenants = map[string]tenantConfig{}
	c.StateDir = "/var/lib/skillrun"
	c.RunDir = "/run/skillrun"
	c.Skills = []skillRoot{{Path: "/usr/share/skillrun/skills"}}
	c.NetworkResolvers, c.NetworkOwnAddresses, c.NetworkProxy.NoProxy = []string{}, []string{}, []string{}
	c.NetworkLimits = defaultNetworkLimits()
	c.WithoutAllowedTools = commandRules{permission.OwnScripts}
	c.Python = "auto"
	c.Packages = "warn"
	c.Images = map[string]imageConfig{}
	c.Runtimes = map[string]string{defaultRuntime: hostRuntime}
	c.Pull.WallTime, c.Pull.Bytes, c.Pull.Files = duration(10*time.Minute), image.DefaultBytes, image.DefaultFiles
	// Above the ids of accounts, and far above the first ranges that useradd(8) gives to users,
	// which begin at 100000 (subuid(5)).
	c.IDs.First, c.IDs.Count = 1<<28, 65536
	c.Boundaries.AllowMissing = []string{}
	b := executor.StandardBounds()
	c.Limits.Default, c.Limits.Max = fromLimits(b.Default), fromLimits(b.Max)
	c.Limits.CommandWallTime = duration(b.CommandWall)
	c.Concurrency.Running = min(8*runtime.NumCPU(), mostRunning)
	c.Concurrency.Reserved = 2
	c.Concurrency.Queued = 1000
	c.Concurrency.QueueTimeout = duration(30 * time.Second)
	c.Prepared.Zygote, c.Prepared.Sandboxes, c.Prepared.PythonZygotes, c.Prepared.PythonFastExit = true, 8, 4, true
	c.Prepared.TenantZygotes = 8
	c.Grace = duration(500 * time.Millisecond)
	c.CancelGrace = duration(2 * time.Second)
	c.Drain = duration(30 * time.Second)
	c.Keepalive = duration(15 * time.Second)
	c.Artifacts.Files, c.Artifacts.FileBytes, c.Artifacts.TotalBytes = 10_000, 256<<20, 512<<20
	c.Retention.Age, c.Retention.Bytes = duration(24*time.Hour), 10<<30
	c.Snapshots.Files, c.Snapshots.Bytes = 20_000, 1<<30
	s := &c.Sessions
	s.Count, s.TotalBytes, s.Bytes, s.Files, s.Versions = 100, 4<<30, 1<<30, 10_000, 10
	s.IdleTTL, s.TTL, s.MCPIdleTTL = duration(7*24*time.Hour), duration(30*24*time.Hour), duration(24*time.Hour)
	c.Snapshots.PushedBytes, c.Snapshots.PushedVersions, c.Snapshots.Sources = 1<<30, 10, []string{"*"}
	c.Environments.Bytes, c.Environments.Memory = environment.DefaultBytes, environment.DefaultMemory
	c.Environments.WallTime = duration(environment.DefaultWall)
	c.MessageBytes = 16 << 20
	c.Tracing.SampleRatio = 1
	c.Audit.Enabled, c.Audit.FileBytes, c.Audit.Files = true, 64<<20, 32
	c.Log.Format, c.Log.Level, c.Log.Arguments = "text", slog.LevelInfo, toolview.AuditOff
	return c
}

// loadConfig reads and validates the file at path. The error is a *configError with every
// problem in the file, or says why the file can't be read.
func loadConfig(path string) (config, error) {
	c, found, err := readConfig(path)
	if err != nil {
		return c, err
	}
	return c, found.err()
}

// readConfig reads the file at path over the defaults and validates the result. An empty
// path means the defaults. The error says why the file can't be read. found has the
// problems in the file.
func readConfig(path string) (c config, found *problems, err error) {
	c, found = defaultConfig(), &problems{path: path}
	if path != "" {
		data, err := os.ReadFile(path)
		if err != nil {
			return c, found, fmt.Errorf("config: %w", err)
		}
		found.decode(data, &c)
		// Relative paths are relative to the file, wherever the daemon starts.
		dir, err := filepath.Abs(filepath.Dir(path))
		if err != nil {
			return c, found, err
		}
		c.resolve(dir, found.lines)
	}
	if err := c.loadTenants(found); err != nil {
		c.unread = err
		found.bad("tenants_dir", "%v; write a directory that the daemon can read", err)
	}
	c.validate(found.bad)
	return c, found, nil
}

// loadTenants reads all tenants and checks them.
func (c *config) loadTenants(found *problems) (err error) {
	if c.loaded, err = c.readTenants(c.Tenants, found); len(c.loaded) == 0 {
		return err
	}
	claims := c.newClaims()
	for _, s := range c.loaded {
		claims.add(s)
		found.files = append(found.files, s.found)
	}
	return err
}

// resolve derives the values that depend on other keys or on the file's directory. lines
// has the keys that the file sets.
func (c *config) resolve(dir string, lines map[string]int) {
	if lines["listen.mcp_unix"] == 0 {
		c.Listen.MCPUnix = mcpBeside(c.Listen.Unix)
	}
	for _, p := range []*string{&c.StateDir, &c.RunDir, &c.TenantsDir, &c.SecretsDir, &c.Listen.Unix, &c.Listen.MCPUnix, &c.Listen.TLS.Certificate, &c.Listen.TLS.Key, &c.Environments.Wheels, &c.Environments.Tarballs, &c.Audit.Dir, &c.Tracing.CA, &c.Tracing.HeadersFile} {
		*p = absolute(dir, *p)
	}
	c.resolveIdentity(dir, lines)
	for i := range c.Skills {
		c.Skills[i].Path = absolute(dir, c.Skills[i].Path)
	}
	if c.Runtimes[defaultRuntime] == "" { // "runtimes:" without a value
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
}

// absolute leaves an empty path empty: it means "not set".
func absolute(dir, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// sandbox is the configuration of package sandbox. RunDir has mount points and root file systems.
// A nil log is for --doctor.
func (c *config) sandbox(log *slog.Logger) sandbox.Config {
	return sandbox.Config{
		StateDir: filepath.Join(c.StateDir, "sandbox"), RunDir: c.RunDir, CgroupParent: c.CgroupParent,
		FirstID: c.IDs.First, IDs: c.IDs.Count, FirstHelperID: c.networkID(), Zygote: c.Prepared.Zygote, Prewarmed: c.Prepared.Sandboxes, Log: log,
		GroupIDs: c.tenantIDs(), GroupZygotes: c.Prepared.TenantZygotes, PythonZygotes: c.Prepared.PythonZygotes, PythonFastExit: c.Prepared.PythonFastExit,
		Networks: !c.Network.network().None(),
		// The daemon starts without these boundaries and reports them. judge decides whether
		// it executes anything.
		Tolerate: sandbox.Lowerable(),
	}
}

// connections are the bounds of each listener.
func (c *config) connections() ingress.Limits {
	return ingress.Limits{Connections: c.Listen.Connections, PeerConnections: c.Listen.PeerConnections}
}

// bounds converts the limits for the executor. validate has checked them.
func (c *config) bounds() executor.Bounds {
	return executor.Bounds{
		Default: c.Limits.Default.limits(), CommandWall: time.Duration(c.Limits.CommandWallTime), Max: c.Limits.Max.limits(),
	}
}

// limits and fromLimits convert between the types of the configuration, which know their
// notation, and the executor's plain numbers.
func (l limits) limits() executor.Limits {
	return executor.Limits{
		Wall: time.Duration(l.WallTime), CPU: time.Duration(l.CPUTime), MemoryBytes: int64(l.Memory), Processes: l.Processes,
		OutputBytes: int64(l.Output), WorkspaceBytes: int64(l.Workspace), WorkspaceFiles: l.WorkspaceFiles, OpenFiles: l.OpenFiles,
		MilliCPUs: int(l.CPUs),
	}
}

// fromLimits is the reverse of limits, for the defaults.
func fromLimits(l executor.Limits) limits {
	return limits{
		WallTime: duration(l.Wall), CPUTime: duration(l.CPU), Memory: size(l.MemoryBytes), Processes: l.Processes,
		Output: size(l.OutputBytes), Workspace: size(l.WorkspaceBytes), WorkspaceFiles: l.WorkspaceFiles, OpenFiles: l.OpenFiles,
		CPUs: cpus(l.MilliCPUs),
	}
}
