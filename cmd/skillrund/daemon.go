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

	"github.com/skillrun/skillrun/internal/audit"
	"github.com/skillrun/skillrun/internal/durable"
	"github.com/skillrun/skillrun/internal/environment"
	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/failpoint"
	"github.com/skillrun/skillrun/internal/filelock"
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
	"github.com/skillrun/skillrun/internal/tenant"
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
	tenantSet    *tenant.Set
	server       *server.Server
	mcp          *mcp.Server
	tracing      *tracing.Tracing // nil without tracing.endpoint
	metrics      *metrics.Metrics // counts even if listen.metrics_tcp is empty
	scrapes      *metrics.Server
	tools        *toolview.View
	requests     *budget.Budget

	// The path of the daemon's binary, for a takeover.
	program   string
	agents    []mcp.HandedSession // of agents over HTTP, from before openServers
	lock      *os.File            // holds the lock of the state directory, until this daemon and each other with a copy has closed it
	listeners listeners
	serving   sync.WaitGroup
	endFormer []context.CancelFunc // each ends the calls of servers that a failed takeover has replaced
	failed    chan error           // has room for an error of each listener
	earlier   *earlierDaemon       // from which this daemon has taken over; nil: a plain start
	adopted   chan struct{}        // closed when the earlier daemon has ended and its state is adopted; nil: a plain start
}

// serve starts the daemon and runs it until a signal ends it. Health says SERVING only if every
// required boundary holds. program is the path of the daemon's binary.
func serve(c config, path, program string) error {
	log := newLogger(c, os.Stderr)
	// Stops have their own channel: a signal that finds its channel full is lost, and a reload may take long.
	signals := signals{stop: make(chan os.Signal, 2), other: make(chan os.Signal, 4)}
	// A reload during the start waits for its end. Without this it would end the process, and systemd takes SIGHUP for a
	// clean end, after which it starts nothing again (systemd.service(5), Restart=).
	signal.Notify(signals.other, syscall.SIGHUP, syscall.SIGUSR2)
	// First of all, because other processes must not get the sockets.
	sockets, err := inherit()
	if err != nil {
		return err
	}
	earlier, err := joinEarlier()
	if err != nil {
		return err
	}
	// No signal ends ctx: wait needs it during the drain. It ends when the executions have ended.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	limitHeap(log)
	d := &daemon{
		config: c, path: path, program: program, started: time.Now(), log: log, earlier: earlier, failed: make(chan error, 16),
		metrics: metrics.New(buildVersion(), server.Reason, server.Reasons()),
	}
	if err := d.start(ctx); err != nil {
		return err
	}
	if earlier != nil {
		failpoint.Reach(failpoint.BeforeServing)
	}
	// From here on clients can connect; their calls wait in the sockets until Serve runs.
	listeners, err := d.listen(sockets)
	if err != nil {
		return errors.Join(err, d.close())
	}
	d.tenants.mu.Lock()
	d.writeInForce()
	d.tenants.mu.Unlock()
	// Before this line these signals end the process at once, which is safe: no execution runs yet.
	signal.Notify(signals.stop, syscall.SIGTERM, syscall.SIGINT)
	d.accept(listeners)
	var background sync.WaitGroup
	if earlier != nil {
		d.serving.Go(func() {
			if err := d.server.ServeForwarded(earlier.clients); err != nil {
				log.Error("takeover: calls of the earlier daemon are refused", "err", err)
			}
		})
		if err := earlier.serving(); err != nil {
			// Return without d.close: the earlier daemon has given up, so it kills this process and
			// removes its remains.
			return err
		}
		earlier.sockets.remove()
		d.listeners.removeNames(true)
		d.metrics.Takeover(metrics.TakenOver)
		d.adopted = make(chan struct{})
		background.Go(func() { d.outlive(ctx, earlier) })
	}
	background.Go(func() { d.watchSkills(ctx) })
	background.Go(func() { d.compileVenvs(ctx) })
	background.Go(func() { d.sweepRecords(ctx) })
	background.Go(func() { d.watchTenants(ctx) })

	d.readiness.set(func(r *readiness) { r.started = true })
	d.announce()

	// wait has drained the executor and stopped all servers, so every Serve returns.
	err = d.wait(ctx, signals)
	cancel()
	d.serving.Wait()
	background.Wait()
	return errors.Join(err, d.close())
}

// announce tells systemd and the log that the daemon has started.
func (d *daemon) announce() {
	// After a takeover systemd must know that this process is the service's main process now, instead of the earlier
	// daemon.
	main := fmt.Sprintf("MAINPID=%d\n", os.Getpid())
	if len(d.missing) == 0 {
		notify(main + "READY=1")
		d.log.Info("serving", "version", buildVersion(), "skills", len(d.skills.List()))
		return
	}
	// The daemon keeps running, so that its operator can ask which boundaries are missing.
	notify(main + "READY=1\nSTATUS=Not serving, boundaries are missing: " + strings.Join(d.missing, ", "))
	d.log.Error("not serving: executions are refused while boundaries are missing; mend them and restart the daemon",
		"missing", strings.Join(d.missing, ", "))
}

// listen opens the listeners of the configuration. In a takeover it uses the sockets of the earlier daemon. Those that
// the configuration no longer has stay in d.earlier.sockets.
func (d *daemon) listen(sockets inherited) (listeners, error) {
	if d.earlier == nil {
		return listen(d.config, sockets, d.log)
	}
	open, err := listenFrom(d.config, &d.earlier.sockets, d.log)
	open.stay = open.stay && d.earlier.stay
	return open, err
}

// accept serves the listeners. A server that fails sends its error to d.failed.
func (d *daemon) accept(open listeners) {
	d.listeners = open
	for _, l := range open.all {
		message, serve := "listening", d.server.Serve
		switch l.to {
		case serviceMCP:
			message, serve = "listening for MCP", d.mcp.Serve
		case serviceMetrics:
			message, serve = "listening for Prometheus", d.scrapes.Serve
		}
		d.log.Info(message, "network", l.Addr().Network(), "address", l.Addr().String())
		d.serving.Go(func() {
			if err := serve(open.secured(l)); err != nil {
				d.failed <- err
			}
		})
	}
}

// start makes all parts of a daemon except the listeners. On an error it closes the parts
// that it has made. sandbox.Open comes before executor.New: it ends the sandboxes of a dead daemon
// before their executions are recorded as lost.
func (d *daemon) start(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	if d.earlier == nil {
		if d.lock, err = lockState(d.config.StateDir); err == nil {
			d.removeUnfinished()
			err = record.ReleaseBallast(filepath.Join(d.config.StateDir, "record"))
		}
	} else {
		d.lock, err = d.earlier.takeLock(&d.config)
	}
	if err != nil {
		return err
	}
	if err := d.prepare(ctx); err != nil {
		return err
	}
	if err := d.earlier.await(); err != nil {
		return err
	}
	if err := d.openStores(ctx); err != nil {
		return err
	}
	if d.earlier != nil {
		d.agents = d.earlier.handed.Agents
	}
	return d.openServers()
}

// prepare makes the parts that both daemons of a takeover can use at the same time. In a takeover, the earlier daemon
// still serves.
func (d *daemon) prepare(ctx context.Context) (err error) {
	c, log := &d.config, d.log
	if d.tracing, err = c.openTracing(log); err != nil {
		return err
	}
	// Images come before the host, since the host mounts their directories as root file systems.
	if d.images, err = openImages(ctx, *c, log); err != nil {
		return err
	}
	if d.runtimes, err = runtime.Discover(ctx, runtime.Config{Rootfs: "/", Python: runtime.Python(c.Python)}); err != nil {
		return err
	}
	sandboxes := c.sandbox(log)
	sandboxes.Links = d.runtimes.Links()
	if sandboxes.Roots, err = d.images.roots(ctx); err != nil {
		return err
	}
	if d.host, err = sandbox.Open(ctx, sandboxes); err != nil {
		return err
	}
	// The probe runs while the next parts start; judge waits for it.
	d.probing = startProbing(ctx, d.host)
	// Not before sandbox.Open, since it starts a process: on cgroup v2 the daemon must be alone in its cgroup until then.
	if err := d.installPython(ctx, beside(d.program, pythonProgram)); err != nil {
		return err
	}
	// The built-in skill comes first in Roots. It runs the code of tool calls that name no skill.
	builtIn, err := toolview.WriteBuiltIn(filepath.Join(c.StateDir, "builtin"))
	if err != nil {
		return err
	}
	d.tenantSet = c.tenantSet()
	d.skills, err = skill.OpenRegistry(ctx, skill.RegistryConfig{
		Roots: append(skill.Roots(builtIn), roots(c.Skills)...), Private: privateRoots(c.loaded), Dir: filepath.Join(c.StateDir, "snapshots"),
		Owner:    snapshot.Owner{UID: sandbox.ScriptID, GID: sandbox.ScriptID},
		MaxFiles: c.Snapshots.Files, MaxBytes: int64(c.Snapshots.Bytes), Log: log,
		TenantsDir: filepath.Join(c.StateDir, "tenants"), Rules: c.skillRules(d.tenantSet), Reserved: []string{toolview.BuiltInSkill},
		Takeover: d.earlier != nil,
		Removed:  func(dir string) { d.environments.Forget(dir) }, // by a reload, so environments is open
	})
	if err != nil {
		return err
	}
	environments := c.environments(d.host, d.python, log)
	environments.Takeover = d.earlier != nil
	environments.Group = func(tenant string) string { return executor.GroupOf(d.tenantSet, tenant) }
	if d.environments, err = environment.Open(environments); err != nil {
		return err
	}
	// Before routeRuntimes, which runs programs of images in sandboxes.
	if d.missing, err = d.judge(); err != nil {
		return err
	}
	d.judged()
	if err := d.routeRuntimes(ctx); err != nil {
		return err
	}
	d.networks, err = c.openNetworks(d.host, beside(d.program, network.Program), log)
	return err
}

// openStores opens the stores that only one daemon at a time may change freely (audit log, record, sessions), and the
// executor. In a takeover the earlier daemon has handed them over, and only ends its executions in them.
func (d *daemon) openStores(ctx context.Context) (err error) {
	c, log, tenants := &d.config, d.log, d.tenantSet
	if d.earlier != nil {
		if err := errors.Join(d.skills.Reread(ctx), d.environments.Reread(ctx)); err != nil {
			return err
		}
	}
	inherited, ids := d.earlier.executions()
	// The audit log is open before anything that it must contain can happen.
	if d.audit, err = d.openAudit(); err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	// A purge makes a temporary copy of the database. Without this variable SQLite would put the copy into /tmp, which
	// may be small, or less protected than state_dir. SQLite reads the variable only once.
	if err := os.Setenv("SQLITE_TMPDIR", filepath.Join(c.StateDir, "record")); err != nil {
		return err
	}
	d.record, err = record.Open(record.Config{
		Dir: filepath.Join(c.StateDir, "record"), MaxAge: time.Duration(c.Retention.Age), MaxBytes: int64(c.Retention.Bytes),
		Wrote: d.metrics.Wrote, Log: log, Takeover: d.earlier != nil, Earlier: ids,
	})
	if err != nil {
		return err
	}
	if d.sessions, err = c.openSessions(tenants, d.earlier, log); err != nil {
		return fmt.Errorf("sessions: %w", err)
	}
	var from executor.Earlier
	if d.earlier != nil {
		from = d.earlier
	}
	d.executor, err = executor.New(ctx, executor.Config{
		Earlier: from, Inherited: inherited,
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
		return err
	}
	d.tools = toolview.New(toolview.Config{Executor: d.executor, Skills: d.skills, AuditArguments: c.Log.Arguments, SessionIdle: time.Duration(c.Sessions.MCPIdleTTL), Log: log})
	if d.requests, err = budget.New(c.requestBytes(), int64(c.MessageBytes)); err != nil {
		return err
	}
	identities := c.identity(log)
	identities.Failed = d.unidentified
	if d.callers, err = identity.Open(identities); err != nil {
		return err
	}
	d.tenants = newTenancy(&d.config, d.executor.Tenants)
	d.warnAll()
	d.metrics.Watch(func() metrics.State { return d.state(d.requests) })
	return nil
}

// openServers makes the servers. After a failed takeover the daemon calls it again, because a server that has stopped
// cannot serve again.
func (d *daemon) openServers() (err error) {
	c, log := &d.config, d.log
	d.server, err = server.New(server.Config{
		Identify: d.callers.Identify, Connections: c.connections(), Executor: d.executor, Skills: d.skills, Tools: d.tools, Capabilities: d.capabilities,
		MaxMessageBytes: int(c.MessageBytes), Budget: d.requests, KeepaliveInterval: time.Duration(c.Keepalive),
		StagingDir: filepath.Join(c.StateDir, "uploads"), Takeover: d.earlier != nil || d.server != nil, Audit: d.audit, Failed: d.metrics.Failed, Tracer: d.tracing.Tracer(), Log: log,
	})
	if err != nil {
		return err
	}
	d.readiness.set(func(r *readiness) { r.server = d.server })
	// MCP uses the same tools, executor and budget of request memory (Hold) as gRPC.
	d.mcp = mcp.New(mcp.Config{
		Tools: d.tools, Executor: d.executor, Skills: d.skills, Identify: d.callers.Identify, Connections: c.connections(), Explain: d.server.Explain,
		Version: buildVersion(), OpenWorld: c.Network.on, Publish: c.Listen.SkillsIndex, MaxMessageBytes: int64(c.MessageBytes),
		Hold:  func(c *ingress.Conn, n int64) (func(), bool) { return d.requests.Hold(c.Peer(), c.Tenant(), n) },
		Audit: d.audit, Tracer: d.tracing.Tracer(), Log: log,
	})
	d.mcp.Inherit(d.agents)
	d.scrapes = d.metrics.NewServer(d.readiness.report, log)
	return nil
}

// signals are the signals that the daemon has got.
type signals struct {
	stop  chan os.Signal // SIGTERM and SIGINT
	other chan os.Signal // SIGHUP and SIGUSR2
}

// wait returns after a drain, which SIGTERM, SIGINT, a failed listener or a takeover begins. A second
// SIGTERM or SIGINT exits at once, and the kernel kills the sandboxes with the daemon. Its exit does not run
// close: the next start clears the rest (sandbox.Open, record.Open).
// If the sockets stay open, connections wait in the kernel for the next daemon, and none is refused.
func (d *daemon) wait(ctx context.Context, signals signals) error {
	handed, err := d.untilStop(ctx, signals)
	if !handed {
		// sd_notify(3): the shutdown begins.
		notify("STOPPING=1")
	}
	go func() {
		if handed { // no such signal has come yet, because SIGUSR2 began the drain
			s := <-signals.stop
			d.log.Info("draining already; a second signal ends the executions at once", "signal", s.String())
		}
		d.exit(<-signals.stop)
	}()
	began := time.Now()
	patience, cancel := context.WithTimeout(ctx, time.Duration(d.config.Drain))
	defer cancel()
	if d.listeners.stay && !handed {
		d.leave(patience)
	}
	d.readiness.set(func(r *readiness) { r.draining = true })
	d.mcp.Leave()
	late := patience
	if handed { // clients already have the next daemon, so this process may take its time
		var cancel context.CancelFunc
		late, cancel = context.WithTimeout(ctx, 2*time.Duration(d.config.Drain))
		defer cancel()
	}
	// Health keeps new callers away. Drain takes hardly longer than drain and cancel_grace together, and twice that in a
	// takeover.
	d.executor.Drain(patience, late)
	if handed {
		d.awaitForwarded(ctx, began)
		d.awaitBuilds(ctx)
	}
	// All executions have ended. Clients get some time to read the outcomes.
	readers, cancel := context.WithTimeout(ctx, readerPatience)
	defer cancel()
	d.stopper()(readers)
	for _, end := range d.endFormer {
		end()
	}
	return err
}

// exit ends the process at once, because of a second signal.
func (d *daemon) exit(s os.Signal) {
	d.log.Warn("exiting at once", "signal", s.String())
	os.Exit(1)
}

// stopper returns a function that stops the present servers. It holds them, because resume may replace d.server, d.mcp
// and d.scrapes before the call. Calls of the servers may go on until the function's context is done.
func (d *daemon) stopper() func(context.Context) {
	calls, agents, scrapes := d.server, d.mcp, d.scrapes
	return func(ctx context.Context) {
		var stopping sync.WaitGroup
		stopping.Go(func() { calls.Stop(ctx) })
		stopping.Go(func() { agents.Stop(ctx) })
		stopping.Go(func() { scrapes.Stop(ctx) })
		stopping.Wait()
	}
}

// untilStop serves until a signal, a failed listener or a takeover ends the service. handed reports whether a next
// daemon serves.
func (d *daemon) untilStop(ctx context.Context, signals signals) (handed bool, _ error) {
	var t takeoverState
	defer t.abandon(ctx, d)
	for {
		select {
		case s := <-signals.other:
			if s == syscall.SIGHUP {
				d.reload(ctx)
			} else {
				t.ask(ctx, d)
			}
		case s := <-signals.stop:
			d.log.Info("draining", "signal", s.String(), "at_most_ms", time.Duration(d.config.Drain).Milliseconds())
			return false, nil
		case <-t.mayBegin(d):
			t.begin(ctx, d)
		case n := <-t.started:
			handed, err := t.finish(ctx, d, n, signals.stop)
			if err != nil {
				return false, err
			}
			if handed {
				d.log.Info("draining for the next daemon", "at_most_ms", time.Duration(d.config.Drain).Milliseconds())
				return true, nil
			}
		case err := <-d.failed:
			return false, err
		}
	}
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

// reload loads the tenants and the skills again, after SIGHUP, and logs which other keys have changed. An error leaves
// the loaded skills as they were.
// Tenants come first, so that a skill that is new for a tenant is visible when it is loaded.
func (d *daemon) reload(ctx context.Context) {
	d.reloadTenants(ctx)
	d.warnChanged()
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

// sweepRecords removes executions past their retention until ctx ends. Each time it then closes the lost executions
// that could not be closed before. An error is logged, and the next tick tries again. After HandOver it removes and closes
// nothing, but it still reserves disk space for the executions that run here (see record.Store.Sweep).
func (d *daemon) sweepRecords(ctx context.Context) {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for {
		// The first sweep is at the start: records may have expired while no daemon ran.
		switch removed, freed, err := d.record.Sweep(ctx, time.Now()); {
		case executor.IsHandedOver(err), ctx.Err() != nil:
		case err != nil:
			d.log.Error("old executions were not removed; the daemon tries again in a minute", "err", err)
		case removed > 0:
			d.log.Info("retention", "removed", removed, "freed_bytes", freed)
		}
		d.sweepTenants(ctx)
		if err := d.executor.CloseLeft(ctx); err != nil && ctx.Err() == nil {
			d.log.Error("executions of an earlier daemon were not closed; the daemon tries again in a minute", "err", err)
		}
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
	if d.lock != nil {
		d.lock.Close()
	}
	return errors.Join(errs...)
}

// lockPatience is how long a start waits for the lock of a killed daemon. The kernel
// releases the lock when the last copy of its descriptor is closed (flock(2)). A child that the daemon
// forked holds a copy until its exec.
const lockPatience = 3 * time.Second

// lockName is the file in state_dir with the lock of lockState.
const lockName = "lock"

// lockState creates the state directory and locks it against other daemons. The lock belongs to the open
// file. The file stays after the daemon's end: if it were removed, two daemons could lock
// two files with the same name.
func lockState(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), lockPatience)
	defer cancel()
	if err := filelock.Await(ctx, f, filelock.Exclusive); err != nil {
		f.Close()
		if errors.Is(err, filelock.ErrHeld) {
			return nil, fmt.Errorf("state_dir %s: another skillrund uses it; stop that one, or choose another directory", dir)
		}
		return nil, fmt.Errorf("state_dir %s: %w", dir, err)
	}
	return f, nil
}

// removeUnfinished removes the files that a dead daemon was about to write in state_dir. Sessions, environments and
// images clean their own directories. The caller has the lock of lockState, and no other daemon writes there.
func (d *daemon) removeUnfinished() {
	state := d.config.StateDir
	pushed, _ := filepath.Glob(filepath.Join(state, "tenants/*/skills")) // an error would be about the pattern
	dirs := append(pushed, state, filepath.Join(state, "record"), d.config.auditDir())
	for _, dir := range dirs {
		if err := durable.RemoveUnfinished(dir); err != nil {
			d.log.Warn("unfinished files remain on disk", "dir", dir, "err", err)
		}
	}
}

// newLogger writes lines to w, which is standard error: systemd keeps them with the unit.
func newLogger(c config, w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: c.Log.Level}
	if c.Log.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
