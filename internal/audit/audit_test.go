package audit

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skillrun/skillrun/internal/disktest"
)

// config is the configuration of a log in a directory.
func config(dir string) Config {
	return Config{
		Dir: filepath.Join(dir, "audit"), KeyFile: filepath.Join(dir, "key"), FileBytes: 1 << 20, Files: 4,
		Reason: func(error) string { return "SOME_REASON" }, Log: slog.New(slog.DiscardHandler),
	}
}

func open(t testing.TB, c Config) *Log {
	t.Helper()
	l, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func closeLog(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// written writes a log of n entries to dir and closes it.
func written(t testing.TB, c Config, n int) {
	t.Helper()
	l := open(t, c)
	for i := range n {
		if err := l.Write(Entry{Event: Execute, Tenant: "acme", Command: fmt.Sprintf("echo %d <&>", i), Decision: Allowed}); err != nil {
			t.Fatal(err)
		}
	}
	closeLog(t, l)
}

// entries returns all entries of a log.
func entries(t testing.TB, dir string) (all []Entry) {
	t.Helper()
	files, err := list(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		for line := range bytes.Lines(read(t, f.path)) {
			e, _, err := decode(bytes.TrimSuffix(line, []byte("\n")))
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			all = append(all, e)
		}
	}
	return all
}

// events returns the events of a log, with the event of a checkpoint left out.
func events(t testing.TB, dir string) (all []Event) {
	t.Helper()
	for _, e := range entries(t, dir) {
		if e.Event != Checkpoint {
			all = append(all, e.Event)
		}
	}
	return all
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func write(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Many writers, two daemons after each other: one chain, and everything signed.
func TestLog(t *testing.T) {
	c := config(t.TempDir())
	for range 2 {
		l := open(t, c)
		var writers sync.WaitGroup
		for i := range 8 {
			writers.Go(func() {
				for range 50 {
					if err := l.Write(Entry{Event: End, Execution: fmt.Sprint(i)}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		writers.Wait()
		if got := l.Stats(); got.Entries < 401 || got.Failures != 0 || got.Broken != nil {
			t.Errorf("got %+v", got)
		}
		closeLog(t, l)
	}
	r, err := VerifyDir(c.Dir, "", nil)
	if err != nil || r.First != 1 || r.Last < 806 || r.Signed != r.Last || r.Torn != 0 || r.SignedAt.IsZero() {
		t.Errorf("got %+v, %v", r, err)
	}
	key, err := PublicKey(c.KeyFile)
	if err != nil || string(key) != string(read(t, filepath.Join(c.Dir, publicName))) {
		t.Errorf("audit.pub is not the public key: %v", err)
	}
	public, err := ParsePublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	files, _ := list(c.Dir)
	if r, err := VerifyFiles([]string{files[0].path}, public); err != nil || r.Last < 806 {
		t.Errorf("got %+v, %v", r, err)
	}
	for _, name := range []string{files[0].path, c.KeyFile} {
		if fi, err := os.Stat(name); err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, fi, err)
		}
	}
}

// A nil Log accepts entries and writes nothing.
func TestNil(t *testing.T) {
	var l *Log
	l.Note(Entry{})
	l.NoteRefusal(Entry{}, errors.New("refused"))
	end, err := l.Allow(Entry{})
	if end(nil); err != nil || l.WriteOrCount(Entry{}) != nil {
		t.Error(err)
	}
	if err := errors.Join(l.Write(Entry{}), l.Close()); err != nil || l.Stats() != (Stats{}) {
		t.Error(err)
	}
}

// Every byte of every line: a change is found at the line, whatever it is changed to.
func TestEveryByteCounts(t *testing.T) {
	c := config(t.TempDir())
	written(t, c, 1)
	path := filepath.Join(c.Dir, "audit-000000000001.jsonl")
	data := read(t, path)
	for i, was := range data {
		for _, b := range []byte{was ^ 1, '\n'} {
			if b == was {
				continue
			}
			changed := bytes.Clone(data)
			changed[i] = b
			write(t, path, changed)
			_, err := VerifyDir(c.Dir, "", nil)
			var f *Fault
			if line := bytes.Count(data[:i], []byte("\n")) + 1; !errors.As(err, &f) || f.Line != line && f.Line != 0 {
				t.Fatalf("byte %d (line %d) %q -> %q: %v", i, line, was, b, err)
			}
		}
	}
}

// forge replaces line n (from 0) of a file by another content with the right hash.
func forge(t *testing.T, lines [][]byte, n int) {
	t.Helper()
	e, _, err := decode(bytes.TrimSuffix(lines[n], []byte("\n")))
	if err != nil {
		t.Fatal(err)
	}
	e.Command = "echo forged"
	lines[n], _ = e.encode()
}

// rechain computes the hashes of all lines after n anew, without the key.
func rechain(t *testing.T, lines [][]byte, n int) {
	t.Helper()
	_, prev, err := decode(bytes.TrimSuffix(lines[n], []byte("\n")))
	if err != nil {
		t.Fatal(err)
	}
	for i := n + 1; i < len(lines); i++ {
		e, _, err := decode(bytes.TrimSuffix(lines[i], []byte("\n")))
		if err != nil {
			t.Fatal(err)
		}
		e.Prev = prev
		lines[i], prev = e.encode()
	}
}

func TestVerifyFindsTheLine(t *testing.T) {
	for _, tt := range []struct {
		name   string
		tamper func(t *testing.T, lines [][]byte) [][]byte
		want   string
	}{
		{"a line is changed", func(t *testing.T, l [][]byte) [][]byte {
			l[4] = bytes.Replace(l[4], []byte("echo"), []byte("true"), 1)
			return l
		}, ":5: the line was changed"},
		{"a line is changed with its hash", func(t *testing.T, l [][]byte) [][]byte { forge(t, l, 4); return l }, ":5: entry 5 was changed"},
		{"all lines after it get new hashes", func(t *testing.T, l [][]byte) [][]byte { forge(t, l, 4); rechain(t, l, 4); return l }, "no valid signature"},
		{"a line is removed", func(t *testing.T, l [][]byte) [][]byte { return append(l[:4:4], l[5:]...) }, ":5: entry 6 follows entry 4: entries 5 to 5 are missing"},
		{"two lines are swapped", func(t *testing.T, l [][]byte) [][]byte { l[4], l[5] = l[5], l[4]; return l }, ":5: entry 6 follows entry 4"},
		{"a line is repeated", func(t *testing.T, l [][]byte) [][]byte { l[5] = l[4]; return l }, ":6: entry 5 follows entry 5: it was moved or repeated"},
		{"the first line is removed", func(t *testing.T, l [][]byte) [][]byte { return l[1:] }, "begins with entry 2; entries 1 to 1 are missing"},
		{"the end is cut off", func(t *testing.T, l [][]byte) [][]byte { return l[:6] }, "the log ends with entry 6; entries 7 to "},
		{"the end is cut off in a line", func(t *testing.T, l [][]byte) [][]byte { l[6] = l[6][:20]; return l[:7] }, "the log ends with entry 6; entries 7 to "},
		{"all lines are removed", func(t *testing.T, l [][]byte) [][]byte { return nil }, "the log ends with entry 0; entries 1 to "},
		{"a line without an end", func(t *testing.T, l [][]byte) [][]byte { l[4] = bytes.Repeat([]byte("x"), maxLine+1); return l }, ":5: the line was changed"},
		{"a first entry with a past", func(t *testing.T, l [][]byte) [][]byte {
			e, _, _ := decode(bytes.TrimSuffix(l[0], []byte("\n")))
			e.Prev = "00"
			l[0], _ = e.encode()
			return l
		}, ":1: the line was changed: the first entry follows no other"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := config(t.TempDir())
			written(t, c, 8)
			path := filepath.Join(c.Dir, "audit-000000000001.jsonl")
			lines := bytes.SplitAfter(read(t, path), []byte("\n"))
			write(t, path, bytes.Join(tt.tamper(t, lines[:len(lines)-1]), nil))
			_, err := VerifyDir(c.Dir, "", nil)
			if f := (*Fault)(nil); !errors.As(err, &f) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
			// A new daemon goes on, and the fault stays visible.
			written(t, c, 1)
			if _, err := VerifyDir(c.Dir, "", nil); err == nil {
				t.Error("a new daemon hides the fault")
			}
		})
	}
}

// A kept copy of the head finds that a whole directory was put back to an earlier state.
func TestKeptHead(t *testing.T) {
	dir := t.TempDir()
	c := config(dir)
	written(t, c, 3)
	if err := os.CopyFS(filepath.Join(dir, "old"), os.DirFS(c.Dir)); err != nil {
		t.Fatal(err)
	}
	written(t, c, 3)
	kept := filepath.Join(dir, "kept")
	write(t, kept, read(t, filepath.Join(c.Dir, headName)))
	if _, err := VerifyDir(c.Dir, kept, nil); err != nil {
		t.Error(err)
	}
	if _, err := VerifyDir(filepath.Join(dir, "old"), "", nil); err != nil {
		t.Error(err)
	}
	if _, err := VerifyDir(filepath.Join(dir, "old"), kept, nil); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("got %v", err)
	}
	// Another log with the same key and other entries.
	c.Dir = filepath.Join(dir, "other")
	written(t, c, 20)
	if _, err := VerifyDir(c.Dir, kept, nil); err == nil || !strings.Contains(err.Error(), "is not the checkpoint of which a copy was kept") {
		t.Errorf("got %v", err)
	}
	write(t, kept, []byte("{}\n"))
	if _, err := VerifyDir(c.Dir, kept, nil); err == nil || !strings.Contains(err.Error(), "the copy of the last checkpoint was changed") {
		t.Errorf("got %v", err)
	}
	if err := os.Remove(filepath.Join(c.Dir, headName)); err != nil {
		t.Fatal(err)
	}
	if _, err := VerifyDir(c.Dir, "", nil); err == nil || !strings.Contains(err.Error(), "is missing, so entries may be missing") {
		t.Errorf("got %v", err)
	}
}

func TestOtherKey(t *testing.T) {
	dir := t.TempDir()
	c := config(dir)
	written(t, c, 1)
	other, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := VerifyDir(c.Dir, "", other); err == nil || !strings.Contains(err.Error(), "another key signed it") {
		t.Errorf("got %v", err)
	}
	if _, err := VerifyFiles([]string{filepath.Join(c.Dir, "audit-000000000001.jsonl")}, other); err == nil || !strings.Contains(err.Error(), "no valid signature") {
		t.Errorf("got %v", err)
	}
	write(t, filepath.Join(c.Dir, publicName), []byte("nonsense"))
	if _, err := VerifyDir(c.Dir, "", nil); err == nil || !strings.Contains(err.Error(), "not an Ed25519 public key") {
		t.Errorf("got %v", err)
	}
	if err := os.Remove(c.KeyFile); err != nil {
		t.Fatal(err)
	}
	if _, err := PublicKey(c.KeyFile); err == nil || !strings.Contains(err.Error(), "a daemon makes it") {
		t.Errorf("got %v", err)
	}
	if _, err := VerifyDir(dir, "", other); err == nil || !strings.Contains(err.Error(), "no audit log") {
		t.Errorf("got %v", err)
	}
	if _, err := VerifyDir(filepath.Join(dir, "no"), "", nil); !isMissing(err) {
		t.Errorf("got %v", err)
	}
}

// Files end with a checkpoint, the chain goes on, the oldest files go, and an entry says so.
func TestRotation(t *testing.T) {
	c := config(t.TempDir())
	c.FileBytes, c.Files = 2000, 3
	written(t, c, 60)
	files, err := list(c.Dir)
	if err != nil || len(files) != c.Files || files[0].first == 1 {
		t.Fatalf("got %v, %v", files, err)
	}
	r, err := VerifyDir(c.Dir, "", nil)
	if err != nil || r.Files != c.Files || r.First != files[0].first || r.Signed != r.Last {
		t.Errorf("got %+v, %v", r, err)
	}
	for _, f := range files {
		lines := bytes.Split(bytes.TrimSpace(read(t, f.path)), []byte("\n"))
		if e, _, err := decode(lines[len(lines)-1]); err != nil || e.Event != Checkpoint {
			t.Errorf("%s ends with %+v, %v", f.path, e, err)
		}
	}
	// A removed file at the beginning, in the middle and at the end.
	for i, want := range []string{"the daemon did not remove them", "are missing or were moved", "the log ends with entry"} {
		data := read(t, files[i].path)
		if err := os.Remove(files[i].path); err != nil {
			t.Fatal(err)
		}
		if _, err := VerifyDir(c.Dir, "", nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
		write(t, files[i].path, data)
	}
	// An incomplete line in the middle of the log.
	write(t, files[1].path, append(read(t, files[1].path), "{"...))
	if _, err := VerifyDir(c.Dir, "", nil); err == nil || !strings.Contains(err.Error(), "the line after this one is incomplete") {
		t.Errorf("got %v", err)
	}
}

// After a power cut no file is gone without an entry that names it.
func TestPowerCutAfterPruning(t *testing.T) {
	disk := disktest.NewExt4(t)
	c := config(disk.Dir)
	c.FileBytes, c.Files = 2000, 2
	l := open(t, c)
	l.checkpointing.Lock() // a checkpoint would sync the entries
	for i := 0; ; i++ {
		mustWrite(t, l, i)
		if _, err := os.Stat(filePath(c.Dir, 1)); isMissing(err) {
			break
		}
	}
	// The sync of one file brings all removals to the disk, but not the content of other files.
	other, err := os.Create(filepath.Join(disk.Dir, "other"))
	if err == nil {
		err = errors.Join(other.Sync(), other.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	after := config(disk.AfterCrash(t).Dir)
	l.checkpointing.Unlock()
	closeLog(t, l)
	closeLog(t, open(t, after))
	if r, err := VerifyDir(after.Dir, "", nil); err != nil || r.First == 1 {
		t.Errorf("got %+v, %v", r, err)
	}
}

// A daemon that died within a write left a part of a line. The next one says so in the chain.
func TestTornLine(t *testing.T) {
	for _, tt := range []struct{ name, torn string }{
		{"a part of a line", `{"seq":99,"prev":"ab`},
		{"zeros after a power cut", strings.Repeat("\x00", 5000)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := config(t.TempDir())
			written(t, c, 2)
			path := filepath.Join(c.Dir, "audit-000000000001.jsonl")
			write(t, path, append(read(t, path), tt.torn...))
			if r, err := VerifyDir(c.Dir, "", nil); err != nil || r.Torn != len(tt.torn) {
				t.Errorf("got %+v, %v", r, err)
			}
			written(t, c, 1)
			if r, err := VerifyDir(c.Dir, "", nil); err != nil || r.Torn != 0 {
				t.Errorf("got %+v, %v", r, err)
			}
			found := false
			for _, e := range entries(t, c.Dir) {
				found = found || e.Event == Start && e.Count == uint64(len(tt.torn)) && strings.HasPrefix(e.Torn, tt.torn[:20])
			}
			if !found {
				t.Errorf("no entry about the torn line: %v", events(t, c.Dir))
			}
		})
	}
}

// A daemon died after it had made a file, and before or within its first line.
func TestTornFile(t *testing.T) {
	for _, content := range []string{"", `{"seq":`} {
		c := config(t.TempDir())
		written(t, c, 2)
		last := entries(t, c.Dir)
		write(t, filepath.Join(c.Dir, fmt.Sprintf("audit-%012d.jsonl", len(last)+1)), []byte(content))
		written(t, c, 1)
		if r, err := VerifyDir(c.Dir, "", nil); err != nil || r.Torn != 0 {
			t.Errorf("got %+v, %v", r, err)
		}
	}
}

func TestTwoDaemons(t *testing.T) {
	c := config(t.TempDir())
	l := open(t, c)
	if _, err := Open(c); err == nil || !strings.Contains(err.Error(), "another skillrund writes its audit log there") {
		t.Errorf("got %v", err)
	}
	closeLog(t, l)
}

// On a full disk Write fails and says why; with room again it goes on, and the log says how many entries
// are missing.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "audit"), 0o700); err != nil {
		t.Fatal(err)
	}
	remount := disktest.Mount(t, filepath.Join(dir, "audit"), "size=512k")
	c := config(dir)
	var changes []bool
	c.Changed = func(err error) { changes = append(changes, err != nil) }
	l := open(t, c)
	var err error
	n := 0
	for ; err == nil && n < 10_000; n++ {
		err = l.Write(Entry{Event: Execute, Command: strings.Repeat("x", 500)})
	}
	unavailable, ok := errors.AsType[*UnavailableError](err)
	if !ok || strings.Contains(err.Error(), dir) || unavailable.Unwrap() == nil {
		t.Fatalf("after %d entries: %v", n, err)
	}
	if s := l.Stats(); s.Broken == nil || s.Failures == 0 {
		t.Errorf("got %+v", s)
	}
	if err := l.Write(Entry{Event: Execute, Command: strings.Repeat("x", 500)}); err == nil {
		t.Error("an entry was written to a full disk")
	}
	remount("size=1m")
	if err := l.Write(Entry{Event: Execute, Command: "after"}); err != nil {
		t.Error(err)
	}
	if s := l.Stats(); s.Broken != nil {
		t.Errorf("got %+v", s)
	}
	closeLog(t, l)
	if len(changes) != 2 || !changes[0] || changes[1] {
		t.Errorf("changes: %v", changes)
	}
	if r, err := VerifyDir(c.Dir, "", nil); err != nil || r.Signed != r.Last {
		t.Errorf("got %+v, %v", r, err)
	}
	var lost uint64
	for _, e := range entries(t, c.Dir) {
		if e.Event == Lost {
			lost += e.Count
		}
	}
	if lost != 2 {
		t.Errorf("%d entries are noted as lost, want 2", lost)
	}
}

// On a full disk, calls that free room get their entries, and other entries are refused. Calls that fail use no space.
func TestFreeingOnFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "audit"), 0o700); err != nil {
		t.Fatal(err)
	}
	remount := disktest.Mount(t, filepath.Join(dir, "audit"), "size=512k")
	c := config(dir)
	l := open(t, c)
	for l.Write(Entry{Event: Execute, Command: strings.Repeat("x", 500)}) == nil {
	}
	disktest.Fill(t, c.Dir)
	free := Entry{Event: Call, Method: "DeleteSession", Tenant: "acme", Decision: Allowed, Frees: true}
	for range 1000 {
		l.NoteRefusal(Entry{Event: Delete, Tenant: "acme"}, errors.New("no such execution"))
		end, err := l.Allow(free)
		if err != nil {
			t.Fatal(err)
		}
		end(errors.New("no such session"))
		l.flush() // as each second
	}
	for i := range 30 {
		end, err := l.Allow(free)
		if err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		end(nil)
		if err := l.Write(Entry{Event: Execute}); err == nil {
			t.Fatal("another entry was written")
		}
	}
	if s := l.Stats(); s.Broken == nil {
		t.Error("the log seems to work")
	}
	// Calls that run at the same time have their space, too.
	var ends []func(error)
	for {
		end, err := l.Allow(free)
		if err != nil {
			break
		}
		ends = append(ends, end)
	}
	for range 1000 {
		if _, err := l.Allow(free); err == nil {
			t.Fatal("a call has the space of other calls")
		}
	}
	before := l.Stats().Failures
	for _, end := range ends {
		end(nil)
	}
	if got := l.Stats().Failures; len(ends) == 0 || got != before {
		t.Errorf("%d of %d entries were lost", got-before, len(ends))
	}
	// The last entry has noted all lost ones. Without a call, the log sees that there is room again.
	remount("size=2m")
	l.flush()
	if err := l.Stats().Broken; err != nil {
		t.Errorf("with room again: %v", err)
	}
	if err := l.Write(Entry{Event: Execute, Command: "after"}); err != nil {
		t.Error(err)
	}
	closeLog(t, l)
	if r, err := VerifyDir(c.Dir, "", nil); err != nil || r.Signed != r.Last {
		t.Errorf("got %+v, %v", r, err)
	}
}

// On a disk without a free inode the log can begin no next file. Calls that free room get their entries, and the log
// says once that it does not work.
func TestNoNextFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "audit"), 0o700); err != nil {
		t.Fatal(err)
	}
	disktest.Mount(t, filepath.Join(dir, "audit"), "size=1m,nr_inodes=20")
	c := config(dir)
	c.FileBytes = 16 << 10
	var changes []bool
	c.Changed = func(err error) { changes = append(changes, err != nil) }
	l := open(t, c)
	if err := l.Checkpoint(); err != nil { // so that none frees an inode later
		t.Fatal(err)
	}
	filler := func(i int) string { return filepath.Join(c.Dir, fmt.Sprint("filler", i)) }
	fillers := 0
	for os.WriteFile(filler(fillers), nil, 0o600) == nil {
		fillers++
	}
	for l.Write(Entry{Event: Execute, Command: strings.Repeat("x", 500)}) == nil {
	}
	for i := range 10 {
		if err := l.Write(Entry{Event: Delete, Decision: Allowed}); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		if l.Stats().Broken == nil {
			t.Fatalf("%d: the log seems to work", i)
		}
		if err := l.Write(Entry{Event: Execute}); err == nil {
			t.Fatalf("%d: another entry was written", i)
		}
		l.flush() // as each second
	}
	for i := range fillers {
		if err := os.Remove(filler(i)); err != nil {
			t.Error(err)
		}
	}
	if err := l.Write(Entry{Event: Execute, Command: "after"}); err != nil {
		t.Error(err)
	}
	closeLog(t, l)
	if want := []bool{true, false}; !slices.Equal(changes, want) {
		t.Errorf("changes: %v, want %v", changes, want)
	}
	if r, err := VerifyDir(c.Dir, "", nil); err != nil || r.Signed != r.Last {
		t.Errorf("got %+v, %v", r, err)
	}
}

// Callers that are refused all the time do not fill the log.
func TestNotesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config(t.TempDir())
		l := open(t, c)
		refusal := Entry{Event: Execute, Tenant: "acme"}
		for range 1000 {
			l.NoteRefusal(refusal, errors.New("no"))
			l.NoteRefusal(Entry{Event: Unidentified, Address: "192.0.2.1", Reason: "UNIDENTIFIED"}, errors.New("who?"))
		}
		l.NoteRefusal(Entry{Event: Execute, Tenant: "globex"}, errors.New("no"))
		for i := range 100 {
			l.NoteRefusal(Entry{Event: Call, Tenant: fmt.Sprint("made-up-", i), Reason: TenantUnknown}, errors.New("no such tenant"))
		}
		time.Sleep(flushInterval)
		synctest.Wait()
		l.NoteRefusal(refusal, errors.New("no"))
		closeLog(t, l)
		single, counted, unknown := map[string]int{}, map[string]uint64{}, 0
		for _, e := range entries(t, c.Dir) {
			if e.Decision != Refused {
				continue
			}
			if e.Reason == TenantUnknown {
				unknown++
				continue
			}
			if e.Count == 0 {
				single[e.Tenant]++
			}
			counted[e.Tenant] += e.Count
			if want := map[Event]string{Execute: "SOME_REASON", Unidentified: "UNIDENTIFIED"}[e.Event]; e.Reason != want {
				t.Errorf("got %+v, want the reason %s", e, want)
			}
		}
		if single["acme"] != fullNotes+1 || counted["acme"] != 1000-fullNotes || single["globex"] != 1 {
			t.Errorf("in full: %v, counted: %v", single, counted)
		}
		if unknown != fullNotes+1 {
			t.Errorf("%d entries about unknown tenants, want %d and one with a count", unknown, fullNotes)
		}
		if single[""] != fullUnidentified || counted[""] != 1000-fullUnidentified {
			t.Errorf("in full: %v, counted: %v", single, counted)
		}
	})
}

// A checkpoint comes within a minute, and not without entries.
func TestCheckpointEveryMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config(t.TempDir())
		l := open(t, c)
		synctest.Wait() // the first one
		for range 3 {
			if err := l.Write(Entry{Event: End}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(checkpointInterval + 2*flushInterval)
			synctest.Wait()
		}
		time.Sleep(5 * checkpointInterval)
		synctest.Wait()
		if r, err := VerifyDir(c.Dir, "", nil); err != nil || r.Checkpoints != 4 || r.Signed != r.Last {
			t.Errorf("got %+v, %v", r, err)
		}
		closeLog(t, l)
	})
}

// Texts of callers are bounded, and stay one line.
func TestHostileTexts(t *testing.T) {
	c := config(t.TempDir())
	l := open(t, c)
	for _, text := range []string{"a\nb\"}", `","hash":"00"}`, "\xff\xfe", strings.Repeat("\u00e9", 100_000)} {
		if err := l.Write(Entry{Event: Cancel, Tenant: text, Command: text, Why: text, Execution: text, Rule: text, Detail: text, Torn: text}); err != nil {
			t.Error(err)
		}
	}
	closeLog(t, l)
	if _, err := VerifyDir(c.Dir, "", nil); err != nil {
		t.Error(err)
	}
	if size := len(read(t, filepath.Join(c.Dir, "audit-000000000001.jsonl"))); size > maxLine {
		t.Errorf("%d bytes", size)
	}
}

// If the key is damaged or missing, a new log begins. The old one is kept, and can be verified.
func TestDamagedKey(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"damaged": func(path string) error { return os.WriteFile(path, []byte("nonsense"), 0o600) },
		"missing": os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			var said bytes.Buffer
			top := t.TempDir()
			c := Config{Dir: filepath.Join(top, "log"), KeyFile: filepath.Join(top, "key"), FileBytes: 1 << 20, Files: 3, Log: slog.New(slog.NewTextHandler(&said, nil))}
			for range 2 {
				l, err := Open(c)
				if err != nil {
					t.Fatal(err)
				}
				if err := l.Write(Entry{Event: Cancel, Why: "a test"}); err != nil {
					t.Error(err)
				}
				if err := l.Close(); err != nil {
					t.Error(err)
				}
				if err := damage(c.KeyFile); err != nil {
					t.Fatal(err)
				}
			}
			kept, err := filepath.Glob(c.Dir + ".damaged-*")
			if err != nil || len(kept) != 1 || !strings.Contains(said.String(), kept[0]) {
				t.Fatalf("got %v, %v, want one old log, which the daemon's log names:\n%s", kept, err, &said)
			}
			for _, dir := range []string{c.Dir, kept[0]} {
				if r, err := VerifyDir(dir, "", nil); err != nil || r.First != 1 || r.Signed != r.Last {
					t.Errorf("%s: got %+v, %v", dir, r, err)
				}
			}
			keys, err := filepath.Glob(c.KeyFile + ".damaged-*")
			if want := map[string]int{"damaged": 1}[name]; err != nil || len(keys) != want {
				t.Errorf("got the keys %v, want %d", keys, want)
			}
		})
	}
}

// The directory is a file, or has no write permission.
func TestOpenFails(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file"), nil)
	for _, change := range []func(*Config){
		func(c *Config) { c.Dir = filepath.Join(dir, "file") },
		func(c *Config) { c.KeyFile = filepath.Join(dir, "no", "key") },
	} {
		c := config(dir)
		change(&c)
		if _, err := Open(c); err == nil {
			t.Error("no error")
		}
	}
}

// Where a call came from travels in its context.
func TestCaller(t *testing.T) {
	c := &Caller{Address: "192.0.2.1", Method: "/x"}
	ctx := WithCaller(t.Context(), c)
	if CallerOf(ctx) != c || c.Wrote() {
		t.Errorf("got %v, %v", CallerOf(ctx), c.Wrote())
	}
	if e := By(ctx, Cancel, "acme", "token:ci"); e.Address != c.Address || e.Method != "/x" || e.Tenant != "acme" || e.Principal != "token:ci" || e.Event != Cancel || !c.Wrote() {
		t.Errorf("got %+v", e)
	}
	if e := By(t.Context(), Cancel, "acme", "token:ci"); e.Address != "" || CallerOf(t.Context()).Wrote() {
		t.Errorf("got %+v", e)
	}
}

// The disk is full and no call comes: checkpoints fail and are counted, and the log recovers.
func TestCheckpointOnFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "audit"), 0o700); err != nil {
		t.Fatal(err)
	}
	remount := disktest.Mount(t, filepath.Join(dir, "audit"), "size=512k")
	c := config(dir)
	changed := make(chan bool, 10)
	c.Changed = func(err error) { changed <- err != nil }
	l := open(t, c)
	for l.Write(Entry{Event: Execute, Command: strings.Repeat("x", 2000)}) == nil {
	}
	for l.Write(Entry{Event: Delete, Decision: Allowed}) == nil { // also the reserved space
	}
	if err := l.Checkpoint(); err == nil {
		t.Error("a checkpoint was written to a full disk")
	}
	remount("size=1m")
	for broken := true; broken; {
		broken = <-changed
	}
	if err := l.Checkpoint(); err != nil {
		t.Error(err)
	}
	closeLog(t, l)
	if r, err := VerifyDir(c.Dir, "", nil); err != nil || r.Signed != r.Last {
		t.Errorf("got %+v, %v", r, err)
	}
}

func BenchmarkWrite(b *testing.B) {
	l := open(b, config(b.TempDir()))
	defer closeLog(b, l)
	e := Entry{
		Event: Execute, Tenant: "acme", Principal: "token:ci", Address: "192.0.2.1", Method: "/skillrun.v1.ExecutionService/Execute",
		Execution: "01KE6WQ1XY2Z3", Skill: "calculator@sha256:" + strings.Repeat("0", 64), Source: "script", Script: "scripts/calc.py", Decision: Allowed, Rule: "script",
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := l.Write(e); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzDecode: no line makes decode panic, and a line that it accepts has the hash of its content.
func FuzzDecode(f *testing.F) {
	e := Entry{Seq: 1, Event: Start}
	line, _ := e.encode()
	f.Add(line[:len(line)-1])
	f.Add([]byte(hashBegins))
	f.Fuzz(func(t *testing.T, line []byte) {
		e, hash, err := decode(line)
		if err != nil {
			return
		}
		if _, _, err := decode(append(line, 'x')); err == nil || len(hash) != hashDigits {
			t.Errorf("%+v: %q", e, line)
		}
	})
}
