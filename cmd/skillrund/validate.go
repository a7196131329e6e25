package main

import (
	"cmp"
	"fmt"
	"math"
	"net"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/skillrun/skillrun/internal/environment"
	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/spelling"
	"github.com/skillrun/skillrun/internal/toolview"
	"github.com/skillrun/skillrun/sandbox"
)

// maxConnections bounds listen.connections: each connection takes a file descriptor and up to 1 MiB of buffers.
const maxConnections = 65536

// A badFunc reports one mistake: the key, then a text with the value and what would be
// right. It may drop the mistake: see problems.bad.
type badFunc func(key, format string, args ...any)

// maxSocketPath is the length of sun_path without its NUL, unix(7).
const maxSocketPath = 107

// maxWall is the largest value of limits.max.wall_time: the contract promises callers that no
// wall_time is above 600 s.
const maxWall = duration(600 * time.Second)

// minKeepalive is the least value of keepalive.
const minKeepalive = duration(time.Second)

// validate reports every mistake in the values themselves. It does not look at this
// machine; inspect does.
// All mistakes come in one report, so that a person mends the file once. Checks therefore do not
// stop at a mistake, and must not fail on values that another check refuses.
func (c *config) validate(bad badFunc) {
	c.checkListen(bad)
	c.checkIdentity(bad)
	c.checkImages(bad)
	c.checkIDs(bad)
	c.checkBoundaries(bad)
	c.checkPrepared(bad)
	c.checkRanges(bad)
	c.checkLimits(bad)
	c.checkParts(bad)
	c.checkResources(bad)
	c.checkTracing(bad)
	c.checkNetworkLimits(bad)
	oneOf(bad, "python", c.Python, "auto", "system", "embedded")
	oneOf(bad, "log.format", c.Log.Format, "text", "json")
	oneOf(bad, "log.arguments", string(c.Log.Arguments), string(toolview.AuditOff), string(toolview.AuditHash), string(toolview.AuditTruncated))
	for i, entry := range c.WithoutAllowedTools {
		if reason := permission.CheckUnlisted(entry); reason != "" {
			bad(index("without_allowed_tools", i), "%q: %s", entry, reason)
		}
	}
	if c.StateDir == "" {
		bad("state_dir", "is empty; write a directory such as /var/lib/skillrun")
	}
	if c.RunDir == "" {
		bad("run_dir", "is empty; write a directory such as /run/skillrun")
	}
	checkSources("snapshots.sources", c.Snapshots.Sources, bad)
	for i, root := range c.Skills {
		if root.Path == "" {
			bad(join(index("skills", i), "path"), "is empty; write the folder that holds the skills")
		}
		if root.Namespace != "" && !skill.ValidNamespace(root.Namespace) {
			bad(join(index("skills", i), "namespace"), "%q is not a namespace; write at most 64 lowercase letters, digits and single hyphens", root.Namespace)
		}
	}
	if c.CgroupParent != "" && !filepath.IsAbs(c.CgroupParent) {
		bad("cgroup_parent", "%q is not absolute; write it as /proc/self/cgroup does", c.CgroupParent)
	}
	if c.Environments.Index != "" {
		if _, err := environment.ParseIndex(c.Environments.Index); err != nil {
			bad("environments.index", "%v", err) // no %q: the value may hold a password
		}
	}
	if c.Environments.Registry != "" {
		if _, err := environment.ParseIndex(c.Environments.Registry); err != nil {
			bad("environments.registry", "%v", err) // the same
		}
	}
}

// checkSources checks patterns of hosts.
func checkSources(key string, patterns []string, bad badFunc) {
	for i, pattern := range patterns {
		if _, err := path.Match(pattern, ""); pattern == "" || err != nil {
			bad(index(key, i), "%q is not a pattern; write a host such as skills.example.com, or * for any characters", pattern)
		}
	}
}

// oneOf checks a value against the words that its key accepts.
func oneOf(bad badFunc, key, value string, words ...string) {
	if !slices.Contains(words, value) {
		bad(key, "%q is unknown; write %s", value, orList(words))
	}
}

// orList returns "a, b or c".
func orList(words []string) string {
	text := ""
	for i, word := range words {
		switch {
		case i == 0:
			text = word
		case i == len(words)-1:
			text += " or " + word
		default:
			text += ", " + word
		}
	}
	return text
}

// checkListen checks addresses.
func (c *config) checkListen(bad badFunc) {
	l := c.Listen
	if l.Unix == "" && l.TCP == "" {
		bad("listen", "unix and tcp are both empty, so no client could reach the daemon; set one of them")
	}
	for _, socket := range []struct{ key, path string }{{"listen.unix", l.Unix}, {"listen.mcp_unix", l.MCPUnix}} {
		if n := len(socket.path); n > maxSocketPath {
			bad(socket.key, "the path has %d bytes; a socket's path has at most %d", n, maxSocketPath)
		}
	}
	if l.MCPUnix != "" && l.MCPUnix == l.Unix {
		bad("listen.mcp_unix", "%s is also listen.unix; give each socket its own path", l.MCPUnix)
	}
	if l.SkillsIndex && l.MCPUnix == "" && l.MCPTCP == "" {
		bad("listen.skills_index", "true, but no listener serves MCP, which has the index; set listen.mcp_tcp")
	}
	// Port 0 lets the kernel choose, so two listeners may have it.
	used := map[string]string{}
	for _, tcp := range []struct{ key, address string }{{"listen.tcp", l.TCP}, {"listen.mcp_tcp", l.MCPTCP}, {"listen.metrics_tcp", l.MetricsTCP}} {
		if other, ok := used[tcp.address]; ok {
			bad(tcp.key, "%s is also %s; give each its own port", tcp.address, other)
		}
		if _, port, err := net.SplitHostPort(tcp.address); err == nil && port != "0" {
			used[tcp.address] = tcp.key
		}
	}
	if l.Connections < 1 || l.Connections > maxConnections {
		bad("listen.connections", "%d; must be 1 to %d", l.Connections, maxConnections)
	}
	if l.PeerConnections < 1 || l.PeerConnections > l.Connections {
		bad("listen.peer_connections", "%d; must be 1 to listen.connections, %d", l.PeerConnections, l.Connections)
	}
	c.Network.check("network", bad)
	c.NetworkProxy.check(bad)
	oneOf(bad, "packages", c.Packages, "warn", "strict")
	c.checkTLS(bad)
	for _, tcp := range []struct{ key, address string }{{"listen.tcp", l.TCP}, {"listen.mcp_tcp", l.MCPTCP}} {
		if tcp.address == "" {
			continue
		}
		if err := checkTCP(tcp.address, c.usesTLS() || l.Insecure); err != nil {
			bad(tcp.key, "%v", err)
		}
	}
	if l.MetricsTCP != "" {
		if err := checkTCP(l.MetricsTCP, c.usesTLS() || l.Insecure); err != nil {
			bad("listen.metrics_tcp", "%v", err)
		}
	}
}

// usesTLS reports whether the TCP listeners are encrypted.
func (c *config) usesTLS() bool { return c.Listen.TLS.Certificate != "" || c.Listen.TLS.Key != "" }

// checkTLS checks that the keys about TLS agree with each other.
func (c *config) checkTLS(bad badFunc) {
	l := c.Listen
	switch {
	case !c.usesTLS():
		return
	case l.TLS.Certificate == "":
		bad("listen.tls.key", "%s is set, and listen.tls.certificate is not; write the file with its certificate (PEM)", l.TLS.Key)
	case l.TLS.Key == "":
		bad("listen.tls.certificate", "%s is set, and listen.tls.key is not; write the file with its private key (PEM)", l.TLS.Certificate)
	case l.Insecure:
		bad("listen.insecure", "true, but listen.tls encrypts every TCP listener; remove one of the two")
	case l.TCP == "" && l.MCPTCP == "" && l.MetricsTCP == "":
		bad("listen.tls", "is set, but no listener uses TLS; set listen.tcp or listen.mcp_tcp, or remove it")
	}
}

// checkTCP checks an address. Unless open is true, it refuses an address that other machines
// could reach, because connections there would not be encrypted.
func checkTCP(address string, open bool) error {
	const example = "such as 127.0.0.1:7878"
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q is not host:port (%w); write an address %s", address, err, example)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q is not a port; write an address %s", port, example)
	}
	// Other names are refused: the address of a name can change after the check.
	switch ip := net.ParseIP(host); {
	case host == "localhost" || ip != nil && ip.IsLoopback():
		return nil
	case open && host != "" && ip == nil:
		return fmt.Errorf("%q is not an IP address; write an address such as 0.0.0.0:7878 for all interfaces", host)
	case open:
		return nil
	}
	return fmt.Errorf("%q is reachable from other machines, and listen.tls is not set; write a loopback address %s, or set listen.tls or listen.insecure", host, example)
}

// checkIDs checks that the range of ids has room for every sandbox that may exist at one time.
func (c *config) checkIDs(bad badFunc) {
	const lastID = 1<<32 - 2 // 1<<32 - 1 means "unchanged", setreuid(2)
	if c.IDs.First < 65536 {
		bad("ids.first", "%d is in the range of accounts; write 65536 or more", c.IDs.First)
	}
	if own := defaultConfig().IDs; c.IDs.Count == own.Count && uint64(c.IDs.First)+uint64(own.Count) > lastID {
		bad("ids.first", "%d; the %d ids of ids.count from it on go past the last id, %d; write at most %d", c.IDs.First, own.Count, uint64(lastID), lastID+1-sandbox.HelperIDs-uint64(own.Count))
		return
	}
	if c.IDs.Count < 2 || uint64(c.IDs.First)+uint64(c.IDs.Count) > lastID {
		bad("ids.count", "%d ids from %d on; write 2 to %d", c.IDs.Count, c.IDs.First, uint64(lastID)-min(uint64(c.IDs.First), lastID))
		return
	}
	c.checkNetworkIDs(bad, lastID)
	need, room := c.sandboxesAtOnce(), uint64(max(0, sandbox.Room(c.IDs.Count)))
	if need <= room {
		return
	}
	const needed = "enough for %d sandboxes, but concurrency.running, concurrency.reserved, prepared.sandboxes and a build need %d"
	most := uint64(sandbox.Room(1 << 31))
	if need <= most {
		bad("ids.count", "%d ids are "+needed+"; write at least %d", c.IDs.Count, room, need, sandbox.IDs(need))
		return
	}
	// Not even all ids are enough, so a larger ids.count would not help: a daemon takes only a block of them. The
	// largest number is the one to lower.
	key, n := "concurrency.running", c.Concurrency.Running
	if c.Concurrency.Reserved > n {
		key, n = "concurrency.reserved", c.Concurrency.Reserved
	}
	if c.Prepared.Sandboxes > n {
		key, n = "prepared.sandboxes", c.Prepared.Sandboxes
	}
	bad(key, "%d; all ids that a daemon can use are "+needed+"; lower it", n, most, need)
}

// checkNetworkIDs checks the ids of the processes that carry packets.
func (c *config) checkNetworkIDs(bad badFunc, lastID uint64) {
	first, end, id := uint64(c.IDs.First), uint64(c.IDs.First)+uint64(c.IDs.Count), uint64(c.networkID())
	last := id + sandbox.HelperIDs - 1
	if c.IDs.Network == 0 { // the ids begin after the range, so only the range can be wrong
		if last > lastID {
			key, value, most := "ids.first", first, lastID+1-sandbox.HelperIDs-uint64(c.IDs.Count)
			if c.IDs.First == defaultConfig().IDs.First {
				key, value, most = "ids.count", uint64(c.IDs.Count), lastID+1-sandbox.HelperIDs-first
			}
			bad(key, "%d; the %d ids after the range, which the network needs, go past the last id, %d; write at most %d, or set ids.network", value, sandbox.HelperIDs, lastID, most)
		}
		return
	}
	const remedy = "write another id, or 0 for the one after the range"
	switch {
	case id < 65536:
		bad("ids.network", "%d is in the range of accounts; write 65536 or more, or 0 for the one after the range", id)
	case last > lastID:
		bad("ids.network", "the %d ids from %d on go past the last id, %d; %s", sandbox.HelperIDs, id, lastID, remedy)
	case last >= first && id < end:
		bad("ids.network", "the %d ids from %d on overlap with the ids from ids.first to the end of ids.count, %d to %d; %s", sandbox.HelperIDs, id, first, end-1, remedy)
	}
}

// tenantIDs returns the size of a tenant's block of ids: one tenant may have every sandbox of the
// daemon.
func (c *config) tenantIDs() uint32 {
	return uint32(min(sandbox.IDs(c.sandboxesAtOnce()), uint64(c.IDs.Count)&^1, sandbox.MaxGroupIDs))
}

// sandboxesAtOnce returns the largest number of sandboxes at one time. It clamps values
// that are out of range, so that the sum does not overflow.
// These are the slots, the reserved slots, the prewarmed sandboxes, and the builds of environments.
func (c *config) sandboxesAtOnce() uint64 {
	sum := uint64(buildsAtOnce)
	for _, n := range []int{c.Concurrency.Running, c.Concurrency.Reserved, c.Prepared.Sandboxes} {
		sum += uint64(min(max(0, n), math.MaxUint32))
	}
	return sum
}

// checkBoundaries refuses names that sandboxes never do without.
func (c *config) checkBoundaries(bad badFunc) {
	lowerable := sandbox.Lowerable()
	for i, name := range c.Boundaries.AllowMissing {
		key := index("boundaries.allow_missing", i)
		switch {
		case !slices.Contains(lowerable, name):
			if near := spelling.Closest(name, lowerable); near != "" {
				bad(key, "there is no boundary %q; did you mean %s?", name, near)
				continue
			}
			bad(key, "%q cannot be skipped; skillrund --doctor lists the boundaries", name)
		case slices.Contains(c.Boundaries.AllowMissing[:i], name):
			bad(key, "%q is listed twice; remove one of the two", name)
		}
	}
}

// checkPrepared checks the numbers, and that they have the zygote that they need.
func (c *config) checkPrepared(bad badFunc) {
	if n := c.Prepared.Sandboxes; n < 0 || n > maxPrepared {
		bad("prepared.sandboxes", "%d; must be 0 to %d", n, maxPrepared)
	}
	if n := c.Prepared.PythonZygotes; n < 0 || n > maxPrepared {
		bad("prepared.python_zygotes", "%d; must be 0 to %d", n, maxPrepared)
	}
	if n := c.Prepared.TenantZygotes; n < 0 || n > maxPrepared {
		bad("prepared.tenant_zygotes", "%d; must be 0 to %d", n, maxPrepared)
	}
	if p := c.Prepared; !p.Zygote && p.Sandboxes+p.PythonZygotes > 0 {
		bad("prepared.zygote", "false, but the zygote makes prewarmed sandboxes and Python zygotes; write true, or set prepared.sandboxes and prepared.python_zygotes to 0")
	}
}

// checkResources checks the bounds of all running executions against what one execution gets.
func (c *config) checkResources(bad badFunc) {
	r, l := c.Concurrency, c.Limits.Default
	if r.Memory < 0 || r.Memory > 0 && r.Memory < l.Memory {
		bad("concurrency.memory", "%s is less than one execution gets by default (limits.default.memory), %s; raise it, or write 0 for no bound", r.Memory, l.Memory)
	}
	// An execution without a limit counts as one processor.
	if need := cmp.Or(l.CPUs, c.Limits.Max.CPUs, 1000); r.CPUs < 0 || r.CPUs > 0 && r.CPUs < need {
		bad("concurrency.cpus", "%s is less than one execution counts by default (limits.default.cpus), %s; raise it, or write 0 for no bound", r.CPUs, need)
	}
}

// checkRanges checks the keys whose range depends on no other key, and request_bytes.
func (c *config) checkRanges(bad badFunc) {
	for _, f := range []struct {
		key   string
		value fmt.Stringer
		n     int64
		least int64 // the least value: 0 or 1
	}{
		{"concurrency.running", number(c.Concurrency.Running), int64(c.Concurrency.Running), 1},
		{"concurrency.reserved", number(c.Concurrency.Reserved), int64(c.Concurrency.Reserved), 0},
		{"concurrency.queued", number(c.Concurrency.Queued), int64(c.Concurrency.Queued), 0},
		{"concurrency.queue_timeout", c.Concurrency.QueueTimeout, int64(c.Concurrency.QueueTimeout), 1},
		{"grace", c.Grace, int64(c.Grace), 0},
		{"cancel_grace", c.CancelGrace, int64(c.CancelGrace), 0},
		{"drain", c.Drain, int64(c.Drain), 1},
		{"artifacts.files", number(c.Artifacts.Files), int64(c.Artifacts.Files), 1},
		{"artifacts.file_bytes", c.Artifacts.FileBytes, int64(c.Artifacts.FileBytes), 1},
		{"artifacts.total_bytes", c.Artifacts.TotalBytes, int64(c.Artifacts.TotalBytes), 1},
		{"retention.age", c.Retention.Age, int64(c.Retention.Age), 1},
		{"retention.bytes", c.Retention.Bytes, int64(c.Retention.Bytes), 1},
		{"environments.bytes", c.Environments.Bytes, int64(c.Environments.Bytes), 1},
		{"environments.wall_time", c.Environments.WallTime, int64(c.Environments.WallTime), 1},
		{"pull.wall_time", c.Pull.WallTime, int64(c.Pull.WallTime), 1},
		{"pull.bytes", c.Pull.Bytes, int64(c.Pull.Bytes), 1},
		{"pull.files", number(c.Pull.Files), int64(c.Pull.Files), 1},
		{"snapshots.files", number(c.Snapshots.Files), int64(c.Snapshots.Files), 1},
		{"snapshots.bytes", c.Snapshots.Bytes, int64(c.Snapshots.Bytes), 1},
		{"snapshots.pushed_bytes", c.Snapshots.PushedBytes, int64(c.Snapshots.PushedBytes), 1},
		{"sessions.count", number(c.Sessions.Count), int64(c.Sessions.Count), 1},
		{"sessions.total_bytes", c.Sessions.TotalBytes, int64(c.Sessions.TotalBytes), 1},
		{"sessions.bytes", c.Sessions.Bytes, int64(c.Sessions.Bytes), 1},
		{"sessions.files", number(c.Sessions.Files), int64(c.Sessions.Files), 1},
		{"sessions.versions", number(c.Sessions.Versions), int64(c.Sessions.Versions), 1},
		{"sessions.idle_ttl", c.Sessions.IdleTTL, int64(c.Sessions.IdleTTL), 1},
		{"sessions.ttl", c.Sessions.TTL, int64(c.Sessions.TTL), 1},
		{"sessions.mcp_idle_ttl", c.Sessions.MCPIdleTTL, int64(c.Sessions.MCPIdleTTL), 0},
		{"snapshots.pushed_versions", number(c.Snapshots.PushedVersions), int64(c.Snapshots.PushedVersions), 1},
	} {
		switch {
		case f.n < 0 && f.least == 0:
			bad(f.key, "%s is negative; write 0 or more", f.value)
		case f.n <= 0 && f.least > 0:
			bad(f.key, "%s; must be more than 0", f.value)
		}
	}
	// Each keepalive reads the execution's state. Below the minimum, streams would have little else.
	if c.Keepalive < minKeepalive {
		bad("keepalive", "%s is too short; write at least %s", c.Keepalive, minKeepalive)
	}
	if c.Environments.Memory < minBuildMemory {
		bad("environments.memory", "%s is too small for a build; write at least %s", c.Environments.Memory, size(minBuildMemory))
	}
	// skillrun mcp relies on the upper bound: maxMCPMessage there is the same number.
	if least, most := size(64<<10), size(256<<20); c.MessageBytes < least || c.MessageBytes > most {
		bad("message_bytes", "%s; must be %s to %s", c.MessageBytes, least, most)
	}
	if least := size(64 << 10); c.Audit.FileBytes < least {
		bad("audit.file_bytes", "%s is too small; write at least %s", c.Audit.FileBytes, least)
	}
	if c.Audit.Files < 2 {
		bad("audit.files", "%d; write 2 or more, because the oldest file is removed when a new one begins", c.Audit.Files)
	}
	if c.RequestBytes != 0 && c.RequestBytes < c.MessageBytes {
		bad("request_bytes", "%s is less than one message of message_bytes, %s; write 0 or at least that", c.RequestBytes, c.MessageBytes)
	}
}

// checkLimits checks the daemon's limits.
func (c *config) checkLimits(bad badFunc) {
	checkLimitSet(bad, c.Limits.Default, c.Limits.Max, c.Limits.CommandWallTime)
	if most := c.Limits.Max.WallTime; most > maxWall {
		bad("limits.max.wall_time", "%s is too long; write at most %s", most, maxWall)
	}
}

// checkParts checks the keys that bound a part against the keys that bound the whole. A part with its default is not compared:
// it has no effect beyond the whole, and a file may lower the whole alone.
func (c *config) checkParts(bad badFunc) {
	s, a, own := c.Sessions, c.Artifacts, defaultConfig()
	above := func(key string, part fmt.Stringer, wholeKey string, whole fmt.Stringer) {
		bad(key, "%s is above %s, %s; lower it or raise %s", part, wholeKey, whole, wholeKey)
	}
	if s.IdleTTL > s.TTL && s.IdleTTL != own.Sessions.IdleTTL {
		above("sessions.idle_ttl", s.IdleTTL, "sessions.ttl", s.TTL)
	}
	// A tenant may have a larger quota than total_bytes, which is only the default of the quotas.
	if s.Bytes > s.TotalBytes && s.Bytes != own.Sessions.Bytes && !c.manyTenants() {
		above("sessions.bytes", s.Bytes, "sessions.total_bytes", s.TotalBytes)
	}
	if a.FileBytes > a.TotalBytes && a.FileBytes != own.Artifacts.FileBytes {
		above("artifacts.file_bytes", a.FileBytes, "artifacts.total_bytes", a.TotalBytes)
	}
}

// A limitField is one limit. zero: 0 is allowed and means no limit.
type limitField struct {
	key   string
	value fmt.Stringer
	n     int64
	zero  bool
}

// The order is the same for every limits, so that two results can be compared by position.
func limitFields(l limits) []limitField {
	return []limitField{
		{"wall_time", l.WallTime, int64(l.WallTime), false},
		{"cpu_time", l.CPUTime, int64(l.CPUTime), true},
		{"memory", l.Memory, int64(l.Memory), false},
		{"processes", number(l.Processes), int64(l.Processes), false},
		{"output", l.Output, int64(l.Output), false},
		{"workspace", l.Workspace, int64(l.Workspace), false},
		{"workspace_files", number(l.WorkspaceFiles), int64(l.WorkspaceFiles), false},
		{"open_files", number(l.OpenFiles), int64(l.OpenFiles), false},
		{"cpus", l.CPUs, int64(l.CPUs), true},
	}
}

// checkLimitSet checks that every default is set and within its maximum. wall is the default wall time of
// commands.
func checkLimitSet(bad badFunc, l, most limits, wall duration) {
	tops := limitFields(most)
	for i, f := range limitFields(l) {
		top, def, max := tops[i], "limits.default."+f.key, "limits.max."+f.key
		// Only the processors of the machine need no maximum.
		if top.n < 0 || top.n == 0 && f.key != "cpus" {
			bad(max, "%s; must be more than 0", top.value)
		}
		switch {
		case f.n < 0 || f.n == 0 && !f.zero:
			bad(def, "%s; must be more than 0", f.value)
		case f.n > top.n && top.n > 0:
			bad(def, "%s is above %s, %s; lower it or raise the maximum", f.value, max, top.value)
		}
	}
	if l.Memory > 0 && l.Memory < executor.MinMemoryBytes {
		bad("limits.default.memory", "%s is too small to start a sandbox; write at least %s", l.Memory, size(executor.MinMemoryBytes))
	}
	if l.OpenFiles > 0 && l.OpenFiles < executor.MinOpenFiles {
		bad("limits.default.open_files", "%d are too few to start a program; write at least %d", l.OpenFiles, executor.MinOpenFiles)
	}
	if wall > most.WallTime && most.WallTime > 0 {
		bad("limits.command_wall_time", "%s is above limits.max.wall_time, %s; lower it or raise the maximum", wall, most.WallTime)
	}
	if wall <= 0 {
		bad("limits.command_wall_time", "%s; must be more than 0", wall)
	}
}
