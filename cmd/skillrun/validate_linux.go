package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"google.golang.org/protobuf/proto"

	"github.com/skillrun/skillrun/internal/lint"
	"github.com/skillrun/skillrun/internal/skill/manifest"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// folders checks folders of this machine.
type folders struct {
	// nil until a folder is checked: finding the interpreters of this machine takes time.
	machine *lint.Machine
}

// validate checks a folder without a daemon.
func (v *folders) validate(ctx context.Context, dir string) (*pb.ValidateSkillResponse, error) {
	// A slash at the end would follow a link that leads nowhere.
	name := strings.TrimRight(dir, "/")
	switch info, err := os.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		why := "no such folder"
		if info, err := os.Lstat(name); err == nil {
			why = notAFolder(name, info)
		}
		return nil, &codedError{codeNotFound, fmt.Sprintf("validate %s: %s", dir, why)}
	case err == nil && !info.IsDir():
		return nil, &codedError{codeNotFound, fmt.Sprintf("validate %s: %s", dir, notAFolder(dir, info))}
	}
	if v.machine == nil {
		var err error
		if v.machine, err = lint.ThisMachine(ctx); err != nil {
			return nil, fmt.Errorf("validate %s: %w", dir, err)
		}
	}
	findings, err := lint.Dir(ctx, dir, v.machine)
	if err != nil {
		return nil, fmt.Errorf("validate %s: %w", dir, err)
	}
	return validation(findings), nil
}

// isFolder tells a folder from the name of a skill, as the help text says. An argument with a "/" that
// could be a skill's full name is a name, unless such a folder exists.
func isFolder(arg string) bool {
	info, err := os.Stat(arg)
	if err == nil && info.IsDir() || arg == "." || arg == ".." {
		return true
	}
	namespace, _ := manifest.SplitName(arg)
	return strings.ContainsRune(arg, filepath.Separator) && namespace == ""
}

// validation is the daemon's answer, made here.
func validation(findings []manifest.Finding) *pb.ValidateSkillResponse {
	r := &pb.ValidateSkillResponse{}
	for _, f := range findings {
		severity := pb.FindingSeverity_FINDING_SEVERITY_WARNING
		if f.Severity == manifest.SeverityError {
			severity = pb.FindingSeverity_FINDING_SEVERITY_ERROR
		}
		r.Findings = append(r.Findings, &pb.Finding{
			Severity: severity,
			File:     strings.ToValidUTF8(f.File, "\uFFFD"),
			Line:     uint32(f.Line),
			Rule:     f.Rule,
			Message:  strings.ToValidUTF8(f.Message, "\uFFFD"),
		})
	}
	r.Valid = proto.Bool(!slices.ContainsFunc(findings, func(f manifest.Finding) bool { return f.Severity == manifest.SeverityError }))
	return r
}
