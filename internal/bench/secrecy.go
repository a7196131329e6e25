package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	skillrun "github.com/skillrun/skillrun/clients/go"
	"github.com/skillrun/skillrun/internal/record"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// secretSkill is a skill that one tenant has pushed.
const secretSkill = "secret"

// A question asks for something of another tenant by its name, theirs. nobodys is a name of the same form
// that no tenant uses. It is one name for all calls: HTTP/2 compresses a name in the headers of an answer better
// if the same name came before, so new names would take longer for a reason that has nothing to do with
// tenants.
type question struct {
	row             string
	theirs, nobodys string
	ask             func(ctx context.Context, c *skillrun.Client, name string) error
}

// secrecy compares the times of refusals: one tenant asks in turns for things of another tenant, and for
// things that do not exist. If the times differ, the tenant learns which names another tenant uses.
func secrecy(r *run, rows rowSet) error {
	// The stranger has no quota of calls: it asks as fast as it can.
	d, err := r.startNew("secrecy", `identity: {tokens: tokens.json}
tenants: {default: {}, owner: {}, stranger: {quotas: {calls_per_second: 0}}}
`)
	if err != nil {
		return err
	}
	return errors.Join(secrecyBeneath(r, d, rows), d.stop())
}

// secrecyBeneath fills two rows for each question: -p50 has the median times of both names and the larger
// ratio of the two, -rank the absolute z of the rank test. A z of 2 or less is what one set of times gives in 95
// of 100 comparisons with itself.
func secrecyBeneath(r *run, d *daemon, rows rowSet) error {
	owner, err := r.admin(d, "owner")
	if err != nil {
		return err
	}
	defer owner.Close()
	stranger, err := r.admin(d, "stranger")
	if err != nil {
		return err
	}
	defer stranger.Close()
	all, end, err := r.secrets(owner)
	if err != nil {
		return err
	}
	defer end()
	for _, q := range all {
		theirs, nobodys, err := r.refusals(stranger, q, r.samples(2000))
		if err != nil {
			return fault(q.row, err)
		}
		row := rows[q.row+"-p50"]
		row.set(median(theirs), len(theirs))
		row.Bare = number(median(nobodys))
		row.Ratio = number(max(median(theirs)/median(nobodys), median(nobodys)/median(theirs)))
		rows[q.row+"-rank"].set(math.Abs(rankTest(theirs, nobodys)), len(theirs))
		r.report.keep(q.row, "ms", []*subject{{name: "another tenant's"}, {name: "nobody's"}}, [][]float64{theirs, nobodys})
	}
	return nil
}

// admin returns a client with the role admin in a tenant.
func (r *run) admin(d *daemon, tenant string) (*skillrun.Client, error) {
	token, err := r.token(d, tenant, "admin")
	if err != nil {
		return nil, err
	}
	return skillrun.Dial(d.address(), skillrun.WithToken(token))
}

// secrets makes an execution of owner that has ended, one that runs until end is called, a session and a pushed skill.
func (r *run) secrets(owner *skillrun.Client) (all []question, end func(), err error) {
	ended := owner.Command(benchSkill, "true")
	if err := ended.Run(r.ctx); err != nil {
		return nil, nil, err
	}
	dir := filepath.Join(r.dir, secretSkill)
	if err := writeSkill(r.dir, secretSkill, map[string]string{"SKILL.md": "---\nname: " + secretSkill + "\ndescription: One tenant has it.\n---\n"}); err != nil {
		return nil, nil, err
	}
	pushed, err := owner.PushSkill(r.ctx, os.DirFS(dir), skillrun.PushOptions{})
	if err != nil {
		return nil, nil, fault("push", err)
	}
	made, err := owner.Sessions().CreateSession(r.ctx, &pb.CreateSessionRequest{})
	if err != nil {
		return nil, nil, fault("create a session", err)
	}
	session := made.GetSession().GetSessionId()
	s, err := startSleeper(r.ctx, owner)
	if err != nil {
		return nil, nil, err
	}
	end = func() { _ = cancelAll(r, []*sleeper{s}) } // the daemon's end cancels it, too
	pin := func(name string) string { return name + "@" + pushed.GetVersion().GetDigest() }
	return []question{
		{"secrecy-get", ended.Execution.ID, record.NewID(), get},
		{"secrecy-running", s.cmd.Execution.ID, record.NewID(), get},
		{"secrecy-attach", s.cmd.Execution.ID, record.NewID(), attach},
		{"secrecy-cancel", s.cmd.Execution.ID, record.NewID(), stop},
		{"secrecy-signal", s.cmd.Execution.ID, record.NewID(), signal},
		{"secrecy-delete", ended.Execution.ID, record.NewID(), remove},
		{"secrecy-artifacts", ended.Execution.ID, record.NewID(), artifacts},
		{"secrecy-artifact", ended.Execution.ID, record.NewID(), artifact},
		{"secrecy-session", session, record.NewID(), getSession},
		{"secrecy-session-files", session, record.NewID(), sessionFilesOf},
		{"secrecy-session-use", session, record.NewID(), useSession},
		{"secrecy-skill", secretSkill, randomName(), skill},
		{"secrecy-pinned", pin(secretSkill), pin(randomName()), skill},
		{"secrecy-environment", secretSkill, randomName(), prepare},
	}, end, nil
}

// randomName is as long as secretSkill.
func randomName() string {
	id := strings.ReplaceAll(record.NewID(), "-", "")
	return "s" + id[len(id)-len(secretSkill)+1:]
}

// refusals asks n times for each of the two names of a question, in turns, and returns the times. Every
// second pair begins with the other name.
func (r *run) refusals(c *skillrun.Client, q question, n int) (theirs, nobodys []float64, err error) {
	for i := range r.scale.warmUp*10 + n {
		names := []string{q.theirs, q.nobodys}
		times := make([]float64, 2)
		for turn := range 2 {
			// The order changes with each pair, so that neither name always comes after the other one.
			which := (i + turn) % 2
			times[which], err = timed(func() error { return refused(q.ask(r.ctx, c, names[which])) })
			if err != nil {
				return nil, nil, err
			}
		}
		if i >= r.scale.warmUp*10 {
			theirs, nobodys = append(theirs, times[0]), append(nobodys, times[1])
		}
	}
	return theirs, nobodys, nil
}

// refused returns an error unless err is NOT_FOUND.
func refused(err error) error {
	if status.Code(err) != codes.NotFound {
		return fmt.Errorf("got %w, want NOT_FOUND", err)
	}
	return nil
}

// The calls of the questions follow. Each returns the refusal; the calls with a stream have it only at the first
// Recv, because gRPC's client reports it there.

func get(ctx context.Context, c *skillrun.Client, id string) error {
	_, err := c.Executions().GetExecution(ctx, &pb.GetExecutionRequest{ExecutionId: id})
	return err
}

func stop(ctx context.Context, c *skillrun.Client, id string) error {
	_, err := c.Executions().CancelExecution(ctx, &pb.CancelExecutionRequest{ExecutionId: id})
	return err
}

func signal(ctx context.Context, c *skillrun.Client, id string) error {
	_, err := c.Executions().SignalExecution(ctx, &pb.SignalExecutionRequest{ExecutionId: id, Signal: "SIGUSR1"})
	return err
}

func remove(ctx context.Context, c *skillrun.Client, id string) error {
	_, err := c.Executions().DeleteExecution(ctx, &pb.DeleteExecutionRequest{ExecutionId: id})
	return err
}

func artifacts(ctx context.Context, c *skillrun.Client, id string) error {
	_, err := c.Executions().ListArtifacts(ctx, &pb.ListArtifactsRequest{ExecutionId: id})
	return err
}

func getSession(ctx context.Context, c *skillrun.Client, id string) error {
	_, err := c.Sessions().GetSession(ctx, &pb.GetSessionRequest{SessionId: id})
	return err
}

func sessionFilesOf(ctx context.Context, c *skillrun.Client, id string) error {
	_, err := c.Sessions().ListSessionFiles(ctx, &pb.ListSessionFilesRequest{SessionId: id})
	return err
}

func useSession(ctx context.Context, c *skillrun.Client, id string) error {
	cmd := trueProgram.sandboxed(c)
	cmd.Session = &skillrun.Session{ID: id}
	return cmd.Run(ctx)
}

func prepare(ctx context.Context, c *skillrun.Client, name string) error {
	stream, err := c.Skills().PrepareSkill(ctx, &pb.PrepareSkillRequest{Skill: name})
	if err == nil {
		_, err = stream.Recv()
	}
	return err
}

func attach(ctx context.Context, c *skillrun.Client, id string) error {
	stream, err := c.Executions().AttachExecution(ctx, &pb.AttachExecutionRequest{ExecutionId: id})
	if err == nil {
		_, err = stream.Recv()
	}
	return err
}

func artifact(ctx context.Context, c *skillrun.Client, id string) error {
	stream, err := c.Executions().GetArtifact(ctx, &pb.GetArtifactRequest{ExecutionId: id, Path: "result.csv"})
	if err == nil {
		_, err = stream.Recv()
	}
	return err
}

func skill(ctx context.Context, c *skillrun.Client, name string) error {
	_, err := c.Skills().GetSkill(ctx, &pb.GetSkillRequest{Skill: name})
	return err
}
