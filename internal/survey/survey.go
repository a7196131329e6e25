// Package survey tries all skills of a daemon: it asks for each command line in their SKILL.md whether
// it may run, and runs each script with --help. It counts the successes, and gives each failure a class.
//
// Theory of operation. The survey is a client like any other, so it finds what users would find. Run tries
// several skills at once and calls Config.Each with a [Line] for each thing that it has tried. class.go
// tells failures of a script (a missing option, a missing module of the author) from failures that
// skillrun causes. load.go adds the folders that the daemon did not load, which only its log names. A
// [Report] counts the lines.
package survey

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	skillrun "github.com/skillrun/skillrun/clients/go"
	"github.com/skillrun/skillrun/internal/lint"
	"github.com/skillrun/skillrun/internal/skill/manifest"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// Kinds of lines.
const (
	KindSkill   = "skill"
	KindCommand = "command"
	KindScript  = "script"
)

// A Line is the result of one attempt.
type Line struct {
	Kind  string `json:"kind"`
	Skill string `json:"skill"` // its name; its folder if it did not load
	// Subject is a command line or the path of a script, At the line of SKILL.md.
	Subject string `json:"subject,omitempty"`
	At      int    `json:"at,omitempty"`
	Class   Class  `json:"class"`
	Detail  string `json:"detail,omitempty"` // the reason, or the last lines of the script's output
}

// Config says what to try.
type Config struct {
	Client *skillrun.Client
	// Jobs is how many skills are tried at once, at least 1.
	Jobs int
	// Timeout bounds each run of a script. It must be above 0.
	Timeout time.Duration
	// ChecksOnly leaves the runs out.
	ChecksOnly bool
	// Each gets every line. It is never called twice at once.
	Each func(Line)
}

// A survey is one run.
type survey struct {
	Config
	mu sync.Mutex // held while Each runs
}

// Run tries every skill. An error means that the daemon could not be asked; a failure of a skill is
// a line.
func Run(ctx context.Context, c Config) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &survey{Config: c}
	// No buffer: the list goes on only as fast as the workers, so few pages are read when the first error ends the
	// survey.
	names := make(chan string)
	var workers sync.WaitGroup
	for range c.Jobs {
		workers.Go(func() {
			for name := range names {
				if err := s.skill(ctx, name); err != nil {
					cancel(err)
				}
			}
		})
	}
	err := s.list(ctx, names)
	close(names)
	workers.Wait()
	// The cause is the first error of a worker, or the end of the caller's ctx. err would only say that ctx has ended.
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// list sends the names of all skills, hidden ones too.
func (s *survey) list(ctx context.Context, names chan<- string) error {
	request := &pb.ListSkillsRequest{IncludeHidden: true}
	for {
		page, err := s.Client.Skills().ListSkills(ctx, request)
		if err != nil {
			return err
		}
		for _, skill := range page.GetSkills() {
			select {
			case names <- skill.GetName():
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if request.PageToken = page.GetNextPageToken(); request.PageToken == "" {
			return nil
		}
	}
}

// each calls Config.Each, for one line at a time.
func (s *survey) each(l Line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Each(l)
}

// skill tries one skill.
func (s *survey) skill(ctx context.Context, name string) error {
	answer, err := s.Client.Skills().GetSkill(ctx, &pb.GetSkillRequest{Skill: name})
	if err != nil {
		return err
	}
	sk := answer.GetSkill()
	s.each(Line{Kind: KindSkill, Skill: name, Class: Loaded})
	if err := s.commands(ctx, sk); err != nil {
		return err
	}
	if s.ChecksOnly {
		return nil
	}
	for _, script := range sk.GetScripts() {
		if script.GetLanguage() == "" { // no runtime can run it
			continue
		}
		line, err := s.help(ctx, sk, script.GetPath())
		if err != nil {
			return err
		}
		s.each(line)
	}
	return nil
}

// commands asks the daemon for each command line in the skill's SKILL.md whether it may run. It does not run the command
// lines, because an example in a text can have any effect.
func (s *survey) commands(ctx context.Context, sk *pb.Skill) error {
	text, err := s.manifest(ctx, sk.GetName())
	if err != nil {
		return err
	}
	for _, c := range lint.CommandLines(text) {
		d, err := s.Client.Skills().CheckCommand(ctx, &pb.CheckCommandRequest{Skill: sk.GetName(), Command: c.Text})
		if err != nil {
			return err
		}
		s.each(Line{Kind: KindCommand, Skill: sk.GetName(), Subject: c.Text, At: c.Line, Class: classOfCommand(sk, d), Detail: d.GetReason()})
	}
	return nil
}

// manifest returns the text of the skill's SKILL.md, which may have another name.
func (s *survey) manifest(ctx context.Context, skill string) (text string, err error) {
	for _, name := range manifest.Names {
		if text, err = s.read(ctx, skill, name); status.Code(err) != codes.NotFound {
			break
		}
	}
	return text, err
}

// read returns a file of a skill. The daemon bounds the size of a skill's files.
func (s *survey) read(ctx context.Context, skill, path string) (string, error) {
	stream, err := s.Client.Skills().ReadSkillFile(ctx, &pb.ReadSkillFileRequest{Skill: skill, Path: path})
	if err != nil {
		return "", err
	}
	var text []byte
	for {
		piece, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return string(text), nil
		}
		if err != nil {
			return "", err
		}
		text = append(text, piece.GetData()...)
	}
}
