package bench

import (
	"fmt"

	skillrun "github.com/skillrun/skillrun/clients/go"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// sessionFiles is the number of files in the session: a tenth of the default bound (sessions.files).
const sessionFiles = 1000

// fillSession makes sessionFiles files in ten directories, changeOne changes one of them.
const (
	fillSession = `for d in {0..9}; do mkdir "d$d"; for ((i = 0; i < $1 / 10; i++)); do echo "$d $i" >"d$d/f$i"; done; done`
	changeOne   = `echo "$1" >d0/f0`
)

// inSession compares warm requests with and without a session of many files. For session-true the program
// changes nothing. For session-commit it changes a file, so the daemon makes a new version, and calls fsync(2)
// four times before it sends the outcome.
func inSession(r *run, rows rowSet) error {
	d, err := r.theStandard()
	if err != nil {
		return err
	}
	created, err := d.client.Sessions().CreateSession(r.ctx, &pb.CreateSessionRequest{})
	if err != nil {
		return fault("create a session", err)
	}
	use := &skillrun.Session{ID: created.GetSession().GetSessionId()}
	fill := program{sandboxed: func(c *skillrun.Client) *skillrun.Cmd {
		cmd := c.Code(benchSkill, "bash", fillSession, fmt.Sprint(sessionFiles))
		cmd.Session = use
		return cmd
	}}
	if err := fill.request(r.ctx, d.client); err != nil {
		return fault("fill a session", err)
	}
	changes := 0 // each has another content, so that each is a change
	for name, sandboxed := range map[string]func(*skillrun.Client) *skillrun.Cmd{
		"session-true": trueProgram.sandboxed,
		"session-commit": func(c *skillrun.Client) *skillrun.Cmd {
			changes++
			return c.Code(benchSkill, "bash", "mkdir -p d0; "+changeOne, fmt.Sprint(changes))
		},
	} {
		// The user has chosen other rows.
		if rows[name] == nil {
			continue
		}
		r.Say("%s", name)
		request := func(use *skillrun.Session) func() error {
			return func() error {
				p := program{sandboxed: func(c *skillrun.Client) *skillrun.Cmd {
					cmd := sandboxed(c)
					cmd.Session = use
					return cmd
				}}
				return p.request(r.ctx, d.client)
			}
		}
		if err := r.added(name, rows[name], request(use), request(nil)); err != nil {
			return err
		}
	}
	_, err = d.client.Sessions().DeleteSession(r.ctx, &pb.DeleteSessionRequest{SessionId: use.ID})
	return err
}

// added fills a row with the median of what one kind of request takes more than another, in milliseconds.
func (r *run) added(name string, row *Row, with, without func() error) error {
	all := []*subject{{name: "with", run: with}, {name: "without", run: without}}
	times, err := r.warmTurns(name, growSamples, 0, all)
	if err != nil {
		return err
	}
	more := differences(times[0], times[1])
	row.set(median(more), len(more))
	row.Bare = number(median(times[1]))
	return nil
}
