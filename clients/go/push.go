package skillrun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"unicode/utf8"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// pushChunk is how much of a file one message of a push carries.
const pushChunk = 256 << 10

// unpushed are names that are never part of a skill: data of version control, and caches. The daemon
// would leave them out.
var unpushed = []string{".git", ".hg", ".svn", ".jj", ".bzr", "CVS", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".DS_Store"}

// PushOptions are the optional parts of a push.
type PushOptions struct {
	// Name is the name that SKILL.md must have. Empty: any.
	Name string
	// Source is the https URL that the skill comes from. The tenant's policy can refuse its host.
	// Empty: the caller.
	Source string
	// OnProgress is called with the bytes that were sent, and all bytes. Nil: no call.
	OnProgress func(sent, total int64)
}

// A pushEntry is a file or a link of a skill that is pushed.
type pushEntry struct {
	path, target string
	size         int64
	executable   bool
}

// PushSkill imports the folder dir as the newest version of a skill of the caller's tenant. dir may be an
// os.DirFS or the FS of an os.Root. Links are sent as links; the daemon refuses a link that leaves the
// skill. A file that becomes shorter during the push is an error. The call needs the role admin.
func (c *Client) PushSkill(ctx context.Context, dir fs.FS, o PushOptions) (*pb.PushSkillResponse, error) {
	entries, total, err := pushEntries(dir)
	if err != nil {
		return nil, err
	}
	// The stream ends with this call, also if a file cannot be read.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.skills.PushSkill(ctx)
	if err != nil {
		return nil, err
	}
	p := &pusher{send: stream.Send, total: total, on: o.OnProgress}
	header := &pb.PushSkillHeader{Name: o.Name, SizeBytes: uint64(total), Source: o.Source}
	err = stream.Send(&pb.PushSkillRequest{Message: &pb.PushSkillRequest_Header{Header: header}})
	for _, e := range entries {
		if err == nil {
			err = p.entry(dir, e)
		}
	}
	if err != nil && !errors.Is(err, io.EOF) { // io.EOF: the daemon has ended the stream, and CloseAndRecv says why
		return nil, err
	}
	return stream.CloseAndRecv()
}

// pushEntries lists the files and links of a folder, and adds up the sizes.
func pushEntries(dir fs.FS) (entries []pushEntry, total int64, err error) {
	err = fs.WalkDir(dir, ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case !utf8.ValidString(p): // before err: io/fs opens no such directory
			return fmt.Errorf("%q: the name is not UTF-8; rename it", p)
		case err != nil:
			return err
		case p != "." && slices.Contains(unpushed, path.Base(p)):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir():
			return nil
		case d.Type() == fs.ModeSymlink:
			target, err := fs.ReadLink(dir, p)
			if !utf8.ValidString(target) {
				return fmt.Errorf("%q: is a link to %q, which is not UTF-8", p, target)
			}
			entries = append(entries, pushEntry{path: p, target: target})
			return err
		case !d.Type().IsRegular():
			return fmt.Errorf("%s: is neither a file nor a link", p)
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		entries = append(entries, pushEntry{path: p, size: info.Size(), executable: info.Mode()&0o111 != 0})
		total += info.Size()
		return nil
	})
	return entries, total, err
}

// A pusher sends entries.
type pusher struct {
	send        func(*pb.PushSkillRequest) error
	sent, total int64                   // bytes of all files
	on          func(sent, total int64) // nil: nobody asks
}

// entry sends one file or link. The first message has the path and the first bytes, the next ones have only bytes. A file
// that has become shorter since pushEntries is an error; one that has grown is cut at its announced size.
func (p *pusher) entry(dir fs.FS, e pushEntry) error {
	first := &pb.PushSkillEntry{Path: e.path, Executable: e.executable, SizeBytes: uint64(e.size), LinkTarget: e.target}
	message := &pb.PushSkillRequest{Message: &pb.PushSkillRequest_Entry{Entry: first}}
	if e.target != "" {
		return p.send(message)
	}
	file, err := dir.Open(e.path)
	if err != nil {
		return err
	}
	defer file.Close()
	for left := e.size; ; {
		data := make([]byte, min(left, pushChunk))
		if _, err := io.ReadFull(file, data); err != nil {
			return fmt.Errorf("%s: changed while it was read: %w", e.path, err)
		}
		if first != nil {
			first.Data, first = data, nil
		} else {
			message = &pb.PushSkillRequest{Message: &pb.PushSkillRequest_Data{Data: data}}
		}
		if err := p.send(message); err != nil {
			return err
		}
		left -= int64(len(data))
		if p.sent += int64(len(data)); p.on != nil {
			p.on(p.sent, p.total)
		}
		if left == 0 {
			return nil
		}
	}
}
