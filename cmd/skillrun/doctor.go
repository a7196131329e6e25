package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	skillrun "github.com/skillrun/skillrun/clients/go"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// codeMissing is the exit code of doctor if a boundary is missing, or the audit log cannot be written.
const codeMissing = 1

// doctorCommand makes one call, GetCapabilities, which a daemon answers even if it refuses to run
// anything. So it works where run does not.
func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Show what the daemon and its machine can do, and what is missing",
		Long: `Doctor shows the state of the daemon: ready, degraded (it takes executions, but
something is wrong), draining, or live but not ready. It shows each boundary that a
sandbox needs: whether the daemon found the boundary at its start, what it keeps apart,
and how to get a missing one. "allowed" means that the boundary is missing, but the
daemon's configuration permits that (boundaries.allow_missing).
It also shows the folders of skills that did not load, and why. An operator sees the
tenants whose last change is not in force because of a mistake, and warnings about
the configuration: network rules without an effect, and missing secrets.
It exits with 1 if a boundary is missing, allowed or not, or if the daemon cannot write
its audit log, and with 125 if no daemon answers. To try a machine without a daemon,
use skillrund --doctor.`,
		Args: arguments(noArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Without --wait doctor answers at once that no daemon answers: that is what its user wants to know.
			c, err := a.dialNow()
			if err != nil {
				return err
			}
			defer c.Close()
			r, err := c.System().GetCapabilities(cmd.Context(), &pb.GetCapabilitiesRequest{})
			// An Unavailable with a reason comes from a daemon; without one no daemon was
			// reached.
			if status.Code(err) == codes.Unavailable && skillrun.Reason(err) == "" {
				a.explainMissingDaemon(err)
				return verdict(codeFailed)
			}
			if err != nil {
				return err
			}
			if a.json {
				err = a.printJSON(r)
			} else {
				err = a.printCapabilities(r)
			}
			if err != nil {
				return err
			}
			for _, b := range r.GetBoundaries() {
				if !b.GetFound() {
					return verdict(codeMissing)
				}
			}
			if r.GetAuditProblem() != "" {
				return verdict(codeMissing)
			}
			return nil
		},
	}
}

// explainMissingDaemon says more than explain does: doctor is what users try when no daemon answers.
func (a *app) explainMissingDaemon(err error) {
	for _, line := range []string{
		"no daemon answers at " + a.at() + ": " + connectCause(status.Convert(err).Message()),
		"start it:          systemctl start skillrund, or as root: skillrund --config /etc/skillrun/skillrund.yaml",
		"if it won't start: its log says which boundary is missing; skillrund --check finds mistakes in its configuration",
		"if it is elsewhere: --address or " + addressVariable + ", unix:///path or host:port",
	} {
		a.note("%s", line)
	}
}

// runtimesTable lists the interpreters. It has the column IMAGE only if the daemon has images; "-" in this column
// means the host's file system.
func runtimesTable(r *pb.GetCapabilitiesResponse) *table {
	t := &table{}
	if len(r.GetImages()) == 0 {
		t.header("RUNTIME", "VERSION", "PATH")
		for _, r := range r.GetRuntimes() {
			t.add(plain(r.GetLanguage(), r.GetVersion(), r.GetPath())...)
		}
		return t
	}
	t.header("RUNTIME", "VERSION", "PATH", "IMAGE")
	for _, r := range r.GetRuntimes() {
		t.add(plain(r.GetLanguage(), r.GetVersion(), r.GetPath(), cmp.Or(r.GetImage(), "-"))...)
	}
	return t
}

// imagesTable lists the root file systems that the daemon's runtimes use, and the languages that
// run in each.
func imagesTable(r *pb.GetCapabilitiesResponse) *table {
	t := &table{}
	t.header("IMAGE", "RUNS", "SOURCE")
	for _, i := range r.GetImages() {
		t.add(plain(i.GetName(), strings.Join(i.GetRuntimes(), ", "), i.GetSource())...)
	}
	return t
}

// problemsTable lists the folders whose skills did not load.
func problemsTable(r *pb.GetCapabilitiesResponse) *table {
	t := &table{}
	t.header("NOT LOADED", "REASON", "STILL LOADED")
	for _, p := range r.GetSkillProblems() {
		t.add(cell{text: p.GetFolder()}, cell{text: p.GetReason(), colour: yellow}, cell{text: cmp.Or(p.GetKeptSkill(), "-")})
	}
	return t
}

// tenantProblemsTable lists the tenants whose last change has a mistake.
func tenantProblemsTable(r *pb.GetCapabilitiesResponse) *table {
	t := &table{}
	t.header("TENANT", "IN FORCE", "REASON")
	for _, p := range r.GetTenantProblems() {
		kept := "nothing"
		if p.GetKept() {
			kept = "its former version"
		}
		t.add(cell{text: cmp.Or(p.GetTenant(), "all of "+p.GetFile())}, cell{text: kept}, cell{text: oneLine(p.GetReason()), colour: yellow})
	}
	return t
}

// oneLine joins the lines of a text for a table.
func oneLine(text string) string {
	return strings.Join(strings.FieldsFunc(strings.ReplaceAll(text, "\n  ", "\n"), func(r rune) bool { return r == '\n' }), "; ")
}

// warningsTable lists the parts of the configuration that have no effect. "-" instead of a tenant means a key of the
// daemon.
func warningsTable(r *pb.GetCapabilitiesResponse) *table {
	t := &table{}
	t.header("TENANT", "FILE", "WARNING")
	for _, w := range r.GetConfigurationWarnings() {
		t.add(cell{text: cmp.Or(w.GetTenant(), "-")}, cell{text: w.GetFile()}, cell{text: w.GetReason(), colour: yellow})
	}
	return t
}

// daemonCell returns the state of the daemon, and the causes of a bad state. Every daemon that answers is live.
func daemonCell(r *pb.GetCapabilitiesResponse) cell {
	switch r.GetState() {
	case pb.DaemonState_DAEMON_STATE_READY:
		return cell{text: "ready", colour: green}
	case pb.DaemonState_DAEMON_STATE_DRAINING:
		return cell{text: "draining: it takes no more executions, and stops after its running ones", colour: yellow}
	case pb.DaemonState_DAEMON_STATE_DEGRADED:
		return cell{text: "degraded: " + strings.Join(causes(r, true), "; "), colour: yellow}
	}
	return cell{text: "live, but not ready: " + strings.Join(causes(r, false), "; "), colour: red}
}

// causes returns why a daemon is degraded if allowed is set, or else why it accepts no executions.
func causes(r *pb.GetCapabilitiesResponse, allowed bool) (list []string) {
	for _, b := range r.GetBoundaries() {
		if !b.GetFound() && b.GetAllowed() == allowed {
			list = append(list, "boundary "+b.GetName()+" is missing")
		}
	}
	if !allowed && r.GetAuditProblem() != "" {
		list = append(list, "the audit log cannot be written")
	}
	if problems := r.GetTenantProblems(); allowed && len(problems) > 0 {
		p := problems[0]
		text := "mistake in " + p.GetFile()
		if more := len(problems) - 1; more > 0 {
			text += fmt.Sprintf(" and in %d more", more)
		}
		list = append(list, text)
	}
	return list
}

// printCapabilities prints the daemon's facts, the boundaries, the interpreters, the images and the
// skills that did not load, with an empty line between the tables. The missing boundaries come again on stderr, after
// tables that may be longer than a screen.
func (a *app) printCapabilities(r *pb.GetCapabilitiesResponse) error {
	facts := &table{}
	facts.field("daemon", r.GetVersion()+", since "+timeText(r.GetStartTime()))
	facts.add(cell{text: "state"}, daemonCell(r))
	if r.GetAuditProblem() != "" {
		facts.add(cell{text: "audit log"}, cell{text: "it takes no executions, because the audit log cannot be written: " + r.GetAuditProblem(), colour: red})
	}
	facts.field("kernel", r.GetKernel()+", cgroup "+word("CGROUP_VERSION_", r.GetCgroupVersion().String()))
	facts.field("executions", fmt.Sprintf("%d of %d running, %d of %d queued", r.GetRunning(), r.GetMaxRunning(), r.GetQueued(), r.GetMaxQueued()))
	facts.field("network", word("NETWORK_MODE_", r.GetNetwork().String()))
	facts.field("kept", durationText(r.GetRetention()))
	facts.field("messages", "up to "+bytesText(r.GetMaxMessageBytes()))
	facts.field("default limits", limitsText(r.GetDefaultLimits()))
	facts.field("largest limits", limitsText(r.GetMaxLimits()))

	boundaries := &table{}
	boundaries.header("BOUNDARY", "", "GROUP", "KEEPS APART", "DETAIL")
	var missing []string
	refused := 0 // missing boundaries without which the daemon runs nothing
	for _, b := range r.GetBoundaries() {
		found := cell{text: "found", colour: green}
		if !b.GetFound() {
			found = cell{text: "MISSING", colour: red}
			if b.GetAllowed() {
				found = cell{text: "allowed", colour: yellow}
			} else {
				refused++
			}
			missing = append(missing, b.GetName())
		}
		boundaries.add(cell{text: b.GetName()}, found, cell{text: word("BOUNDARY_GROUP_", b.GetGroup().String())}, cell{text: b.GetWhy()}, cell{text: b.GetDetail()})
	}

	tables := []*table{facts, boundaries, runtimesTable(r)}
	if len(r.GetImages()) > 0 {
		tables = append(tables, imagesTable(r))
	}
	if len(r.GetTenantProblems()) > 0 {
		tables = append(tables, tenantProblemsTable(r))
	}
	if len(r.GetConfigurationWarnings()) > 0 {
		tables = append(tables, warningsTable(r))
	}
	if len(r.GetSkillProblems()) > 0 {
		tables = append(tables, problemsTable(r))
	}
	for i, t := range tables {
		if i > 0 {
			fmt.Fprintln(a.stdout)
		}
		if err := a.print(t); err != nil {
			return err
		}
	}
	if len(missing) > 0 {
		a.note("missing: %s", strings.Join(missing, ", "))
		if refused > 0 {
			a.note("the daemon runs nothing until they are there, or boundaries.allow_missing of its configuration names them")
		}
	}
	return nil
}
