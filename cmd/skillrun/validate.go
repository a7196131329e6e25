package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	skillrun "github.com/skillrun/skillrun/clients/go"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// codeInvalid is the exit code of validate for a skill with errors.
const codeInvalid = 1

// validateCommand checks with package lint, here or in the daemon (ValidateSkill), so that both
// give the same findings. They differ in the machine that the skill is compared with.
func (a *app) validateCommand() *cobra.Command {
	var strict bool
	cmd := &cobra.Command{
		Use:   "validate {FOLDER | SKILL}...",
		Short: "Check skills strictly, and for what breaks in a sandbox",
		Long: `Validate prints each finding with its file and line, and exits with 1 if one is an
error; docs/validate.md has the reason of each rule, and the remedy. It runs nothing of a
skill.

An existing folder or a path such as ./NAME needs no daemon; anything else is the name
of a skill that the daemon has, such as pdf or anthropic/pdf. A folder is judged by the
programs and packages of this machine, a loaded skill by the daemon's.

With --json it prints one object a line for each argument,
{"skill": "...", "valid": bool, "findings": [{"severity", "file", "line", "rule", "message"}]}.`,
		Example: "  skillrun validate --strict skills/*",
		Args:    arguments(needs("FOLDER or SKILL...")),
		RunE: func(cmd *cobra.Command, args []string) error {
			if slices.Contains(args, "") {
				return usage(cmd, errors.New("an empty argument is neither a folder nor the name of a skill"))
			}
			return a.validateAll(cmd.Context(), args, strict)
		},
		ValidArgsFunction: a.completeFolderOrSkill,
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "warnings count as errors for the exit code")
	return cmd
}

// validateAll prints the findings for each argument. An argument that can't be read doesn't
// hide the others; it decides the exit code.
func (a *app) validateAll(ctx context.Context, args []string, strict bool) error {
	v := &validator{app: a}
	defer v.close()
	code := 0
	for _, arg := range args {
		r, err := v.validate(ctx, arg)
		if ctx.Err() != nil {
			return cmp.Or(err, context.Cause(ctx))
		}
		if err != nil {
			fmt.Fprintf(a.stderr, "skillrun: %s\n", a.explain(err))
			// The worst code wins: 125, then 127, then 1.
			if c := errorCode(err); code <= codeInvalid || c == codeFailed {
				code = c
			}
			continue
		}
		if err := a.printValidation(arg, r); err != nil {
			return err
		}
		if !r.GetValid() || strict && len(r.GetFindings()) > 0 {
			code = max(code, codeInvalid)
		}
	}
	if code != 0 {
		return verdict(code)
	}
	return nil
}

// completeFolderOrSkill offers both.
func (a *app) completeFolderOrSkill(cmd *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
	names, _ := a.completeSkill(cmd, nil, word)
	return names, cobra.ShellCompDirectiveDefault
}

// A validator has what several arguments share, once one needs it.
type validator struct {
	*app
	folders folders
	// nil until a skill of the daemon is checked: folders need no daemon.
	client interface {
		Skills() pb.SkillServiceClient
		Close() error
	}
}

func (v *validator) close() {
	if v.client != nil {
		v.client.Close()
	}
}

// validate checks one argument: a folder of this machine, here, or a skill that the daemon has
// loaded. The connection stays open for the next argument; close closes it.
func (v *validator) validate(ctx context.Context, arg string) (*pb.ValidateSkillResponse, error) {
	if isFolder(arg) {
		return v.folders.validate(ctx, arg)
	}
	if v.client == nil {
		c, err := v.dial()
		if err != nil {
			return nil, err
		}
		v.client = c
	}
	r, err := v.client.Skills().ValidateSkill(ctx, &pb.ValidateSkillRequest{Subject: &pb.ValidateSkillRequest_Skill{Skill: arg}})
	if err != nil {
		return nil, v.notLoaded(arg, err)
	}
	return r, nil
}

// notLoaded explains an argument that is neither a folder nor a skill of the daemon. A user who
// mistyped a folder's name should not read about a daemon only.
func (v *validator) notLoaded(arg string, err error) error {
	here := "no such folder"
	info, statErr := os.Lstat(arg)
	if statErr == nil {
		here = notAFolder(arg, info)
	}
	switch {
	case status.Code(err) == codes.Unavailable && skillrun.Reason(err) == "":
		return &codedError{codeNotFound, fmt.Sprintf("validate %s: %s, and no daemon to ask for a loaded skill: %s", arg, here, v.explain(err))}
	case status.Code(err) == codes.NotFound, status.Code(err) == codes.InvalidArgument && (statErr == nil || strings.Contains(arg, "/")): // file.md is no name, and not every path is one
		return &codedError{codeNotFound, fmt.Sprintf("validate %s: %s, and the daemon has no skill of that name", arg, here)}
	}
	return fmt.Errorf("validate %s: %w", arg, err)
}

// notAFolder names the kind of a file that is not a folder.
func notAFolder(name string, info fs.FileInfo) string {
	if info.Mode()&fs.ModeSymlink != 0 {
		if _, err := os.Stat(name); err != nil {
			to, _ := os.Readlink(name)
			return fmt.Sprintf("a link to %s, which is not there", to)
		}
	}
	return "not a folder: name the one that holds SKILL.md"
}

// printValidation prints one line for each finding, in the daemon's or lint's order, or that
// there is none.
func (a *app) printValidation(name string, r *pb.ValidateSkillResponse) error {
	if a.json {
		return a.printValidationJSON(name, r)
	}
	var t table
	for _, f := range r.GetFindings() {
		c := yellow
		if f.GetSeverity() == pb.FindingSeverity_FINDING_SEVERITY_ERROR {
			c = red
		}
		t.add(cell{text: placedText(name, f), colour: c})
	}
	if len(r.GetFindings()) == 0 {
		t.add(cell{text: name + ": valid", colour: green})
	}
	return a.print(&t)
}

// printValidationJSON writes the daemon's answer with the argument in front.
func (a *app) printValidationJSON(name string, r *pb.ValidateSkillResponse) error {
	answer, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(r)
	if err != nil {
		return err
	}
	// The daemon's JSON is decoded and encoded again to put "skill" in front. RawMessage leaves the findings unchanged.
	var fields struct {
		Skill    string          `json:"skill"`
		Valid    bool            `json:"valid"`
		Findings json.RawMessage `json:"findings"`
	}
	if err := json.Unmarshal(answer, &fields); err != nil {
		return err
	}
	fields.Skill = strings.ToValidUTF8(name, "\uFFFD")
	return a.printJSONValue(fields)
}

// placedText is a finding of the skill or folder that the command line names. In a
// folder, the place is one that an editor can open.
func placedText(name string, f *pb.Finding) string {
	text := findingText(f)
	switch {
	case f.GetFile() == "":
		return name + ": " + text
	case strings.HasSuffix(name, "/"):
		return name + text
	}
	return name + "/" + text
}

// findingText is a finding as compilers print one.
func findingText(f *pb.Finding) string {
	place := f.GetFile()
	if f.GetLine() > 0 {
		place = fmt.Sprintf("%s:%d", place, f.GetLine())
	}
	if place != "" {
		place += ": "
	}
	return fmt.Sprintf("%s%s: %s [%s]", place, word("FINDING_SEVERITY_", f.GetSeverity().String()), f.GetMessage(), f.GetRule())
}
