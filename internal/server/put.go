package server

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/session"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

const (
	// maxTenantPuts bounds the uploads to sessions of one tenant, with broken ones.
	maxTenantPuts = 64
	// keepPut is how long the bytes of a broken upload are kept for its caller.
	keepPut = 10 * time.Minute
)

// A putKey says which file is uploaded where. The same caller resumes an upload with the same key.
type putKey struct {
	who                   permission.Principal
	session, path, sha256 string
	size                  int64
	executable            bool
}

// A put is an upload of a file to a session. uploads.mu guards active, expiry and broken.
type put struct {
	dir    string
	active bool        // a call works on it
	expiry *time.Timer // of an upload that is not active
	broken time.Time   // since when it is not active

	mu       sync.Mutex // guards the fields below
	call     int        // number of the call that may write
	received int64      // bytes in the file, from its start
	bad      bool       // the caller has sent something else than the file
}

// PutSessionFile receives a file into the directory of uploads, and then commits it with one version.
// The session has no writer while bytes come, so a slow caller does not block executions. If the stream breaks, or
// the session is busy at the end, the bytes stay for keepPut.
func (c sessionCalls) PutSessionFile(stream grpc.ClientStreamingServer[pb.PutSessionFileRequest, pb.PutSessionFileResponse]) error {
	ctx := stream.Context()
	store, _, err := c.sessions(ctx)
	if err != nil {
		return err
	}
	// The next daemon does not have the bytes of this one.
	if _, _, draining := c.x.Counts(); draining {
		return executor.ErrDraining
	}
	first, err := stream.Recv()
	if err != nil {
		return receiveError(err, "header")
	}
	key, err := newPutKey(caller(ctx), first.GetHeader())
	if err != nil {
		return err
	}
	if err := store.CheckPut(key.who.Tenant, key.session, key.path, key.size); err != nil {
		return err
	}
	p, err := c.uploads.beginPut(key)
	if err != nil {
		return err
	}
	// Until the last byte every end may be a lost connection, so the bytes stay. From then on they stay only for a
	// busy session.
	keep := true
	defer func() {
		if err := c.uploads.endPut(key, p, keep); err != nil {
			c.log.Error("an upload to a session was not removed", "dir", p.dir, "err", err)
		}
	}()
	call, err := p.resume(first.GetHeader().GetOffsetBytes())
	if err != nil {
		return err
	}
	if err := c.inUploadTime(func() error { return receivePut(stream, p, call, key.size) }); err != nil {
		return err
	}
	if err := p.compare(key); err != nil {
		keep = false
		return err
	}
	// The zero Use.Wait: a call must not hold a stream while a program writes for minutes. The caller tries again,
	// without sending the bytes again.
	v, err := store.Put(ctx, key.who.Tenant, key.session, session.Use{By: "upload by " + key.who.Name}, session.NewFile{
		File:   session.File{Path: key.path, SizeBytes: key.size, SHA256: key.sha256, Executable: key.executable},
		Source: p.file(),
	})
	_, keep = errors.AsType[*session.BusyError](err)
	if err != nil {
		return err
	}
	return stream.SendAndClose(&pb.PutSessionFileResponse{Version: fromSessionVersion(v)})
}

// newPutKey reads the header. raw_path counts if it and path are set.
func newPutKey(who permission.Principal, h *pb.PutSessionFileHeader) (putKey, error) {
	if h == nil {
		return putKey{}, invalid("header", "must be the first message")
	}
	want, err := announced("header", h)
	if err != nil {
		return putKey{}, err
	}
	path := h.GetPath()
	if len(h.GetRawPath()) > 0 {
		path = string(h.GetRawPath())
	}
	return putKey{who, h.GetSessionId(), path, want, int64(h.GetSizeBytes()), h.GetExecutable()}, nil
}

// receivePut receives data until the caller closes its side.
func receivePut(stream grpc.ClientStreamingServer[pb.PutSessionFileRequest, pb.PutSessionFileResponse], p *put, call int, size int64) error {
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return p.complete(size)
		}
		if err != nil {
			return err
		}
		data, ok := m.GetMessage().(*pb.PutSessionFileRequest_Data)
		if !ok {
			return p.refuse(invalid("message", "only data may follow the header"))
		}
		if err := p.add(call, data.Data, size); err != nil {
			return err
		}
	}
}

// beginPut makes an upload, or finds the broken one with the same key. Broken uploads of the tenant make room for it, the
// oldest first. Room for the whole file is reserved until endPut or the expiry.
func (u *uploads) beginPut(key putKey) (*put, error) {
	for {
		p, err := u.tryPut(key)
		full := errors.As(err, new(*putsFullError)) || errors.As(err, new(*uploadsFullError))
		if !full || !u.dropOldestPut(key) {
			return p, err
		}
	}
}

// dropOldestPut removes the oldest broken upload of the tenant of key. It returns false if there is none, or if room is
// not what the upload of key lacks.
func (u *uploads) dropOldestPut(key putKey) bool {
	u.mu.Lock()
	var oldest *put
	var at putKey
	for k, p := range u.puts {
		if k.who.Tenant == key.who.Tenant && !p.active && (oldest == nil || p.broken.Before(oldest.broken)) {
			oldest, at = p, k
		}
	}
	same := u.puts[key] != nil
	u.mu.Unlock()
	if oldest == nil || same {
		return false
	}
	u.expirePut(at, oldest)
	return true
}

// tryPut is beginPut without making room.
func (u *uploads) tryPut(key putKey) (*put, error) {
	u.mu.Lock()
	p := u.puts[key]
	if p != nil {
		defer u.mu.Unlock()
		if p.active {
			return nil, &putsFullError{"the same upload is under way"}
		}
		p.active = true
		p.expiry.Stop()
		return p, nil
	}
	if u.tenantPuts(key.who.Tenant) >= maxTenantPuts {
		u.mu.Unlock()
		return nil, &putsFullError{fmt.Sprintf("the tenant has %d uploads to sessions, which is the maximum", maxTenantPuts)}
	}
	p = &put{active: true}
	u.puts[key] = p
	u.mu.Unlock()
	// Without u.mu: take locks it, too. The entry in u.puts keeps another call with the same key out.
	err := u.take(key.who, key.size)
	if err == nil {
		if p.dir, err = os.MkdirTemp(u.dir, u.prefix); err == nil {
			err = os.WriteFile(p.file(), nil, 0o600)
		}
		if err == nil {
			return p, nil
		}
		u.give(key.who, key.size)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.puts, key)
	if p.dir != "" {
		err = errors.Join(err, removeStaged(p.dir, p.file()))
	}
	return nil, err
}

// tenantPuts counts. u.mu is held.
func (u *uploads) tenantPuts(tenant string) (n int) {
	for key := range u.puts {
		if key.who.Tenant == tenant {
			n++
		}
	}
	return n
}

// endPut ends the call that works on an upload. It removes the upload unless its bytes can be of use.
func (u *uploads) endPut(key putKey, p *put, keep bool) error {
	p.mu.Lock()
	p.call++ // a goroutine of inUploadTime may be left
	keep = keep && p.received > 0 && !p.bad
	p.mu.Unlock()
	u.mu.Lock()
	if keep {
		defer u.mu.Unlock()
		p.active, p.broken = false, time.Now()
		p.expiry = time.AfterFunc(keepPut, func() { u.expirePut(key, p) })
		return nil
	}
	delete(u.puts, key)
	u.mu.Unlock()
	defer u.give(key.who, key.size)
	return removeStaged(p.dir, p.file())
}

// expirePut removes a broken upload after keepPut.
func (u *uploads) expirePut(key putKey, p *put) {
	u.mu.Lock()
	// A call may have resumed the upload, or ended it, between the timer's end and the lock.
	if p.active || u.puts[key] != p {
		u.mu.Unlock()
		return
	}
	delete(u.puts, key)
	u.mu.Unlock()
	defer u.give(key.who, key.size)
	removeStaged(p.dir, p.file()) // what stays is removed at the next start
}

// dropPuts removes the broken uploads of a tenant that was removed, or all if tenant is empty: no client can resume
// them after the server has stopped, for example in a takeover that has failed, because the daemon goes on with
// another server. Uploads that are under way are removed at their end.
func (u *uploads) dropPuts(tenant string) {
	u.mu.Lock()
	puts := maps.Clone(u.puts)
	u.mu.Unlock()
	for key, p := range puts {
		if tenant == "" || key.who.Tenant == tenant {
			p.refuse(nil)
			u.expirePut(key, p)
		}
	}
}

// file is named by the daemon: a caller's path never becomes a path on the host here.
func (p *put) file() string { return filepath.Join(p.dir, "file") }

// resume drops the bytes after the offset, and returns the number of the call.
func (p *put) resume(offset uint64) (call int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if offset > math.MaxInt64 || int64(offset) > p.received {
		return 0, &fieldError{"header.offset_bytes", &offsetError{size: p.received, offset: offset}}
	}
	p.received = int64(offset)
	p.call++
	return p.call, os.Truncate(p.file(), p.received)
}

// add takes the next bytes.
func (p *put) add(call int, data []byte, size int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	// A former call of this upload: its connection broke, and its last message comes late.
	if call != p.call {
		return errBrokeOff
	}
	if n := int64(len(data)); n > size-p.received {
		p.bad = true
		return invalid("data", "ends at %d, but %d bytes were announced", p.received+n, size)
	} else if n == 0 {
		return errNoData("data")
	}
	file, err := os.OpenFile(p.file(), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	// n also counts after an error, for example on a full disk: the caller then resumes after these bytes.
	n, err := file.WriteAt(data, p.received)
	p.received += int64(n)
	return errors.Join(err, file.Close())
}

// complete reports whether all bytes have come when the caller sends no more.
func (p *put) complete(size int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.received < size {
		return invalid("data", "ends at %d, but %d bytes were announced; resume there", p.received, size)
	}
	return nil
}

// refuse marks the upload as one that can't go on: endPut removes its bytes.
func (p *put) refuse(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bad = true
	return err
}

// compare compares the whole file with the announced digest.
func (p *put) compare(key putKey) error {
	file, err := os.Open(p.file())
	if err != nil {
		return err
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return err
	}
	if have := hex.EncodeToString(sum.Sum(nil)); have != key.sha256 {
		return &digestError{path: key.path, want: key.sha256, have: have}
	}
	return nil
}
