package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	skillrun "github.com/skillrun/skillrun/clients/go"
)

// maxSessionFile is the largest file of a session that the daemon accepts, in bytes.
const maxSessionFile = 1 << 30

// sessionCopyCommand copies one file. As with scp, an argument with a colon before any slash is in a
// session.
func (a *app) sessionCopyCommand() *cobra.Command {
	var version uint32
	most := size(maxSessionFile)
	cmd := &cobra.Command{
		Use:   "cp FILE SESSION:PATH | SESSION:PATH FILE",
		Short: "Copy a file into a session or out of it",
		Long: `Copy a file into a session, which makes a version, or out of it. FILE - is standard
input or standard output. The SHA-256 of the copy is checked. Write ./FILE if the name
of a file has a colon.`,
		Args: arguments(needs("FILE", "SESSION:PATH")),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, fromPath, out := inSession(args[0])
			to, toPath, in := inSession(args[1])
			if in == out {
				return usage(cmd, errors.New("one of the two must be SESSION:PATH, and the other a file of this machine"))
			}
			if in && version != 0 {
				return usage(cmd, errors.New("--at is for copies out of a session"))
			}
			if in && cmd.Flags().Changed("max-size") {
				return usage(cmd, errors.New("--max-size is for copies out of a session"))
			}
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.Close()
			if in {
				return a.copyIn(cmd.Context(), c, args[0], to, toPath)
			}
			return a.copyOut(cmd.Context(), c, from, fromPath, version, args[1], &capped{left: int64(most), most: most})
		},
	}
	cmd.Flags().Uint32Var(&version, "at", 0, "file of this `version` (default the newest)")
	completeNothing(cmd, "at")
	cmd.Flags().Var(&most, "max-size", "refuse a larger file of the session")
	return cmd
}

// capped is a writer that fails after left bytes. The daemon chooses the size of a download, and a faulty daemon could
// fill the disk.
type capped struct {
	left int64 // bytes that may still come
	most size  // for the error
}

func (c *capped) Write(p []byte) (int, error) {
	if c.left -= int64(len(p)); c.left < 0 {
		return 0, fmt.Errorf("the file is larger than %s; set --max-size", c.most.String())
	}
	return len(p), nil
}

// inSession splits SESSION:PATH. A slash or a dot before the colon makes the argument a file of this machine, as in
// ./a:b; the ID of a session has neither.
func inSession(arg string) (session, path string, ok bool) {
	session, path, ok = strings.Cut(arg, ":")
	return session, path, ok && session != "" && !strings.ContainsAny(session, `/\.`)
}

// copyIn uploads a file. A path that is empty or ends with a slash gets the file's name.
func (a *app) copyIn(ctx context.Context, c *skillrun.Client, file, session, to string) error {
	if to == "" || strings.HasSuffix(to, "/") {
		if file == "-" {
			return fmt.Errorf("%s:%s: standard input has no name; write a whole path", session, to)
		}
		to += filepath.Base(file)
	}
	f := skillrun.File{Path: to, Source: file}
	if file == "-" {
		spool, err := a.spool()
		if err != nil {
			return fmt.Errorf("standard input: %w", err)
		}
		defer os.Remove(spool)
		f.Source = spool
	} else if fi, err := os.Stat(file); err == nil { // PutSessionFile opens the file, and reports an error
		f.Executable = fi.Mode()&0o111 != 0
	}
	v, err := c.PutSessionFile(ctx, session, f)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(v)
	}
	_, err = fmt.Fprintf(a.stdout, "version %d\n", v.GetNumber())
	return err
}

// spool copies standard input to a temporary file, because an upload begins with its size and SHA-256. The caller removes
// the file.
func (a *app) spool() (name string, err error) {
	f, err := os.CreateTemp("", "skillrun-")
	if err != nil {
		return "", err
	}
	n, err := io.Copy(f, io.LimitReader(a.stdin, maxSessionFile+1))
	if err == nil && n > maxSessionFile {
		err = fmt.Errorf("has more than %d bytes, which is the most for a file of a session", int64(maxSessionFile))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// copyOut downloads a file of a session. If the destination is a folder, the file keeps its name. bound gets each byte,
// too, and its error ends the download.
func (a *app) copyOut(ctx context.Context, c *skillrun.Client, session, from string, version uint32, file string, bound io.Writer) error {
	if file == "-" {
		_, err := c.GetSessionFile(ctx, session, from, version, io.MultiWriter(bound, a.stdout))
		return err
	}
	// As cp does. A path that ends with a slash and does not exist is an error of OpenRoot.
	switch fi, err := os.Stat(file); {
	case err != nil || fi.Mode().IsRegular():
	case fi.IsDir():
		file = filepath.Join(file, path.Base(from))
	default: // a device or a pipe, such as /dev/null: no file may replace it
		return a.copyToDevice(ctx, c, session, from, version, file, bound)
	}
	// SaveSessionFile writes a temporary file next to the destination and renames it when the SHA-256 is right.
	dir, err := os.OpenRoot(filepath.Dir(file))
	if err != nil {
		return err
	}
	defer dir.Close()
	_, err = c.SaveSessionFile(ctx, session, from, version, dir, filepath.Base(file), bound)
	return err
}

// copyToDevice writes a file of a session to a device or a pipe as the bytes come.
func (a *app) copyToDevice(ctx context.Context, c *skillrun.Client, session, from string, version uint32, device string, bound io.Writer) error {
	to, err := os.OpenFile(device, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = c.GetSessionFile(ctx, session, from, version, io.MultiWriter(bound, to))
	closeErr := to.Close()
	return cmp.Or(err, closeErr)
}
