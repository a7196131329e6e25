package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	skillrun "github.com/skillrun/skillrun/clients/go"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// artifactsCommand lists the artifacts of an ended execution, or saves them with -o. Without a
// PATH it takes all of them. The daemon keeps artifacts as long as the execution's record.
func (a *app) artifactsCommand() *cobra.Command {
	var folder string
	var quiet bool
	cmd := &cobra.Command{
		Use:   "artifacts ID [PATH...]",
		Short: "List the files that an execution made, or save them",
		Args:  arguments(needs("ID", "[PATH...]")),
		RunE: func(cmd *cobra.Command, args []string) error {
			bars := a.progress(quiet)
			c, err := a.dialWith(bars)
			if err != nil {
				return err
			}
			defer c.Close()
			if folder == "" {
				return a.listArtifacts(cmd.Context(), c, args[0], args[1:])
			}
			dir, err := openFolder(folder)
			if err != nil {
				return err
			}
			defer dir.Close()
			return a.save(cmd.Context(), c, args[0], dir, bars, args[1:]...)
		},
		ValidArgsFunction: a.completeArtifacts,
	}
	cmd.Flags().StringVarP(&folder, "artifacts", "o", "", "save them in this `folder`")
	addQuiet(cmd.Flags(), &quiet)
	completeFolder(cmd, "artifacts")
	return cmd
}

// listArtifacts prints each artifact at once with --json, else a table at the end. Green marks an
// executable file.
func (a *app) listArtifacts(ctx context.Context, c *skillrun.Client, id string, paths []string) error {
	var t table
	t.header("PATH", "SIZE", "SHA256")
	err := eachArtifact(ctx, c, id, paths, func(artifact *pb.Artifact) error {
		if a.json {
			return a.printJSON(artifact)
		}
		name := cell{text: artifactName(artifact)}
		if artifact.GetExecutable() {
			name.colour = green
		}
		t.add(name, cell{text: bytesText(artifact.GetSizeBytes())}, cell{text: artifact.GetSha256()})
		return nil
	})
	if err != nil || a.json {
		return err
	}
	return a.print(&t)
}

// save saves the artifacts, or only the ones with the given paths, beneath dir.
//
// It saves a path with a component .git only if paths names it. In a checkout (-o .) a
// program could otherwise replace .git/config, whose settings name programs that the
// user's next git command runs. save stops at the first error; the files before it stay.
// Client.Save writes each file under a temporary name and renames it, so no file is ever
// half-written.
func (a *app) save(ctx context.Context, c *skillrun.Client, id string, dir *os.Root, p *progress, paths ...string) error {
	return eachArtifact(ctx, c, id, paths, func(artifact *pb.Artifact) error {
		if name := artifactName(artifact); len(paths) == 0 && inGit(name) {
			a.note("execution %s: not saved: %s could change what git runs ('skillrun artifacts -o DIR %s PATH' saves it)", id, name, id)
			return nil
		}
		err := c.Save(ctx, id, artifact, dir, p.download(artifact)...)
		p.end()
		if err != nil {
			return err
		}
		if a.verbose {
			a.note("execution %s: saved %s", id, artifactName(artifact))
		}
		return nil
	})
}

// inGit reports whether a path lies in a git directory, under any name that a file system of this machine may take for
// .git.
func inGit(path string) bool {
	return slices.ContainsFunc(strings.FieldsFunc(path, isSeparator), isGit)
}

// isSeparator also splits at a backslash, which separates folders on Windows.
func isSeparator(r rune) bool { return r == '/' || r == '\\' }

// isGit has the rules by which git itself refuses names in a repository (is_ntfs_dotgit and is_hfs_dotgit in its
// sources). Windows ignores case, dots and blanks at the end, and what follows a colon. Its short name for .git is
// GIT~1. macOS ignores case and invisible characters.
func isGit(name string) bool {
	name, _, _ = strings.Cut(name, ":")
	name = strings.TrimRight(strings.Map(visible, name), ". ")
	return strings.EqualFold(name, ".git") || strings.EqualFold(name, "git~1")
}

// visible drops the characters of the class Cf, which has all that HFS+ ignores.
func visible(r rune) rune {
	if unicode.Is(unicode.Cf, r) {
		return -1
	}
	return r
}

// eachArtifact calls f for the artifacts with the given paths, or for all. Paths are compared
// byte for byte. A path without an artifact is an error, after the calls for the others.
func eachArtifact(ctx context.Context, c *skillrun.Client, id string, paths []string, f func(*pb.Artifact) error) error {
	missing := slices.Clone(paths)
	for artifact, err := range c.Artifacts(ctx, id) {
		if err != nil {
			return fmt.Errorf("artifacts of %s: %w", id, err)
		}
		name := artifactName(artifact)
		if len(paths) > 0 && !slices.Contains(paths, name) {
			continue
		}
		missing = slices.DeleteFunc(missing, func(path string) bool { return path == name })
		if err := f(artifact); err != nil {
			return err
		}
	}
	if len(missing) > 0 {
		return &codedError{codeNotFound, fmt.Sprintf("artifacts of %s: no such artifact: %s", id, missing[0])}
	}
	return nil
}

// artifactName is an artifact's path, byte for byte.
func artifactName(artifact *pb.Artifact) string {
	if raw := artifact.GetRawPath(); len(raw) > 0 {
		return string(raw)
	}
	return artifact.GetPath()
}

// openFolder makes a folder and opens it. It returns nil for an empty path. An os.Root keeps a
// hostile artifact's path or link within the folder.
func openFolder(path string) (*os.Root, error) {
	if path == "" {
		return nil, nil
	}
	if err := os.MkdirAll(path, 0o777); err != nil {
		return nil, fmt.Errorf("--artifacts: %w", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("--artifacts: %w", err)
	}
	return root, nil
}
