//go:build !linux

package main

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// The files *_linux.go have the commands that share packages with the daemon, which runs on Linux only.
// This file replaces these commands on other systems. All other commands are the same everywhere.

// needsLinux is the answer of a command, or of a form of it, to a user of another system.
func needsLinux(what, instead string) error {
	return &codedError{codeRefused, what + " needs Linux, and this is " + runtime.GOOS + "; " + instead}
}

func (a *app) surveyCommand() *cobra.Command {
	return absentCommand("survey", "Try every skill of the daemon, and count what works", needsLinux("survey", "run it on the machine of the daemon"))
}

// decideHere refuses: the daemon's own code decides, and it is not in this program.
func decideHere(string, string, string) (decision, error) {
	return decision{}, needsLinux("check --allowed-tools", "name a SKILL, and its daemon decides")
}

// folders refuses folders of this machine.
type folders struct{}

func (folders) validate(_ context.Context, dir string) (*pb.ValidateSkillResponse, error) {
	return nil, needsLinux("validate "+dir+": checking a folder", "name a skill that the daemon has")
}

// isFolder tells a folder from the name of a skill, such as pdf or anthropic/pdf.
func isFolder(arg string) bool {
	if info, err := os.Stat(arg); err == nil && info.IsDir() {
		return true
	}
	return arg == "." || arg == ".." || filepath.IsAbs(arg) ||
		strings.HasPrefix(filepath.ToSlash(arg), "./") || strings.HasPrefix(filepath.ToSlash(arg), "../")
}
