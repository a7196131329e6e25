package session

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/skillrun/skillrun/internal/durable"
)

// Info describes a session.
type Info struct {
	ID      string
	Created time.Time
	Used    time.Time // the last use
	Expires time.Time // zero: never
	Settings
	Newest Version // zero: nothing was committed
	Writer string  // the execution or the call that writes; empty: none
}

// A session is one session in memory. Store.mu guards the fields without a comment.
type session struct {
	id      string // never changes
	dir     string // never changes
	created time.Time
	used    time.Time // also the modification time of the file settings, see use
	set     Settings
	head    Version // the newest version; its Stored is the size of all versions
	gone    bool    // it was deleted
	freed   bool    // it is held only because free could not read it, see free

	updating sync.Mutex    // before Store.mu
	turn     chan struct{} // a lock; see begin
	by       string        // the writer; empty: none
	waiting  int           // callers that wait for turn

	// Only the writer uses these, and forget. The first writer after a start loads them.
	loaded  bool
	kept    []*manifest   // in the order of their numbers
	damaged map[int]error // the other versions on disk
	tree    int           // the version in the directory tree; 0: unknown
}

const (
	metaName     = "settings"
	versionsName = "versions"
	objectsName  = "objects"
	treeName     = "tree"
)

// meta is the content of the file settings, after its sum.
type meta struct {
	Created time.Time `json:"created"`
	Settings
}

// readSession reads what find and List need: the file settings and the newest version.
func readSession(dir, id string) (*session, error) {
	path := filepath.Join(dir, metaName)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var m meta
	// Without the sum, a changed bit in a key would leave a field at zero, and a session that was made in
	// the year 1 has expired.
	if data, err = durable.Checked(data); err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", metaName, err)
	}
	fi, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	x := newSession(dir, id, m)
	x.used = fi.ModTime()
	numbers, err := versionNumbers(dir)
	if err != nil || len(numbers) == 0 {
		return x, err
	}
	x.head, err = readVersion(dir, numbers[len(numbers)-1])
	return x, err
}

// newSession returns a session without versions. Its channel turn has room for one value: a goroutine that
// could send is the writer, until it receives the value again.
func newSession(dir, id string, m meta) *session {
	return &session{id: id, dir: dir, created: m.Created, used: m.Created, set: m.Settings, turn: make(chan struct{}, 1)}
}

// readVersion reads a version without its files. If it is damaged, the number and the size on disk are
// still right.
func readVersion(dir string, number int) (Version, error) {
	v, err := readHead(versionPath(dir, number))
	if _, io := errors.AsType[*os.PathError](err); io {
		return Version{}, err
	}
	if err == nil && v.Number == number {
		return v, nil
	}
	stored, err := objectBytes(dir)
	return Version{Number: number, Stored: stored}, err
}

// objectBytes returns the size on disk of all objects, in bytes.
func objectBytes(dir string) (total int64, err error) {
	sizes, err := objectSizes(dir)
	for _, size := range sizes {
		total += onDisk(size)
	}
	return total, err
}

// versionNumbers returns the numbers of the versions on disk, in order. Other names in the directory
// are of interrupted commits.
func versionNumbers(dir string) ([]int, error) {
	list, err := os.ReadDir(filepath.Join(dir, versionsName))
	if err != nil {
		return nil, err
	}
	var numbers []int
	for _, d := range list {
		if n, err := strconv.Atoi(d.Name()); err == nil && n > 0 && strconv.Itoa(n) == d.Name() {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// versionPath returns the path of the file of a version in the directory of its session.
func versionPath(dir string, number int) string {
	return filepath.Join(dir, versionsName, strconv.Itoa(number))
}

// info describes a session. s.mu is held.
func (s *Store) info(x *session) Info {
	return Info{
		ID: x.id, Created: x.created, Used: x.used, Expires: x.expires(),
		Settings: x.set.clone(), Newest: x.head, Writer: x.by,
	}
}

// expires returns when the session is removed. Zero: never. A running writer delays it.
func (x *session) expires() (at time.Time) {
	if x.set.IdleTTL > 0 {
		at = x.used.Add(x.set.IdleTTL)
	}
	if x.set.TTL > 0 {
		if end := x.created.Add(x.set.TTL); at.IsZero() || end.Before(at) {
			at = end
		}
	}
	return at
}

// expired reports whether a session no longer exists for callers. s.mu is held.
func (s *Store) expired(x *session) bool {
	return x.by == "" && s.overdue(x)
}

// use notes a use of the session. The time of the file settings keeps it over a restart; a crash of the
// machine may lose it, which only shortens the session's life.
func (s *Store) use(x *session) error {
	now := s.config.Now()
	s.mu.Lock()
	x.used = now
	s.mu.Unlock()
	return os.Chtimes(filepath.Join(x.dir, metaName), now, now)
}

// Get describes a session.
func (s *Store) Get(tenant, id string) (Info, error) {
	x, err := s.find(tenant, id)
	if err != nil {
		return Info{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.info(x), nil
}

// List describes a tenant's sessions, in the order of their creation.
func (s *Store) List(tenant string) []Info {
	s.refresh(tenant)
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tenants[tenant]
	if t == nil {
		return nil
	}
	var list []Info
	for _, x := range t.sessions {
		if !s.expired(x) {
			list = append(list, s.info(x))
		}
	}
	slices.SortFunc(list, func(a, b Info) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// Update changes the settings of a session. change gets the current settings and changes them in place. Update checks
// the changed settings as Create does. An update is a use of the session.
func (s *Store) Update(tenant, id string, change func(*Settings)) (Info, error) {
	if err := s.enter(); err != nil {
		return Info{}, err
	}
	defer s.leave()
	x, err := s.find(tenant, id)
	if err != nil {
		return Info{}, err
	}
	if err := s.update(tenant, x, change); err != nil {
		return Info{}, err
	}
	return s.Get(tenant, id)
}

// update is Update of a session.
func (s *Store) update(tenant string, x *session, change func(*Settings)) error {
	x.updating.Lock()
	defer x.updating.Unlock()
	s.mu.Lock()
	set := x.set.clone()
	s.mu.Unlock()
	was := set
	change(&set)
	if err := set.check(s.config.Rules(tenant).since(was, set)); err != nil {
		return err
	}
	if err := writeMeta(x.dir, meta{x.created, set}); err != nil {
		return gone(x.id, err) // a deletion does not wait for an update
	}
	s.mu.Lock()
	x.set = set.clone()
	s.mu.Unlock()
	return gone(x.id, s.use(x))
}

// writeMeta replaces the file settings. Its callers then set the file's modification time, which is the time of
// the last use.
func writeMeta(dir string, m meta) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(dir, metaName), durable.WithSum(data))
}
