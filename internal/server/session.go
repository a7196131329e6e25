package server

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/session"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// sessionCalls answers the calls of SessionService.
type sessionCalls struct {
	pb.UnsafeSessionServiceServer
	*Server
}

// sessions returns the store and the caller's tenant.
func (c sessionCalls) sessions(ctx context.Context) (*session.Store, string, error) {
	if c.x.Sessions == nil {
		return nil, "", &unknownMethodError{"SessionService"}
	}
	who := caller(ctx)
	_, err := c.x.Tenant(who)
	return c.x.Sessions, who.Tenant, err
}

// CreateSession leaves unset fields at zero, which the store replaces by the tenant's rules.
func (c sessionCalls) CreateSession(ctx context.Context, m *pb.CreateSessionRequest) (*pb.CreateSessionResponse, error) {
	store, tenant, err := c.sessions(ctx)
	if err != nil {
		return nil, err
	}
	set := session.Settings{Labels: m.GetLabels(), Bytes: clamp(m.GetMaxBytes()), Files: int(m.GetMaxFiles())}
	if set.IdleTTL, err = newLimit("idle_ttl", m.GetIdleTtl()); err != nil {
		return nil, err
	}
	if set.TTL, err = newLimit("ttl", m.GetTtl()); err != nil {
		return nil, err
	}
	made, err := store.Create(tenant, set)
	if err != nil {
		return nil, err
	}
	return &pb.CreateSessionResponse{Session: fromSession(made)}, nil
}

func (c sessionCalls) GetSession(ctx context.Context, m *pb.GetSessionRequest) (*pb.GetSessionResponse, error) {
	store, tenant, err := c.sessions(ctx)
	if err != nil {
		return nil, err
	}
	got, err := store.Get(tenant, m.GetSessionId())
	if err != nil {
		return nil, err
	}
	return &pb.GetSessionResponse{Session: fromSession(got)}, nil
}

// ListSessions pages by ID: the token of a page has the last ID of the page before.
func (c sessionCalls) ListSessions(ctx context.Context, m *pb.ListSessionsRequest) (*pb.ListSessionsResponse, error) {
	store, tenant, err := c.sessions(ctx)
	if err != nil {
		return nil, err
	}
	sessions := "sessions\n" + tenant
	after, err := parsePageToken(sessions, m.GetPageToken())
	if err != nil {
		return nil, err
	}
	// IDs sort by the time of creation, so a session that is made between two pages is on a later page.
	list := slices.DeleteFunc(store.List(tenant), func(i session.Info) bool {
		return i.ID <= after || !hasLabels(i.Labels, m.GetLabels())
	})
	return fittingPage(pageSize(m.GetPageSize(), defaultPage), func(size int) (*pb.ListSessionsResponse, error) {
		page := &pb.ListSessionsResponse{}
		for _, i := range list[:min(size, len(list))] {
			page.Sessions = append(page.Sessions, fromSession(i))
		}
		if size < len(list) {
			page.NextPageToken = pageToken(sessions, list[size-1].ID)
		}
		return page, nil
	})
}

// hasLabels reports whether have has every label of want. An empty want fits every session.
func hasLabels(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// UpdateSession leaves a setting as it was if its field is unset. So the labels are a message: one without labels
// removes them all.
func (c sessionCalls) UpdateSession(ctx context.Context, m *pb.UpdateSessionRequest) (*pb.UpdateSessionResponse, error) {
	store, tenant, err := c.sessions(ctx)
	if err != nil {
		return nil, err
	}
	idle, err := newLimit("idle_ttl", m.GetIdleTtl())
	if err != nil {
		return nil, err
	}
	ttl, err := newLimit("ttl", m.GetTtl())
	if err != nil {
		return nil, err
	}
	got, err := store.Update(tenant, m.GetSessionId(), func(set *session.Settings) {
		if idle > 0 {
			set.IdleTTL = idle
		}
		if ttl > 0 {
			set.TTL = ttl
		}
		if m.Labels != nil {
			set.Labels = m.GetLabels().GetLabels()
		}
	})
	if err != nil {
		return nil, err
	}
	return &pb.UpdateSessionResponse{Session: fromSession(got)}, nil
}

func (c sessionCalls) DeleteSession(ctx context.Context, m *pb.DeleteSessionRequest) (*pb.DeleteSessionResponse, error) {
	store, tenant, err := c.sessions(ctx)
	if err != nil {
		return nil, err
	}
	return &pb.DeleteSessionResponse{}, store.Delete(tenant, m.GetSessionId())
}

// ListSessionVersions returns all kept versions, the newest first. It has no pages, because sessions.versions
// bounds the list.
func (c sessionCalls) ListSessionVersions(ctx context.Context, m *pb.ListSessionVersionsRequest) (*pb.ListSessionVersionsResponse, error) {
	store, tenant, err := c.sessions(ctx)
	if err != nil {
		return nil, err
	}
	list, err := store.Versions(tenant, m.GetSessionId())
	if err != nil {
		return nil, err
	}
	out := &pb.ListSessionVersionsResponse{}
	for _, v := range slices.Backward(list) {
		out.Versions = append(out.Versions, fromSessionVersion(v))
	}
	return out, nil
}

// ListSessionFiles pages by path. The token of a page has the session, the version and the last path of the page before, so
// that all pages are of one version.
func (c sessionCalls) ListSessionFiles(ctx context.Context, m *pb.ListSessionFilesRequest) (*pb.ListSessionFilesResponse, error) {
	store, tenant, err := c.sessions(ctx)
	if err != nil {
		return nil, err
	}
	version, after, err := parseFilesToken(m)
	if err != nil {
		return nil, err
	}
	view, err := store.Read(tenant, m.GetSessionId(), version)
	if err != nil {
		return nil, err
	}
	files := view.Files
	if i, found := slices.BinarySearchFunc(files, after, func(f session.File, p string) int { return strings.Compare(f.Path, p) }); found {
		files = files[i+1:]
	} else {
		files = files[i:]
	}
	return fittingPage(pageSize(m.GetPageSize(), defaultPage), func(size int) (*pb.ListSessionFilesResponse, error) {
		page := &pb.ListSessionFilesResponse{Version: uint32(view.Version.Number)}
		for _, f := range files[:min(size, len(files))] {
			page.Files = append(page.Files, fromSessionFile(f))
		}
		if size < len(files) {
			page.NextPageToken = pageToken(filesOf(m), fmt.Sprintf("%d %s", view.Version.Number, files[size-1].Path))
		}
		return page, nil
	})
}

// filesOf names the list of a session's files, for tokens of its pages.
func filesOf(m *pb.ListSessionFilesRequest) string { return "files\n" + m.GetSessionId() }

// parseFilesToken returns the version and the path after which a page of ListSessionFiles begins.
func parseFilesToken(m *pb.ListSessionFilesRequest) (version int, after string, err error) {
	if m.GetPageToken() == "" {
		return int(m.GetVersion()), "", nil
	}
	last, err := parsePageToken(filesOf(m), m.GetPageToken())
	if err != nil {
		return 0, "", err
	}
	number, after, ok := strings.Cut(last, " ")
	version, err = strconv.Atoi(number)
	if err != nil || !ok || version <= 0 || m.GetVersion() != 0 && int(m.GetVersion()) != version {
		return 0, "", invalidPageToken()
	}
	return version, after, nil
}

// GetSessionFile sends one file in chunks, like GetArtifact. If the version goes during the call, the open
// file stays readable.
func (c sessionCalls) GetSessionFile(m *pb.GetSessionFileRequest, stream grpc.ServerStreamingServer[pb.GetSessionFileResponse]) error {
	path := m.GetPath()
	if len(m.GetRawPath()) > 0 {
		path = string(m.GetRawPath())
	}
	if path == "" {
		return invalid("path", "missing")
	}
	store, tenant, err := c.sessions(stream.Context())
	if err != nil {
		return err
	}
	view, err := store.Read(tenant, m.GetSessionId(), int(m.GetVersion()))
	if err != nil {
		return err
	}
	f, err := view.Find(path)
	if err != nil {
		return err
	}
	file, err := view.Open(f)
	if err != nil {
		return err
	}
	defer file.Close()
	first := &pb.GetSessionFileResponse{File: fromSessionFile(f), Version: uint32(view.Version.Number)}
	return sendChunks(file, f.SizeBytes, m.GetOffsetBytes(), func(offset uint64, data []byte) error {
		r := &pb.GetSessionFileResponse{File: first.File, Version: first.Version, OffsetBytes: offset, Data: data}
		// Only the first message describes the file. Later ones have data only.
		first = &pb.GetSessionFileResponse{}
		return stream.Send(r)
	})
}

// fromSession describes a session for its tenant. Without expire_time it never expires; without newest it is empty.
func fromSession(i session.Info) *pb.Session {
	m := &pb.Session{
		SessionId: i.ID, CreateTime: timestamppb.New(i.Created), LastUseTime: timestamppb.New(i.Used), Labels: i.Labels,
		IdleTtl: fromTTL(i.IdleTTL), Ttl: fromTTL(i.TTL), MaxBytes: uint64(i.Bytes), MaxFiles: uint32(i.Files), Writer: text(i.Writer),
	}
	if !i.Expires.IsZero() {
		m.ExpireTime = timestamppb.New(i.Expires)
	}
	if i.Newest.Number > 0 {
		m.Newest = fromSessionVersion(i.Newest)
	}
	return m
}

// fromTTL leaves the field unset for 0, which means no bound.
func fromTTL(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

func fromSessionVersion(v session.Version) *pb.SessionVersion {
	return &pb.SessionVersion{
		Number: uint32(v.Number), Base: uint32(v.Base), CommittedBy: text(v.By), CreateTime: timestamppb.New(v.Created),
		FileCount: uint64(v.Files), SizeBytes: uint64(v.Bytes),
	}
}

// fromSessionFile sets raw_path only if the path is not UTF-8, which no string field can hold: path then has U+FFFD.
func fromSessionFile(f session.File) *pb.SessionFile {
	m := &pb.SessionFile{Path: text(f.Path), SizeBytes: uint64(f.SizeBytes), Sha256: f.SHA256, Executable: f.Executable}
	if !utf8.ValidString(f.Path) {
		m.RawPath = []byte(f.Path)
	}
	return m
}

// newSessionUse returns nil for nil.
func newSessionUse(m *pb.SessionUse) *executor.SessionUse {
	if m == nil {
		return nil
	}
	return &executor.SessionUse{ID: m.GetSessionId(), Version: int(m.GetVersion()), Wait: m.GetWait(), CommitFailed: m.GetCommitFailed()}
}

func fromSessionBase(b *executor.SessionBase) *pb.SessionBase {
	if b == nil {
		return nil
	}
	return &pb.SessionBase{SessionId: text(b.ID), Version: uint32(b.Version)}
}

// The executor's words for a commit that did not happen, as numbers of the contract.
var uncommittedNumbers = map[executor.Uncommitted]pb.SessionUncommitted{
	executor.NotSucceeded:  pb.SessionUncommitted_SESSION_UNCOMMITTED_NOT_SUCCEEDED,
	executor.NotCollected:  pb.SessionUncommitted_SESSION_UNCOMMITTED_NOT_COLLECTED,
	executor.OverQuota:     pb.SessionUncommitted_SESSION_UNCOMMITTED_OVER_QUOTA,
	executor.CommitError:   pb.SessionUncommitted_SESSION_UNCOMMITTED_ERROR,
	executor.CommitUnknown: pb.SessionUncommitted_SESSION_UNCOMMITTED_UNKNOWN,
}

func fromSessionOutcome(o *executor.SessionOutcome) *pb.SessionResult {
	if o == nil {
		return nil
	}
	return &pb.SessionResult{
		SessionId: text(o.ID), BaseVersion: uint32(o.Version), CommittedVersion: uint32(o.Committed),
		FilesAdded: uint32(o.Added), FilesChanged: uint32(o.Changed), FilesDeleted: uint32(o.Deleted), WrittenBytes: uint64(o.WrittenBytes),
		FileCount: uint32(o.Files), SizeBytes: uint64(o.Bytes), Uncommitted: uncommittedNumbers[o.Uncommitted], Reason: text(o.Reason),
	}
}
