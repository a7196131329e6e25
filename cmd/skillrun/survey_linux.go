package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/skillrun/skillrun/internal/survey"
)

// surveyTimeout is the default limit of each run. --help prints and exits.
const surveyTimeout = 10 * time.Second

// surveyFlags are the command's own flags.
type surveyFlags struct {
	log        string
	checksOnly bool
	jobs       int
	timeout    time.Duration
}

// surveyCommand measures how much of a collection of published skills works. No test of single skills
// shows that.
func (a *app) surveyCommand() *cobra.Command {
	var f surveyFlags
	cmd := &cobra.Command{
		Use:   "survey",
		Short: "Try every skill of the daemon, and count what works",
		Long: `Survey asks the daemon for each command line in the shell blocks of every SKILL.md
whether it may run, and runs every script with --help, without a network. It prints
the number of skills, command lines and scripts with each class of result. Scripts
that do not know --help may do something else, but only inside their sandboxes.

With --log FILE, the daemon's log in JSON form, it also counts the folders that the
daemon did not load. make survey SKILLS='[NAME=]DIR ...' starts a daemon with these
folders, in namespaces if they have names, and does all of this.

With --json it prints one object a line for each skill, command line and script,
{"kind", "skill", "subject", "at", "class", "detail"}, and last the counts.`,
		Args: arguments(noArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.jobs < 1 || f.timeout <= 0 {
				return usage(cmd, errors.New("--jobs and --timeout must be above 0"))
			}
			return a.survey(cmd.Context(), f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.log, "log", "", "the daemon's log, a `file` with JSON lines")
	flags.BoolVar(&f.checksOnly, "checks-only", false, "run no script")
	flags.IntVar(&f.jobs, "jobs", runtime.NumCPU(), "try this `number` of skills at once")
	flags.DurationVar(&f.timeout, "timeout", surveyTimeout, "limit of `time` of each run")
	return cmd
}

// survey prints each line as it comes, if --json is set, and the counts at the end.
// If stdout breaks, the survey still runs to its end and then returns the error, because each, which the
// attempts call, can't stop them.
func (a *app) survey(ctx context.Context, f surveyFlags) error {
	var report survey.Report
	var broken error // of stdout
	each := func(l survey.Line) {
		report.Add(l)
		if a.json && broken == nil {
			broken = a.printJSONValue(l)
		}
	}
	// The log first: it needs no daemon, so a mistake in --log shows before minutes of runs.
	if f.log != "" {
		log, err := os.Open(f.log)
		if err != nil {
			return err
		}
		defer log.Close()
		if err := survey.ReadLog(log, each); err != nil {
			return fmt.Errorf("%s: %w", f.log, err)
		}
	}
	c, err := a.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	err = survey.Run(ctx, survey.Config{Client: c, Jobs: f.jobs, Timeout: f.timeout, ChecksOnly: f.checksOnly, Each: each})
	if err = errors.Join(err, broken); err != nil {
		return err
	}
	if a.json {
		return a.printJSONValue(report)
	}
	return a.print(surveyTable(report))
}

// surveyTable lists the counts of each kind, under the sum.
func surveyTable(r survey.Report) *table {
	t := &table{}
	for _, kind := range []struct {
		name   string
		counts map[survey.Class]int
	}{{"skill folders", r.Skills}, {"command lines in SKILL.md", r.Commands}, {"scripts, with --help", r.Scripts}} {
		t.add(cell{text: kind.name, colour: bold}, cell{text: fmt.Sprint(survey.Sum(kind.counts)), colour: bold})
		for _, c := range survey.Sorted(kind.counts) {
			t.add(plain("  "+string(c.Class), fmt.Sprint(c.N))...)
		}
	}
	t.add(cell{text: "scripts that failed through skillrun", colour: bold}, cell{text: fmt.Sprint(r.ThroughUs), colour: bold})
	return t
}
