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
	if name == "" || strings.ContainsRune(name, 0) || !filepath.IsLocal(name) {
		return &os.PathError{Op: "save artifact", Path: name, Err: errors.New("not a path beneath the folder")}
	}
	parent := filepath.Dir(name)
	if err := dir.MkdirAll(parent, 0o777); err != nil {
		return err
	}
	mode := os.FileMode(0o666)
	if a.GetExecutable() {
		mode = 0o777
	}
	part := filepath.Join(parent, ".skillrun-"+rand.Text())
	file, err := dir.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	err = c.Download(ctx, id, a, io.MultiWriter(append([]io.Writer{file}, others...)...))
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
