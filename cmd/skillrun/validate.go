package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skillrun/skillrun/internal/skill"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// codeInvalid is the exit code of validate for a skill with errors.
const codeInvalid = 1

func (a *app) validateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "validate {FOLDER | SKILL}",
		Short: "Check a skill strictly: a folder here, or a loaded skill by name",
		Long: `Validate prints each finding with its file and line, and exits with 1 if one is an
error. An argument with a "/", "." or the name of an existing folder is a folder
and needs no daemon; anything else is the name of a skill that the daemon has.`,
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			var r *pb.ValidateSkillResponse
			if isFolder(args[0]) {
				findings, err := skill.ValidateDir(args[0])
				if errors.Is(err, fs.ErrNotExist) {
					return &codedError{codeNotFound, fmt.Sprintf("validate %s: no such folder", args[0])}
				}
				if err != nil {
					return fmt.Errorf("validate %s: %w", args[0], err)
				}
				r = validation(findings)
			} else {
				c, err := a.dial()
				if err != nil {
					return err
				}
				defer c.Close()
				r, err = c.Skills().ValidateSkill(cmd.Context(), &pb.ValidateSkillRequest{Subject: &pb.ValidateSkillRequest_Skill{Skill: args[0]}})
				if err != nil {
					return fmt.Errorf("validate %s: %w", args[0], err)
				}
			}
			if err := a.printValidation(args[0], r); err != nil {
				return err
			}
			if !r.GetValid() {
				return verdict(codeInvalid)
			}
			return nil
		},
	}
}

func isFolder(arg string) bool {
	if strings.ContainsRune(arg, filepath.Separator) || arg == "." || arg == ".." {
		return true
	}
	info, err := os.Stat(arg)
	return err == nil && info.IsDir()
}

// validation is the daemon's answer, made here.
func validation(findings []skill.Finding) *pb.ValidateSkillResponse {
	r := &pb.ValidateSkillResponse{Valid: true}
	for _, f := range findings {
		severity := pb.Severity_SEVERITY_WARNING
		if f.Severity == skill.SeverityError {
			severity, r.Valid = pb.Severity_SEVERITY_ERROR, false
		}
		r.Findings = append(r.Findings, &pb.Finding{
			Severity: severity,
			File:     strings.ToValidUTF8(f.File, "\uFFFD"),
			Line:     uint32(f.Line),
			Rule:     f.Rule,
			Message:  strings.ToValidUTF8(f.Message, "\uFFFD"),
		})
	}
	return r
}

func (a *app) printValidation(name string, r *pb.ValidateSkillResponse) error {
	if a.json {
		return a.printJSON(r)
	}
	var t table
	for _, f := range r.GetFindings() {
		c := yellow
		if f.GetSeverity() == pb.Severity_SEVERITY_ERROR {
			c = red
		}
		t.add(cell{text: findingText(f), colour: c})
	}
	if len(r.GetFindings()) == 0 {
		t.add(cell{text: name + ": valid", colour: green})
	}
	return a.print(&t)
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
	return fmt.Sprintf("%s%s: %s [%s]", place, word("SEVERITY_", f.GetSeverity().String()), f.GetMessage(), f.GetRule())
}
