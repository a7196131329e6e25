package server

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skillrun/skillrun/internal/audit"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/manifest"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// maxTenantPushes bounds the pushes of one tenant at the same time: their files are on disk before
// any quota of skills counts them.
const maxTenantPushes = 4

// pushedFolder is the name of the folder that receives the files of a push.
const pushedFolder = "skill"

// PushSkill receives the files into a new directory and imports the directory like a folder of the
// configuration. So a push has every check of an import.
// The order is: bound the pushes, receive within a time limit, import, then audit. Nothing of a
// push that fails is left: the deferred remove takes the files, and Push installs a whole skill or
// nothing.
func (c skillCalls) PushSkill(stream grpc.ClientStreamingServer[pb.PushSkillRequest, pb.PushSkillResponse]) error {
	ctx := stream.Context()
	who := caller(ctx)
	first, err := stream.Recv()
	if err != nil {
		return receiveError(err, "header")
	}
	header := first.GetHeader()
	if err := c.checkHeader(ctx, header); err != nil {
		return err
	}
	dir, remove, err := c.uploads.openPush(who, int64(header.GetSizeBytes()))
	if err != nil {
		return err
	}
	defer func() {
		if err := remove(); err != nil {
			c.log.Error("files of a push were not removed", "dir", dir, "err", err)
		}
	}()
	if err := c.inUploadTime(func() error {
		return c.receivePush(stream, filepath.Join(dir, pushedFolder), int64(header.GetSizeBytes()))
	}); err != nil {
		return err
	}
	done, err := c.skillsOf(ctx).Push(ctx, skill.Push{Parent: dir, Folder: pushedFolder, Name: header.GetName(), Source: header.GetSource()})
	if err != nil {
		return err
	}
	c.auditSkill(ctx, audit.Push, done.Skill.Name+"@"+done.Skill.Digest)
	c.log.Info("skill pushed", "tenant", who.Tenant, "principal", who.Name, "skill", done.Skill.Name+"@"+done.Skill.Digest,
		"source", header.GetSource(), "existed", done.Existed, "removed", len(done.Removed))
	out := &pb.PushSkillResponse{Version: fromVersion(done.Version), Name: text(done.Skill.Name), Existed: done.Existed}
	for _, v := range done.Removed {
		out.RemovedVersions = append(out.RemovedVersions, &pb.RemovedSkillVersion{Name: text(v.Name), Digest: v.Digest})
	}
	room := maxAnswerBytes
	out.Findings = fitting(&room, done.Skill.Validate(), fromFinding)
	return stream.SendAndClose(out)
}

// checkHeader refuses a push before its files come.
// A caller learns of a wrong name, source or quota before it has sent megabytes. Push checks again:
// the quota may be used up by then.
func (c skillCalls) checkHeader(ctx context.Context, h *pb.PushSkillHeader) error {
	if h == nil {
		return invalid("header", "must be the first message")
	}
	if h.GetName() != "" {
		if err := manifest.ValidName(h.GetName()); err != nil {
			return &fieldError{"header.name", err}
		}
	}
	if most := c.skills.Bounds().MaxBytes; h.GetSizeBytes() > math.MaxInt64 || int64(h.GetSizeBytes()) > most {
		return invalid("header.size_bytes", "%d; a skill has at most %d bytes (snapshots.bytes in the daemon's configuration)", h.GetSizeBytes(), most)
	}
	if h.GetSource() != "" {
		if _, err := skill.CheckSource(h.GetSource()); err != nil {
			return invalid("header.source", "%v", err)
		}
	}
	if err := c.skillsOf(ctx).CheckPush(h.GetSource(), int64(h.GetSizeBytes())); err != nil {
		return err
	}
	t, err := c.x.Tenant(caller(ctx))
	if err != nil {
		return err
	}
	return c.x.CheckState(ctx, t)
}

// openPush makes a directory for the files of a push, and reserves room for them.
// The count and the room are given back when remove has deleted the files, not when they are
// imported: until then they take space on the disk.
func (u *uploads) openPush(who permission.Principal, size int64) (dir string, remove func() error, err error) {
	u.mu.Lock()
	if u.pushes[who.Tenant] >= maxTenantPushes {
		u.mu.Unlock()
		return "", nil, &pushesFullError{maxTenantPushes}
	}
	u.pushes[who.Tenant]++
	u.mu.Unlock()
	end := func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.pushes[who.Tenant]--; u.pushes[who.Tenant] == 0 {
			delete(u.pushes, who.Tenant)
		}
	}
	if err := u.take(who, size); err != nil {
		end()
		return "", nil, err
	}
	free := func() { u.give(who, size); end() }
	if dir, err = os.MkdirTemp(u.dir, u.prefix); err == nil {
		err = os.Mkdir(filepath.Join(dir, pushedFolder), 0o700)
	}
	if err != nil {
		free()
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return dir, sync.OnceValue(func() error {
		defer free()
		return os.RemoveAll(dir)
	}), nil
}

// receivePush receives the entries of a push until the caller closes its side.
// A message is bounded by message_bytes, so large files come in several pieces of data.
func (c skillCalls) receivePush(stream grpc.ClientStreamingServer[pb.PushSkillRequest, pb.PushSkillResponse], dir string, size int64) error {
	f, err := newPushedFiles(dir, size, c.skills.Bounds())
	if err != nil {
		return err
	}
	defer f.close()
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return f.finish()
		}
		if err != nil {
			return err
		}
		if err := f.take(m); err != nil {
			return err
		}
	}
}

// DeleteSkill removes versions. Running executions keep theirs.
// m.Skill without a digest means all versions that were pushed under the name.
func (c skillCalls) DeleteSkill(ctx context.Context, m *pb.DeleteSkillRequest) (*pb.DeleteSkillResponse, error) {
	gone, err := c.skillsOf(ctx).Delete(ctx, m.GetSkill())
	if err != nil {
		return nil, err
	}
	who := caller(ctx)
	c.auditSkill(ctx, audit.Delete, m.GetSkill())
	c.log.Info("skill deleted", "tenant", who.Tenant, "principal", who.Name, "skill", m.GetSkill(), "versions", len(gone))
	out := &pb.DeleteSkillResponse{}
	for _, v := range gone {
		out.Digests = append(out.Digests, v.Digest)
	}
	return out, nil
}

// auditSkill writes which skill a call has changed. guard has written the call itself, so that nothing
// changes without an entry; the audit log counts this one if it is lost.
func (c skillCalls) auditSkill(ctx context.Context, event audit.Event, ref string) {
	entry := audit.By(ctx, event, caller(ctx).Tenant, caller(ctx).Name)
	entry.Skill, entry.Decision = ref, audit.Allowed
	_ = c.audit.Write(entry)
}

// ListSkillVersions has the digest after which a page begins as its token.
// A token stops working when its version is removed, and the error asks for a new list.
func (c skillCalls) ListSkillVersions(ctx context.Context, m *pb.ListSkillVersionsRequest) (*pb.ListSkillVersionsResponse, error) {
	list, err := c.skillsOf(ctx).Versions(m.GetSkill())
	if err != nil {
		return nil, err
	}
	if after := m.GetPageToken(); after != "" {
		at := -1
		for i, v := range list {
			if v.Digest == after {
				at = i
			}
		}
		if at < 0 {
			return nil, invalidPageToken()
		}
		list = list[at+1:]
	}
	return fittingPage(pageSize(m.GetPageSize(), defaultPage), func(size int) (*pb.ListSkillVersionsResponse, error) {
		page := &pb.ListSkillVersionsResponse{}
		for _, v := range list[:min(size, len(list))] {
			page.Versions = append(page.Versions, fromVersion(v))
		}
		if size < len(list) {
			page.NextPageToken = list[size-1].Digest
		}
		return page, nil
	})
}

func fromVersion(v skill.Version) *pb.SkillVersion {
	out := &pb.SkillVersion{Digest: v.Digest, Source: text(v.Source), SizeBytes: uint64(v.Bytes)}
	if !v.Pushed.IsZero() {
		out.PushTime = timestamppb.New(v.Pushed)
	}
	return out
}
