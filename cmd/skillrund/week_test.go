package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skillrun/skillrun/internal/audit"
	"github.com/skillrun/skillrun/internal/certtest"
	"github.com/skillrun/skillrun/internal/ingress"
	"github.com/skillrun/skillrun/internal/ingress/identity"
	"github.com/skillrun/skillrun/internal/metrics"
	"github.com/skillrun/skillrun/internal/record"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/server"
	"github.com/skillrun/skillrun/internal/session"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
	"github.com/skillrun/skillrun/sandbox"
)

// A week is a daemon without sandboxes and clients, in a bubble of package synctest: the clock jumps to the next timer
// as soon as all goroutines wait. The parts of the daemon, their goroutines and their files are real. The test works
// with them as the executor and the servers do, half a minute after each hour. Before that it checks the results of the
// past hours. All timers of the daemon end at whole minutes, so the results are exact.
//
// Watches of the kernel are left out, because their goroutines wait for events from outside the bubble. The test calls
// reloadTenants itself.
type week struct {
	t           *testing.T
	dir         string
	runtimes    *runtime.Set
	certificate *ingress.Certificate // of the listeners
	hour        int
	daemon      *daemon
	stop        func()

	executions []*weekExecution
	sessions   []*weekSession
	keeper     *weekSession // is used every few hours
	held       *session.Writer
	tokens     []weekToken
	authority  *certtest.Authority
	clients    []weekClient
	days       []weekSizes
}

const (
	weekHours = 7 * 24
	weekAge   = 36 // hours: retention.age
	weekIdle  = 6  // hours: sessions.idle_ttl
	weekTTL   = 48 // hours: sessions.ttl
	weekUse   = 5  // hours between two uses of a session
	weekState = 1 << 20
	weekBytes = 16 << 20
	weekFiles = 4 // audit.files
)

var weekConfig = fmt.Sprintf(`state_dir: state
run_dir: run
skills: [skills]
listen: {unix: s.sock, tls: {certificate: daemon.crt, key: daemon.key}, tcp: '127.0.0.1:0'}
identity: {tokens: tokens.json, authorities: authorities.pem, callers: [{caller: 'subject:CN=robot', tenant: steady, role: invoke}]}
tenants: {steady: {}, bounded: {quotas: {state_bytes: %d}}, burst: {}}
tenants_dir: tenants
retention: {age: %dh, bytes: %d}
sessions: {idle_ttl: %dh, ttl: %dh, versions: 3}
audit: {file_bytes: 64KiB, files: %d}
`, weekState, weekAge, weekBytes, weekIdle, weekTTL, weekFiles)

// What expires or grows in a daemon is removed when its time has come, and not before, and files rotate. After a few
// days the daemon holds no more than a day before. Each midnight the daemon restarts.
func TestWeek(t *testing.T) {
	t.Parallel()
	w := newWeek(t)
	synctest.Test(t, func(t *testing.T) {
		w.t = t
		w.newAuthority()
		w.start()
		defer func() { w.stop() }()
		for ; w.hour < weekHours && !t.Failed(); w.hour++ {
			if w.hour%24 == 0 && w.hour > 0 {
				w.stop()
				w.start()
			}
			time.Sleep(30 * time.Second)
			w.checkRecord()
			w.checkSessions()
			w.checkAudit()
			w.checkCallers()
			w.changeTenants()
			w.checkSizes()
			w.work()
			time.Sleep(time.Hour - 30*time.Second)
		}
	})
}

// newWeek makes the files of a week. A bubble must set t.
func newWeek(t *testing.T) *week {
	t.Helper()
	dir := newDir(t)
	runtimes, err := runtime.Discover(t.Context(), runtime.Config{Rootfs: "/", Python: "auto"}) // starts processes, which a bubble can't wait for
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Unsetenv("SQLITE_TMPDIR") }) // openStores sets it
	for _, name := range []string{"skills", "tenants", "state", "run"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "skillrund.yaml"), []byte(weekConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	return &week{t: t, dir: dir, runtimes: runtimes}
}

// start starts the daemon as daemon.start does, without the parts that need sandboxes.
func (w *week) start() {
	w.t.Helper()
	path := filepath.Join(w.dir, "skillrund.yaml")
	c, err := loadConfig(path)
	w.must(err)
	log, err := os.OpenFile(filepath.Join(w.dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	w.must(err)
	d := &daemon{
		config: c, path: path, log: newLogger(c, log), started: time.Now(), runtimes: w.runtimes, tenantSet: c.tenantSet(),
		metrics: metrics.New("week", server.Reason, server.Reasons()),
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	d.lock, err = lockState(c.StateDir)
	w.must(err)
	d.skills, err = skill.OpenRegistry(ctx, skill.RegistryConfig{
		Roots: roots(c.Skills), Private: privateRoots(c.loaded), Dir: filepath.Join(c.StateDir, "snapshots"),
		Owner: snapshot.Owner{UID: sandbox.ScriptID, GID: sandbox.ScriptID}, MaxFiles: c.Snapshots.Files, MaxBytes: int64(c.Snapshots.Bytes),
		TenantsDir: filepath.Join(c.StateDir, "tenants"), Rules: c.skillRules(d.tenantSet), Log: d.log,
	})
	w.must(err)
	w.must(d.openStores(ctx))
	w.must(d.openServers())
	w.certificate, err = c.certificate(d.log)
	w.must(err)
	var background sync.WaitGroup
	background.Go(func() { d.sweepRecords(ctx) })
	w.daemon = d
	w.stop = func() {
		cancel()
		background.Wait()
		d.stopper()(context.Background())
		w.must(errors.Join(d.close(), log.Close()))
	}
}

func (w *week) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("hour %d: %v", w.hour, err)
	}
}

func (w *week) errorf(format string, args ...any) {
	w.t.Helper()
	w.t.Errorf("hour %d: %s", w.hour, fmt.Sprintf(format, args...))
}

// same compares two lists that have any order.
func (w *week) same(what string, got, want []string) {
	w.t.Helper()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		w.errorf("%s: got %d: %v\nwant %d: %v", what, len(got), got, len(want), want)
	}
}

// names lists a directory. A missing one is empty.
func (w *week) names(dir ...string) (names []string) {
	w.t.Helper()
	entries, err := os.ReadDir(filepath.Join(append([]string{w.dir, "state"}, dir...)...))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.must(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// work does what callers do in each hour.
func (w *week) work() {
	w.execute("steady", weekKey(w.hour), 100, false)
	w.execute("steady", "", 100<<10, true)
	w.execute("bounded", "", 100<<10, false)
	if w.hour == 50 {
		for range 20 {
			w.execute("burst", "", 1<<20, false)
		}
	}
	w.useSessions()
	for n := range 40 {
		w.must(w.daemon.audit.Write(audit.Entry{Event: audit.Call, Tenant: "steady", Principal: "token:ci", Method: fmt.Sprint("call ", n), Decision: audit.Allowed, Detail: strings.Repeat("x", 300)}))
	}
	if w.hour%24 == 0 {
		w.newToken()
	}
	if w.hour%12 == 0 {
		w.newAuthority()
	}
}

// A weekExecution is an execution that has ended in its hour.
type weekExecution struct {
	tenant, id       string
	hour             int
	inFile, artifact bool
}

// weekKey is free again when the execution of the hour has gone.
func weekKey(hour int) string { return fmt.Sprint("job", hour%(weekAge+1)) }

func (w *week) execute(tenant, key string, output int, artifact bool) {
	w.t.Helper()
	ctx, store := w.t.Context(), w.daemon.record
	x := record.Execution{ID: record.NewID(), Tenant: tenant, Principal: "token:ci", Skill: "demo", SourceKind: "script", Key: key, Detail: []byte("{}")}
	l, err := store.Create(ctx, x, []byte("{}"))
	w.must(err)
	for left := output; left > 0; left -= 64 << 10 {
		_, err := l.Append(record.Event{Kind: record.KindOutput, Stream: 1, Data: make([]byte, min(left, 64<<10))})
		w.must(err)
	}
	if artifact {
		dir := store.ArtifactDir(x.ID)
		w.must(os.Mkdir(dir, 0o700))
		w.must(os.WriteFile(filepath.Join(dir, "0"), []byte("made"), 0o600))
		w.must(l.PutArtifacts(ctx, []record.Artifact{{Path: "made", SizeBytes: 4, SHA256: sum([]byte("made"))}}))
	}
	w.must(l.End(ctx, "EXITED", []byte("{}"), time.Now()))
	w.executions = append(w.executions, &weekExecution{tenant, x.ID, w.hour, output > 64<<10, artifact})
}

// checkRecord checks which executions exist. If a tenant is within its quota, its executions go by their age alone.
func (w *week) checkRecord() {
	w.t.Helper()
	store := w.daemon.record
	var spools, artifacts []string
	for _, name := range []string{"steady", "bounded", "burst"} {
		left := w.recorded(name)
		aged := slices.DeleteFunc(slices.Clone(w.executions), func(x *weekExecution) bool { return x.tenant != name || w.hour-x.hour > weekAge })
		var want []string
		for _, x := range aged {
			want = append(want, x.id)
		}
		if name != "steady" { // the oldest may have gone before
			want = want[max(0, len(want)-len(left)):]
		}
		w.same("executions of "+name, left, want)
		for _, x := range aged[len(aged)-len(want):] {
			if x.inFile {
				spools = append(spools, x.id)
			}
			if x.artifact {
				artifacts = append(artifacts, x.id)
			}
		}
	}
	w.same("spools", w.names("record", "spool"), spools)
	w.same("artifacts", w.names("record", "artifacts"), artifacts)
	if n, all := store.BytesOf("bounded"), store.Bytes(); n >= weekState || all > weekBytes {
		w.errorf("the bounded tenant has %d bytes, all have %d", n, all)
	}
	if w.hour > 12 && len(w.recorded("bounded")) < 9 {
		w.errorf("the bounded tenant has less than its quota allows: %d executions", len(w.recorded("bounded")))
	}
	if w.hour == 51 && len(w.recorded("burst")) < 8 {
		w.errorf("the tenant of the burst has less than its share: %d executions", len(w.recorded("burst")))
	}
	if w.hour >= weekAge {
		_, err := store.Create(w.t.Context(), record.Execution{ID: record.NewID(), Tenant: "steady", Key: weekKey(w.hour - weekAge)}, nil)
		if _, ok := errors.AsType[*record.KeyClaimed](err); !ok {
			w.errorf("a key whose execution still exists: %v", err)
		}
	}
}

// recorded returns the IDs of the executions of a tenant.
func (w *week) recorded(tenant string) (ids []string) {
	w.t.Helper()
	page, token, err := w.daemon.record.List(w.t.Context(), record.Filter{Tenant: tenant, PageSize: record.MaxPage})
	w.must(err)
	if token != "" {
		w.errorf("more than a page of executions")
	}
	for _, x := range page {
		ids = append(ids, x.ID)
	}
	return ids
}

// A weekSession is a session with the hours of its creation and of its last use.
type weekSession struct {
	id            string
	created, used int
}

// ends returns the hour in which a session expires. The sweep removes its files in this hour, after the check.
func (s *weekSession) ends() int { return min(s.used+weekIdle, s.created+weekTTL) }

// useSessions makes one session that is never used, uses another one, and holds a third one for longer than idle_ttl.
func (w *week) useSessions() {
	w.t.Helper()
	w.newSession()
	if w.keeper == nil || w.keeper.ends() <= w.hour {
		w.keeper = w.newSession()
		w.commit(w.keeper)
	} else if (w.hour-w.keeper.created)%weekUse == 0 {
		w.commit(w.keeper)
	}
	switch w.hour {
	case 30:
		s := w.newSession()
		var err error
		w.held, err = w.daemon.sessions.Acquire(w.t.Context(), "steady", s.id, session.Use{By: "the test"})
		w.must(err)
		s.used = 45
	case 45:
		w.held.Release()
	}
}

func (w *week) newSession() *weekSession {
	w.t.Helper()
	info, err := w.daemon.sessions.Create("steady", session.Settings{})
	w.must(err)
	s := &weekSession{info.ID, w.hour, w.hour}
	w.sessions = append(w.sessions, s)
	return s
}

// commit makes a version with another content of a file.
func (w *week) commit(s *weekSession) {
	w.t.Helper()
	writer, err := w.daemon.sessions.Acquire(w.t.Context(), "steady", s.id, session.Use{By: "the test"})
	w.must(err)
	defer writer.Release()
	w.must(writer.Open(0))
	content := fmt.Appendln(nil, w.hour)
	source := filepath.Join(w.dir, "state", "source")
	w.must(os.WriteFile(source, content, 0o600))
	file := session.File{Path: "file", SizeBytes: int64(len(content)), SHA256: sum(content)}
	_, err = writer.Commit(session.Change{Files: []session.NewFile{{File: file, Source: source}}})
	w.must(err)
	w.must(os.Remove(source))
	s.used = w.hour
}

func (w *week) checkSessions() {
	w.t.Helper()
	var listed, want, files []string
	for _, info := range w.daemon.sessions.List("steady") {
		listed = append(listed, info.ID)
	}
	for _, s := range w.sessions {
		if w.hour < s.ends() {
			want = append(want, s.id)
		}
		if w.hour <= s.ends() {
			files = append(files, s.id)
		}
	}
	w.same("sessions", listed, want)
	w.same("directories of sessions", w.names("sessions", "steady"), files)
	if k := w.keeper; k != nil && w.hour < k.ends() {
		commits := (k.used-k.created)/weekUse + 1
		if got, want := len(w.names("sessions", "steady", k.id, "versions")), min(commits, 3); got != want {
			w.errorf("got %d versions, want %d", got, want)
		}
		if got := len(w.names("sessions", "steady", k.id, "objects")); got > 3 {
			w.errorf("%d objects of 3 versions", got)
		}
	}
}

// checkAudit checks that files rotate, that the chain is whole, and that everything of the last hour is signed.
func (w *week) checkAudit() {
	w.t.Helper()
	files := slices.DeleteFunc(w.names("audit"), func(name string) bool { return !strings.HasSuffix(name, ".jsonl") })
	if w.hour >= 24 && len(files) != weekFiles || len(files) > weekFiles {
		w.errorf("the audit log has %d files", len(files))
	}
	report, err := audit.VerifyDir(w.daemon.config.auditDir(), "", nil)
	if err != nil {
		w.errorf("the audit log: %v", err)
	}
	// A restart has just begun the log again, and its first checkpoint has come at once.
	age := time.Since(report.SignedAt)
	if w.hour%24 != 0 && (report.Signed != report.Last || age < 57*time.Minute) {
		w.errorf("entries to %d are signed, of %d, %v ago", report.Signed, report.Last, age)
	}
	if w.hour >= 24 && report.First == 1 {
		w.errorf("no file of the audit log was removed")
	}
}

// A weekToken is valid for a day.
type weekToken struct {
	text, id string
	expires  time.Time
}

func (w *week) newToken() {
	w.t.Helper()
	path := w.daemon.config.Identity.Tokens
	made := weekToken{expires: time.Now().Add(24 * time.Hour)}
	var row identity.Token
	var err error
	made.text, row, err = identity.CreateToken(path, identity.Token{Tenant: "steady", Name: "ci", Role: identity.Invoke, Expires: made.expires})
	w.must(err)
	made.id = row.ID
	w.tokens = append(w.tokens, made)
	if len(w.tokens) > 2 { // as an operator does now and then
		w.must(identity.RevokeToken(path, w.tokens[0].id))
		w.tokens = w.tokens[1:]
	}
}

// A weekClient has a certificate, which is valid for a day or until its authority is replaced.
type weekClient struct {
	pair      *certtest.Pair
	authority *certtest.Authority
}

// newAuthority replaces the authority of clients, and the daemon's certificate, which was valid for a day.
func (w *week) newAuthority() {
	w.authority = certtest.NewAuthority(w.t, fmt.Sprint("authority ", w.hour))
	w.authority.WriteRoots(filepath.Join(w.dir, "authorities.pem"))
	w.authority.Server("daemon").Write(w.dir, "daemon")
	w.clients = append(w.clients, weekClient{w.authority.Client("robot", nil), w.authority})
	w.clients = w.clients[max(0, len(w.clients)-3):]
}

// checkCallers calls with each token and each certificate.
func (w *week) checkCallers() {
	w.t.Helper()
	loopback := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}
	for _, token := range w.tokens {
		_, err := w.daemon.callers.Identify(identity.Credentials{Addr: loopback, Authorization: []string{"Bearer " + token.text}})
		if valid := time.Now().Before(token.expires); valid != (err == nil) || err != nil && !strings.Contains(err.Error(), "expired") {
			w.errorf("a token that expires in %v: %v", time.Until(token.expires), err)
		}
	}
	for _, c := range w.clients {
		id, err := w.connect(c.pair)
		if valid := c.authority == w.authority; valid != (err == nil) || valid && id.Tenant != "steady" {
			w.errorf("a certificate of a valid authority (%v): got %v, %v", valid, id, err)
		}
	}
}

// connect makes an encrypted connection with a client's certificate, and returns its identity.
func (w *week) connect(client *certtest.Pair) (id identity.Identity, err error) {
	w.t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	w.must(err)
	l := ingress.Listen(ingress.Secure(inner, w.certificate, ingress.HTTP2), ingress.Limits{}, w.daemon.log)
	defer l.Close()
	var serving sync.WaitGroup
	defer serving.Wait()
	serving.Go(func() {
		var conn net.Conn
		if conn, err = l.Accept(); err != nil {
			return
		}
		defer conn.Close()
		c := conn.(*ingress.Conn)
		if err = c.Handshake(); err == nil {
			id, err = w.daemon.callers.Identify(c.Credentials(nil))
		}
	})
	conn, dialErr := tls.Dial("tcp", l.Addr().String(), &tls.Config{
		RootCAs: w.authority.Roots(), ServerName: "localhost", NextProtos: []string{ingress.HTTP2}, Certificates: []tls.Certificate{client.TLS()},
	})
	if dialErr != nil {
		w.errorf("the daemon's certificate: %v", dialErr)
		return id, dialErr
	}
	io.Copy(io.Discard, conn) // until the daemon ends it
	conn.Close()
	serving.Wait()
	return id, err
}

// changeTenants adds, breaks and removes a tenant in turns.
func (w *week) changeTenants() {
	w.t.Helper()
	path := filepath.Join(w.dir, "tenants", "guest.yaml")
	broken := 0
	switch w.hour % 6 {
	case 0:
		w.must(os.WriteFile(path, fmt.Appendf(nil, "quotas: {queued: %d}\n", w.hour+1), 0o600))
	case 1:
		w.must(os.WriteFile(path, []byte("quotas: {queued: -1}\n"), 0o600))
		broken = 1
	case 2:
		w.must(os.WriteFile(path, []byte("{}\n"), 0o600))
	case 3:
		w.must(os.Remove(path))
	}
	w.daemon.reloadTenants(w.t.Context())
	if got := len(w.daemon.tenants.degraded()); got != broken {
		w.errorf("%d tenants have mistakes, want %d", got, broken)
	}
	if _, ok := w.daemon.executor.Tenants.Get("guest"); ok != (w.hour%6 < 3) {
		w.errorf("the tenant of tenants_dir exists: %v", ok)
	}
}

// weekSizes has the sizes of the daemon's files at noon.
type weekSizes struct {
	entries  map[string]bool
	database int64 // bytes
}

// checkSizes compares each noon with the noon before. The first days differ: the oldest executions have not gone yet,
// and the burst has come.
func (w *week) checkSizes() {
	w.t.Helper()
	if w.hour%24 != 12 {
		return
	}
	now := weekSizes{entries: map[string]bool{}}
	w.must(filepath.WalkDir(filepath.Join(w.dir, "state"), func(path string, e fs.DirEntry, err error) error {
		now.entries[strings.TrimPrefix(path, w.dir)] = true
		return err
	}))
	info, err := os.Stat(filepath.Join(w.dir, "state/record/record.db"))
	w.must(err)
	now.database = info.Size()
	w.days = append(w.days, now)
	w.t.Logf("day %d: %d directory entries, %d bytes of database", w.hour/24, len(now.entries), now.database)
	if w.hour < 5*24 {
		return
	}
	before := w.days[len(w.days)-2]
	if len(now.entries) != len(before.entries) {
		more := maps.Clone(now.entries)
		maps.DeleteFunc(more, func(name string, _ bool) bool { return before.entries[name] })
		w.errorf("%d directory entries, a day before %d; new: %v", len(now.entries), len(before.entries), slices.Sorted(maps.Keys(more)))
	}
	if now.database > before.database {
		w.errorf("%d bytes of database, a day before %d", now.database, before.database)
	}
}
