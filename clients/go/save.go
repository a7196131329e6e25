package skillrun

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// Save downloads an artifact to its path beneath dir and replaces an existing file there.
// The file gets its name only when it is complete and its SHA-256 is right. Whatever the
// artifact's path is, Save changes nothing outside dir: it follows neither ".." nor links.
// The bytes are also written to others as they arrive; an error of one of these ends the
// download. If Save fails, no file of the download stays, but directories that it made do.
func (c *Client) Save(ctx context.Context, id string, a *pb.Artifact, dir *os.Root, others ...io.Writer) error {
	name := a.GetPath()
	if raw := a.GetRawPath(); len(raw) > 0 {
		name = string(raw)
	}
	return save(dir, name, func(w io.Writer) (bool, error) {
		return a.GetExecutable(), c.Download(ctx, id, a, io.MultiWriter(append([]io.Writer{w}, others...)...))
	})
}

// SaveSessionFile downloads a file of a session, as [Client.GetSessionFile] does, to a path beneath dir, as
// [Client.Save] does. The bytes are also written to others as they arrive; an error of one of these ends the
// download. The daemon chooses the size of the file, so a caller who does not trust it passes a writer with a bound.
func (c *Client) SaveSessionFile(ctx context.Context, session, path string, version uint32, dir *os.Root, name string, others ...io.Writer) (file *pb.SessionFile, err error) {
	err = save(dir, name, func(w io.Writer) (bool, error) {
		file, err = c.GetSessionFile(ctx, session, path, version, io.MultiWriter(append([]io.Writer{w}, others...)...))
		return file.GetExecutable(), err
	})
	return file, err
}

// save makes a file beneath dir with what write writes. The file gets its name when it is complete.
func save(dir *os.Root, name string, write func(io.Writer) (executable bool, err error)) error {
	if name == "" || strings.ContainsRune(name, 0) || !filepath.IsLocal(name) {
		return &os.PathError{Op: "save", Path: name, Err: errors.New("not a path beneath the folder")}
	}
	parent := filepath.Dir(name)
	if err := dir.MkdirAll(parent, 0o777); err != nil {
		return err
	}
	part := filepath.Join(parent, ".skillrun-"+rand.Text())
	file, err := dir.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	executable, err := write(file)
	if err == nil && executable {
		err = makeExecutable(file)
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = dir.Rename(part, name)
	}
	if err != nil {
		dir.Remove(part)
	}
	return err
}

// makeExecutable adds the execute bit for each class of users (owner, group, others) that has the read bit.
func makeExecutable(f *os.File) error {
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	return f.Chmod(fi.Mode() | fi.Mode()&0o444>>2)
}
