package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/audit"
	"github.com/skillrun/skillrun/internal/environment"
	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/ingress"
	"github.com/skillrun/skillrun/internal/ingress/budget"
	"github.com/skillrun/skillrun/internal/ingress/identity"
	"github.com/skillrun/skillrun/internal/mcp"
	"github.com/skillrun/skillrun/internal/metrics"
	"github.com/skillrun/skillrun/internal/network"
	"github.com/skillrun/skillrun/internal/record"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/server"
	"github.com/skillrun/skillrun/internal/session"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
	"github.com/skillrun/skillrun/internal/toolview"
	"github.com/skillrun/skillrun/internal/tracing"
	"github.com/skillrun/skillrun/internal/workspace"
	"github.com/skillrun/skillrun/sandbox"
)

// sweepInterval is how often the daemon removes executions past their retention.
const sweepInterval = time.Minute

// readerPatience is how long a stopping daemon waits for clients to read their streams
// to the end.
const readerPatience = 5 * time.Second

// A daemon has the parts of a running skillrund, in the order of their start.
type daemon struct {
	// As validated; never changed.
	config config
	// Of the configuration file; empty without one.
	path    string
	started time.Time
	log     *slog.Logger
	images  images
	host    *sandbox.Host
	// Runs from sandbox.Open on; judge and close wait for it.
	probing      *probing
	missing      []string   // missing boundaries that the configuration does not allow; if any, nothing is executed
	audit        *audit.Log // nil: switched off
	readiness    readiness
	record       *record.Store
	sessions     *session.Store
	skills       *skill.Registry
	runtimes     *runtime.Set
	python       *runtime.Installation // nil without an embedded Python
	environments *environment.Store
	networks     *network.Manager // nil: no skill gets a network
	executor     *executor.Executor
	callers      *identity.Table
	tenants      *tenancy
	server       *server.Server
	mcp          *mcp.Server
	tracing      *tracing.Tracing // nil without tracing.endpoint
	metrics      *metrics.Metrics // counts even if listen.metrics_tcp is empty
	scrapes      *metrics.Server
}

// serve starts the daemon and runs it until a signal ends it. Health says SERVING only if every
// required boundary holds. bundle is the path of skillrun-python, the program that carries the
// embedded Python.
func serve(c config, path, bundle string) error {
	log := newLogger(c, os.Stderr)
	// First of all, because other processes must not get the sockets.
	sockets, err := inherit()
	if err != nil {
		return err
	}
	// No signal ends ctx: wait needs it during the drain. It ends when the executions have ended.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	limitHeap(log)
	unlock, err := lockState(c.StateDir)
	if err != nil {
		return err
	}
	defer unlock()
	d, err := start(ctx, c, path, bundle, log)
	if err != nil {
		return err
	}
	// From here on clients can connect; their calls wait in the sockets until Serve runs.
	listeners, err := listen(c, sockets, log)
	if err != nil {
		return errors.Join(err, d.close())
	}
	// Before this line a signal ends the process at once, which is safe: no execution runs yet.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)

	// The buffer has room for each Serve, because no goroutine reads the channel after wait has returned.
	failed := make(chan error, len(listeners.all()))
	var serving sync.WaitGroup
	for _, l := range listeners.grpc {
		log.Info("listening", "network", l.Addr().Network(), "address", l.Addr().String())
		serving.Go(func() { failed <- d.server.Serve(l) })
	}
	for _, l := range listeners.mcp {
		log.Info("listening for MCP", "network", l.Addr().Network(), "address", l.Addr().String())
		serving.Go(func() { failed <- d.mcp.Serve(l) })
	}
	for _, l := range listeners.metrics {
		log.Info("listening for Prometheus", "network", l.Addr().Network(), "address", l.Addr().String())
		serving.Go(func() { failed <- d.scrapes.Serve(l) })
	}
	var background sync.WaitGroup
	background.Go(func() { d.watchSkills(ctx) })
	background.Go(func() { d.sweepRecords(ctx) })
	background.Go(func() { d.watchTenants(ctx) })

	d.readiness.set(func(r *readiness) { r.started = true })
	if len(d.missing) == 0 {
		notify("READY=1")
		log.Info("serving", "version", buildVersion(), "skills", len(d.skills.List()))
	} else {
		// The daemon keeps running, so that its operator can ask which boundaries are missing.
		notify("READY=1\nSTATUS=Not serving, boundaries are missing: " + strings.Join(d.missing, ", "))
		log.Error("not serving: executions are refused while boundaries are missing; mend them and restart the daemon",
			"missing", strings.Join(d.missing, ", "))
	}

	// wait has drained the executor and stopped all servers, so every Serve returns.
	err = d.wait(ctx, signals, failed, listeners.stay)
	cancel()
	serving.Wait()
	background.Wait()
	return errors.Join(err, d.close())
}

// start makes all parts of a daemon except the listeners. On an error it closes the parts
// that it has made. sandbox.Open comes before executor.New: it ends the sandboxes of a dead daemon
// before their executions are recorded as lost. d is not nil even with an error, but then closed.
func start(ctx context.Context, c config, path, bundle string, log *slog.Logger) (d *daemon, err error) {
	d = &daemon{config: c, path: path, started: time.Now(), log: log, metrics: metrics.New(buildVersion(), server.Reason, server.Reasons())}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	if d.tracing, err = c.openTracing(log); err != nil {
		return d, err
	}
	// Images come before the host, since the host mounts their directories as root file systems.
	if d.images, err = openImages(ctx, c, log); err != nil {
		return d, err
	}
	if d.runtimes, err = runtime.Discover(ctx, runtime.Config{Rootfs: "/", Python: runtime.Python(c.Python)}); err != nil {
		return d, err
	}
	sandboxes := c.sandbox(log)
	sandboxes.Links = d.runtimes.Links()
	if sandboxes.Roots, err = d.images.roots(ctx); err != nil {
		return d, err
	}
	if d.host, err = sandbox.Open(ctx, sandboxes); err != nil {
		return d, err
	}
	// The probe runs while the next parts start; judge waits for it.
	d.probing = startProbing(ctx, d.host)
	if err := d.installPython(ctx, bundle); err != nil {
		return d, err
	}
	// The audit log is open before anything that it must contain can happen.
	if d.audit, err = d.openAudit(); err != nil {
		return d, fmt.Errorf("audit log: %w", err)
	}
	// SQLite reads the variable once. Else the copy of the database that a purge makes would be in a directory for
	// temporary files, which may be small, or less protected than state_dir.
	if err := os.Setenv("SQLITE_TMPDIR", filepath.Join(c.StateDir, "record")); err != nil {
		return d, err
	}
	d.record, err = record.Open(record.Config{
		Dir: filepath.Join(c.StateDir, "record"), MaxAge: time.Duration(c.Retention.Age), MaxBytes: int64(c.Retention.Bytes),
		Wrote: d.metrics.Wrote, Log: log,
	})
	if err != nil {
		return d, err
	}
	// The built-in skill comes first in Roots. It runs the code of tool calls that name no skill.
	builtIn, err := toolview.WriteBuiltIn(filepath.Join(c.StateDir, "builtin"))
	if err != nil {
		return d, err
	}
	tenants := c.tenantSet()
	d.skills, err = skill.OpenRegistry(ctx, skill.RegistryConfig{
		Roots: append(skill.Roots(builtIn), roots(c.Skills)...), Private: privateRoots(c.loaded), Dir: filepath.Join(c.StateDir, "snapshots"),
		Owner:    snapshot.Owner{UID: sandbox.ScriptID, GID: sandbox.ScriptID},
		MaxFiles: c.Snapshots.Files, MaxBytes: int64(c.Snapshots.Bytes), Log: log,
		TenantsDir: filepath.Join(c.StateDir, "tenants"), Rules: c.skillRules(tenants), Reserved: []string{toolview.BuiltInSkill},
	})
	if err != nil {
		return d, err
	}
	if d.environments, err = environment.Open(c.environments(d.host, d.python, log)); err != nil {
		return d, err
	}
	// Before routeRuntimes, which runs programs of images in sandboxes.
	if d.missing, err = d.judge(); err != nil {
		return d, err
	}
	d.judged()
	if err := d.routeRuntimes(ctx); err != nil {
		return d, err
	}
	if d.networks, err = c.openNetworks(d.host, log); err != nil {
		return d, err
	}
	if d.sessions, err = c.openSessions(tenants, log); err != nil {
		return d, fmt.Errorf("sessions: %w", err)
	}
	d.executor, err = executor.New(ctx, executor.Config{
		Sessions: d.sessions,
		Skills:   d.skills, Tenants: tenants, Runtimes: d.runtimes, Record: d.record, Host: d.host, Networks: networksOf(d.networks), Environments: d.environments, Missing: d.missing,
		StagingDir: filepath.Join(c.StateDir, "staging"), Owner: workspace.Owner{UID: sandbox.ScriptID, GID: sandbox.ScriptID}, KeyFile: filepath.Join(c.StateDir, "request.key"),
		Resources: c.resources(), Capacity: capacity(), MaxRunning: c.Concurrency.Running, Reserved: c.Concurrency.Reserved,
		Grace: time.Duration(c.Grace), CancelGrace: time.Duration(c.CancelGrace),
		Keep: workspace.CollectLimits{
			Files: c.Artifacts.Files, FileBytes: int64(c.Artifacts.FileBytes), TotalBytes: int64(c.Artifacts.TotalBytes),
		},
		Observer: d.metrics, Audit: d.audit, Tracer: d.tracing.Tracer(), Log: log,
	})
	if err != nil {
		return d, err
	}
	tools := toolview.New(toolview.Config{Executor: d.executor, Skills: d.skills, AuditArguments: c.Log.Arguments, SessionIdle: time.Duration(c.Sessions.MCPIdleTTL), Log: log})
	requests, err := budget.New(c.requestBytes(), int64(c.MessageBytes))
	if err != nil {
		return d, err
	}
	identities := c.identity(log)
	identities.Failed = d.unidentified
	if d.callers, err = identity.Open(identities); err != nil {
		return d, err
	}
	d.tenants = newTenancy(&d.config, d.executor.Tenants)
	d.warnAll()
	d.server, err = server.New(server.Config{
		Identify: d.callers.Identify, Connections: c.connections(), Executor: d.executor, Skills: d.skills, Tools: tools, Capabilities: d.capabilities,
		MaxMessageBytes: int(c.MessageBytes), Budget: requests, KeepaliveInterval: time.Duration(c.Keepalive),
		StagingDir: filepath.Join(c.StateDir, "uploads"), Audit: d.audit, Failed: d.metrics.Failed, Tracer: d.tracing.Tracer(), Log: log,
	})
	if err != nil {
		return d, err
	}
	d.readiness.set(func(r *readiness) { r.server = d.server })
	// MCP uses the same tools, executor and budget of request memory (Hold) as gRPC.
	d.mcp = mcp.New(mcp.Config{
		Tools: tools, Executor: d.executor, Skills: d.skills, Identify: d.callers.Identify, Connections: c.connections(), Explain: d.server.Explain,
		Version: buildVersion(), OpenWorld: c.Network.on, Publish: c.Listen.SkillsIndex, MaxMessageBytes: int64(c.MessageBytes),
		Hold:  func(c *ingress.Conn, n int64) (func(), bool) { return requests.Hold(c.Peer(), c.Tenant(), n) },
		Audit: d.audit, Tracer: d.tracing.Tracer(), Log: log,
	})
	d.metrics.Watch(func() metrics.State { return d.state(requests) })
	d.scrapes = d.metrics.NewServer(d.readiness.report, log)
	return d, nil
}

// wait returns after a drain, which SIGTERM, SIGINT or a failed listener begins. A second
// signal exits at once, and the kernel kills the sandboxes with the daemon. Its exit does not run
// close: the next start clears the rest (sandbox.Open, record.Open).
// If the sockets stay open, no connection is refused meanwhile.
func (d *daemon) wait(ctx context.Context, signals <-chan os.Signal, failed <-chan error, stay bool) error {
	var err error
	for draining := false; !draining; {
		select {
		case s := <-signals:
			if s == syscall.SIGHUP {
				d.reload(ctx)
				continue
			}
			d.log.Info("draining", "signal", s.String(), "at_most_ms", time.Duration(d.config.Drain).Milliseconds())
			draining = true
		case err = <-failed:
			draining = true
		}
	}
	// sd_notify(3): the shutdown begins.
	notify("STOPPING=1")
	go func() {
		for s := range signals {
			if s != syscall.SIGHUP {
				d.log.Warn("exiting at once", "signal", s.String())
				os.Exit(1)
			}
		}
	}()
	patience, cancel := context.WithTimeout(ctx, time.Duration(d.config.Drain))
	defer cancel()
	if stay {
		d.leave(patience)
	}
	d.readiness.set(func(r *readiness) { r.draining = true })
	// Health keeps new callers away. Drain takes hardly longer than drain and cancel_grace together.
	d.executor.Drain(patience)
	// All executions have ended. Clients get some time to read the outcomes.
	readers, cancel := context.WithTimeout(ctx, readerPatience)
	defer cancel()
	var stopping sync.WaitGroup
	stopping.Go(func() { d.server.Stop(readers) })
	stopping.Go(func() { d.mcp.Stop(readers) })
	stopping.Go(func() { d.scrapes.Stop(readers) })
	stopping.Wait()
	return err
}

// leave lets new connections wait for the next daemon, and returns when the clients have left the old ones, or ctx
// is done. Until then no call is refused: a call can be on its way when its client is asked to leave. It does
// not wait for clients that stay connected without an execution for longer than readerPatience.
func (d *daemon) leave(ctx context.Context) {
	if err := d.mcp.Hold(ctx); err != nil {
		d.log.Warn("new connections of MCP can be refused", "err", err)
	}
	left := d.server.Leave(ctx)
	d.log.Info("new connections wait for the next daemon")
	look := time.NewTicker(readerPatience / 50)
	defer look.Stop()
	for idle := 0; idle < 50; idle++ {
		select {
		case <-left:
			return
		case <-ctx.Done():
			return
		case <-look.C:
		}
		if running, queued, _ := d.executor.Counts(); running+queued > 0 {
			idle = 0
		}
	}
}

// reload loads the tenants and the skills again, after SIGHUP. An error leaves the loaded skills as they were.
// Tenants come first, so that a skill that is new for a tenant is visible when it is loaded.
func (d *daemon) reload(ctx context.Context) {
	d.reloadTenants(ctx)
	changes, err := d.skills.Reload(ctx)
	if err != nil {
		d.log.Error("skills not reloaded", "err", err)
		return
	}
	d.log.Info("skills reloaded", "added", changes.Added, "updated", changes.Updated, "removed", changes.Removed)
}

// watchSkills runs until ctx ends. If watching fails, for example because the machine has no inotify
// instance left (inotify(7)), the daemon goes on; SIGHUP still reloads.
func (d *daemon) watchSkills(ctx context.Context) {
	if err := d.skills.Watch(ctx); err != nil && ctx.Err() == nil {
		d.log.Error("skills are not watched; send SIGHUP after a change", "err", err)
	}
}

// sweepRecords removes executions past their retention until ctx ends. An error is logged, and
// the next tick tries again.
func (d *daemon) sweepRecords(ctx context.Context) {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for {
		// The first sweep is at the start: records may have expired while no daemon ran.
		if removed, freed, err := d.record.Sweep(ctx, time.Now()); err != nil && ctx.Err() == nil {
			d.log.Error("retention", "err", err)
		} else if removed > 0 {
			d.log.Info("retention", "removed", removed, "freed_bytes", freed)
		}
		d.sweepTenants(ctx)
		d.sweepSessions()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// close closes the parts that were made, users before the things that they use: builds run in
// sandboxes of the host, and these sandboxes mount snapshots of skills, the embedded Python and
// images. It may be called when start has failed half-way.
func (d *daemon) close() error {
	var errs []error
	d.tracing.Close() // all calls and executions have ended
	// A build waits for its sandbox, so it must end before the host does.
	if d.environments != nil {
		d.environments.Close()
	}
	if d.networks != nil {
		d.networks.Close() // before the host, which has the helpers' cgroups; no execution runs
	}
	if d.host != nil {
		errs = append(errs, d.host.Close())
	}
	if d.probing != nil {
		d.probing.done.Wait() // host.Close has ended the probe
	}
	if d.skills != nil {
		errs = append(errs, d.skills.Close())
	}
	errs = append(errs, d.closeSessions())
	if d.record != nil {
		errs = append(errs, d.record.Close())
	}
	errs = append(errs, d.audit.Close())
	if d.python != nil {
		errs = append(errs, d.python.Close())
	}
	errs = append(errs, d.images.close())
	return errors.Join(errs...)
}

// lockPatience is how long a start waits for the lock of a killed daemon. The kernel
// releases the lock when the last copy of its descriptor is closed (flock(2)). A child that the daemon
// forked holds a copy until its exec.
const lockPatience = 3 * time.Second

// lockState creates the state directory and locks it against other daemons. unlock
// releases the lock. The file stays after the daemon's end: if it were removed, two daemons could lock
// two files with the same name.
func lockState(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(lockPatience)
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	for errors.Is(err, unix.EWOULDBLOCK) && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("state_dir %s: another skillrund uses it; stop that one, or choose another directory", dir)
		}
		return nil, fmt.Errorf("state_dir %s: %w", dir, err)
	}
	return func() { f.Close() }, nil
}

// newLogger writes lines to w, which is standard error: systemd keeps them with the unit.
func newLogger(c config, w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: c.Log.Level}
	if c.Log.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
