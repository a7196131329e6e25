package session

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestCommit(t *testing.T) {
	for _, test := range []struct {
		name                    string
		before, change          []string
		foreign, unseen         []string
		want                    []string
		added, changed, deleted int
	}{
		{name: "add", change: []string{"d/f=1", "run*=#!"}, want: []string{"d/f=1", "run*=#!"}, added: 2},
		{name: "change content", before: []string{"f=1", "g=2"}, change: []string{"f=3"}, want: []string{"f=3", "g=2"}, changed: 1},
		{name: "change mode", before: []string{"f=1"}, change: []string{"f*=1"}, want: []string{"f*=1"}, changed: 1},
		{name: "as before", before: []string{"f=1"}, change: []string{"f=1"}, want: []string{"f=1"}},
		{name: "deleted and made again", before: []string{"d/f=1", "d/g=2"}, change: []string{"-d", "d/f=1"}, want: []string{"d/f=1"}, deleted: 1},
		{name: "delete", before: []string{"d/e/f=1", "d/g=2", "h=3"}, change: []string{"-d/e/f", "-nothing"}, want: []string{"d/g=2", "h=3"}, deleted: 1},
		{name: "delete a directory", before: []string{"d/e/f=1", "d/g=2", "d2=3"}, change: []string{"-d"}, want: []string{"d2=3"}, deleted: 2},
		{name: "delete all", before: []string{"f=1"}, change: []string{"-f"}, want: []string{}, deleted: 1},
		{name: "a file for a directory", before: []string{"d/e=1", "d/f=2"}, change: []string{"d=3"}, want: []string{"d=3"}, added: 1, deleted: 2},
		{name: "a directory for a file", before: []string{"d=1"}, change: []string{"d/e/f=2"}, want: []string{"d/e/f=2"}, added: 1, deleted: 1},
		{name: "same content twice", change: []string{"f=1", "g=1"}, want: []string{"f=1", "g=1"}, added: 2},
		{name: "the skill's", before: []string{"f=1"}, change: []string{"s/run.py=2", "g=3"}, foreign: []string{"s", "s/run.py"}, want: []string{"f=1", "g=3"}, added: 1},
		{name: "only the skill's", before: []string{"f=1"}, change: []string{"s=2"}, foreign: []string{"s"}, want: []string{"f=1"}},
		{name: "hidden by the skill's", before: []string{"s/run.py=mine", "s/data=1"}, change: []string{"-s"}, foreign: []string{"s", "s/run.py"}, want: []string{"s/run.py=mine"}, deleted: 1},
		{name: "a file for the skill's directory", before: []string{"s/data=1"}, change: []string{"s=2"}, foreign: []string{"s"}, want: []string{}, deleted: 1},
		{name: "beneath the skill's directory", before: []string{"s=mine"}, change: []string{"s/new=1"}, foreign: []string{"s"}, want: []string{"s/new=1"}, added: 1, deleted: 1},
		{name: "hidden files", before: []string{"n/a=1", "n/b=2", "c=3"}, change: []string{"-n", "n/b=4", "-c"}, unseen: []string{"n/a", "n/b", "c"}, want: []string{"c=3", "n/a=1", "n/b=4"}, changed: 1},
		{name: "a file for a directory of hidden files", before: []string{"n/a=1", "n.txt=2"}, change: []string{"n=3"}, unseen: []string{"n/a"}, want: []string{"n=3", "n.txt=2"}, added: 1, deleted: 1},
		{name: "a directory for a hidden file", before: []string{"n=1"}, change: []string{"n/a=2"}, unseen: []string{"n"}, want: []string{"n/a=2"}, added: 1, deleted: 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t)
			id := b.create(Settings{})
			if len(test.before) > 0 {
				b.commit(id, test.before...)
			}
			was, err := b.Get("a", id)
			b.must(err)
			c := b.change(test.change...)
			c.Foreign = func(p string) bool { return slices.Contains(test.foreign, p) }
			c.Unseen = func(p string) bool { return slices.Contains(test.unseen, p) }
			done, err := b.try(id, c)
			b.must(err)
			if done.Added != test.added || done.Changed != test.changed || done.Deleted != test.deleted {
				t.Errorf("got %+v", done)
			}
			next := was.Newest.Number
			if test.added+test.changed+test.deleted > 0 {
				next++
			} else if done != (Committed{}) {
				t.Errorf("without a change: got %+v", done)
			}
			now, err := b.Get("a", id)
			b.must(err)
			if now.Newest.Number != next || next > was.Newest.Number && done.Version != now.Newest {
				t.Errorf("newest version: got %+v, want number %d", now.Newest, next)
			}
			b.check("readers", b.files(id, 0), test.want)
			b.check("program", b.head(id), test.want)
			b.checkUsage(id)
			b.restart()
			b.check("readers after a restart", b.files(id, 0), test.want)
			b.check("program after a restart", b.head(id), test.want)
			b.checkUsage(id)
		})
	}
}

// Any byte but "/" and NUL may be in a name, and a path may be as long and deep as a workspace's.
func TestStrangePaths(t *testing.T) {
	b := newBench(t)
	id := b.create(Settings{})
	long := strings.TrimSuffix(strings.Repeat(strings.Repeat("x", 250)+"/", 16), "/")
	deep := strings.TrimSuffix(strings.Repeat("d/", maxDepth), "/")
	paths := []string{"a\nb", "\xff\xfe", " ", "\\", "-rf", "\u2028", "\"'", "tree", "lock", "...", ".wh.x", long, deep}
	var c Change
	for _, p := range paths {
		c.Files = append(c.Files, b.source(p, p))
	}
	_, err := b.try(id, c)
	b.must(err)
	slices.Sort(paths)
	var want []string
	for _, p := range paths {
		want = append(want, p+"="+p)
	}
	b.check("readers", b.files(id, 0), want)
	w := b.acquire(id, 0)
	root, err := os.OpenRoot(w.Lower())
	b.must(err)
	defer root.Close()
	for _, p := range paths {
		if data, err := root.ReadFile(p); string(data) != p {
			t.Errorf("%.20q: %q, %v", p, data, err)
		}
	}
	_, err = w.Commit(Change{Deleted: paths})
	b.must(err)
	w.Release()
	b.check("after the deletion", b.files(id, 0), []string{})
}

func TestBadPaths(t *testing.T) {
	b := newBench(t)
	id := b.create(Settings{})
	for _, p := range []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "a/./b", "a/../b", "../a", "a/..", "a\x00b",
		strings.Repeat("x", maxNameBytes+1), strings.Repeat("d/", maxDepth) + "f", strings.Repeat("x/", maxPathBytes),
	} {
		if _, err := b.try(id, Change{Files: []NewFile{b.source(p, "1")}}); !isPath(err) {
			t.Errorf("%.20q: %v", p, err)
		}
	}
	for name, lines := range map[string][]string{"twice": {"f=1", "f=2"}, "file and directory": {"f=1", "f/g=2"}} {
		if _, err := b.try(id, b.change(lines...)); !isPath(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	bad := b.source("f", "1")
	bad.SHA256 = ""
	if _, err := b.try(id, Change{Files: []NewFile{bad}}); !isPath(err) {
		t.Errorf("no hash: %v", err)
	}
	if n := b.objects(id); n != 0 {
		t.Errorf("%d objects", n)
	}
}

func isPath(err error) bool {
	_, ok := errors.AsType[*PathError](err)
	return ok
}

// A source that is not the file that its entry says is refused, and nothing stays of the commit.
func TestBadSources(t *testing.T) {
	b := newBench(t)
	id := b.create(Settings{})
	b.commit(id, "f=1")
	link, fifo := filepath.Join(t.TempDir(), "link"), filepath.Join(t.TempDir(), "fifo")
	b.must(os.Symlink("/etc/passwd", link))
	b.must(unix.Mkfifo(fifo, 0o600))
	for name, source := range map[string]string{"missing": "/nonexistent", "a link": link, "a pipe": fifo, "a directory": t.TempDir(), "another size": b.source("x", "12").Source} {
		bad := b.source("g", "1")
		bad.Source = source
		if _, err := b.try(id, Change{Files: []NewFile{b.source("ok", "2"), bad}}); err == nil {
			t.Errorf("%s: no error", name)
		}
		b.check(name, b.files(id, 0), []string{"f=1"})
		if n := b.objects(id); n != 1 {
			t.Errorf("%s: %d objects", name, n)
		}
		b.checkUsage(id)
	}
	b.commit(id, "g=2")
	b.check("after all", b.head(id), []string{"f=1", "g=2"})
}

// Old versions stay readable and can be continued, until there are too many.
func TestVersions(t *testing.T) {
	b := newBench(t)
	b.rules.Versions = 3
	id := b.create(Settings{})
	if w := b.acquire(id, 0); w.Base() != 0 || w.Lower() != "" {
		t.Errorf("a new session: version %d, %q", w.Base(), w.Lower())
	} else {
		w.Release()
	}
	b.commit(id, "f=1", "stays=x")
	b.commit(id, "f=2")
	b.commit(id, "-f")
	b.check("version 1", b.files(id, 1), []string{"f=1", "stays=x"})
	w := b.acquire(id, 1)
	b.check("version 1 for a program", b.lower(w.Lower()), []string{"f=1", "stays=x"})
	done, err := w.Commit(b.change("g=3"))
	b.must(err)
	if v := done.Version; v.Number != 4 || v.Base != 1 || v.By != "the test" || v.Files != 3 || v.Bytes != 3 {
		t.Errorf("got %+v", v)
	}
	if _, err := w.Commit(b.change("g=4")); err == nil {
		t.Error("a second commit of a writer")
	}
	w.Release()
	want := []string{"f=1", "g=3", "stays=x"}
	b.check("version 4", b.files(id, 4), want)
	b.check("version 4 for a program", b.head(id), want)
	list, err := b.Versions("a", id)
	b.must(err)
	if len(list) != 3 || list[0].Number != 2 || list[2] != done.Version {
		t.Errorf("versions: got %+v", list)
	}
	if _, err := b.Read("a", id, 1); !errors.Is(err, ErrNotFound) {
		t.Errorf("version 1 is still there: %v", err)
	}
	if err := b.openErr(id, 1); !errors.Is(err, ErrNotFound) {
		t.Errorf("version 1 is still there for programs: %v", err)
	}
	if n := b.objects(id); n != 4 {
		t.Errorf("%d objects, want 4", n)
	}
	b.checkUsage(id)
	b.rules.Versions = 1 // the next daemon's rule
	b.restart()
	b.check("version 4 after a restart", b.head(id), want)
	if n := b.objects(id); n != 3 {
		t.Errorf("%d objects, want 3", n)
	}
	b.checkUsage(id)
}

// Random commits and restarts: readers of each kept version and programs see the same files as a map
// with the same changes.
func TestRandomCommits(t *testing.T) {
	b := newBench(t)
	b.rules.Versions = 4
	id := b.create(Settings{})
	random := rand.New(rand.NewPCG(1, 2))
	models := map[int]map[string]string{0: {}}
	head := 0
	for range 150 {
		w := b.acquire(id, head-random.IntN(min(head, 3)+1))
		model := maps.Clone(models[w.Base()])
		b.check("program", b.lower(w.Lower()), lines(model))
		c := randomChange(b, random, model)
		done, err := w.Commit(c)
		b.must(err)
		w.Release()
		if done.Version.Number == 0 {
			continue
		}
		head = done.Version.Number
		models[head] = model
		if random.IntN(10) == 0 {
			b.restart()
		}
		for n := max(1, head-3); n <= head; n++ {
			b.check(fmt.Sprint("version ", n), b.files(id, n), lines(models[n]))
		}
	}
	if head < 50 {
		t.Errorf("only %d commits had changes", head)
	}
	b.checkUsage(id)
}

// randomChange makes a change and does the same to the model.
func randomChange(b *bench, random *rand.Rand, model map[string]string) Change {
	names := []string{"a", "a/b", "a/b/c", "a/d", "e", "e/f", "g"}
	remove := func(p string) {
		maps.DeleteFunc(model, func(q, _ string) bool { return q == p || strings.HasPrefix(q, p+"/") })
	}
	var c Change
	for range random.IntN(2) {
		p := names[random.IntN(len(names))]
		c.Deleted = append(c.Deleted, p)
		remove(p)
	}
	for range random.IntN(3) {
		p := names[random.IntN(len(names))]
		if slices.ContainsFunc(c.Files, func(f NewFile) bool {
			return strings.HasPrefix(f.Path+"/", p+"/") || strings.HasPrefix(p+"/", f.Path+"/")
		}) {
			continue
		}
		content := fmt.Sprint(random.IntN(3))
		c.Files = append(c.Files, b.source(p, content))
		remove(p)
		for dir := range parents(p) {
			delete(model, dir)
		}
		model[p] = content
	}
	return c
}

func lines(model map[string]string) []string {
	list := []string{}
	for _, p := range slices.Sorted(maps.Keys(model)) {
		list = append(list, p+"="+model[p])
	}
	return list
}

func TestQuotas(t *testing.T) {
	for _, test := range []struct {
		quota  string
		rules  Rules
		set    Settings
		before []string
		change []string
		need   int64
	}{
		{quota: QuotaBytes, rules: Rules{Bytes: 3}, before: []string{"f=12"}, change: []string{"g=34"}, need: 4},
		{quota: QuotaBytes, rules: Rules{Bytes: 9}, set: Settings{Bytes: 3}, change: []string{"g=1234"}, need: 4},
		{quota: QuotaFiles, rules: Rules{Files: 2}, before: []string{"f=1"}, change: []string{"g=2", "h=3"}, need: 3},
		{quota: QuotaFiles, set: Settings{Files: 3}, change: []string{"a/b/c/f=2"}, need: 4},
		{quota: QuotaTenantBytes, rules: Rules{TotalBytes: 5 * diskBlock, Versions: 9}, before: []string{"f=1"}, change: []string{"f=2", "g=3"}, need: 5 * diskBlock},
	} {
		t.Run(test.quota, func(t *testing.T) {
			b := newBench(t)
			id := b.create(test.set)
			b.rules = test.rules
			if test.before != nil {
				b.commit(id, test.before...)
			}
			if test.quota == QuotaTenantBytes {
				b.rules.TotalBytes = 4 * diskBlock // two versions of one file each
			}
			_, used := b.Usage("a")
			objects := b.objects(id)
			_, err := b.try(id, b.change(test.change...))
			full, ok := errors.AsType[*QuotaError](err)
			if !ok || full.Quota != test.quota || full.Need != test.need {
				t.Fatalf("got %v, want quota %s and a need of %d", err, test.quota, test.need)
			}
			if _, now := b.Usage("a"); now != used || b.objects(id) != objects {
				t.Errorf("usage %d, %d objects; want %d, %d", now, b.objects(id), used, objects)
			}
			b.check("files", b.head(id), append([]string{}, test.before...))
			// A deletion is allowed although the quota is used up.
			if test.before != nil {
				b.commit(id, "-f")
			}
			b.checkUsage(id)
		})
	}
}

// Paths have a bound together, because each read of a version has them in memory. 10,000 files with usual
// names are far below it.
func TestQuotaOfPaths(t *testing.T) {
	b := newBench(t)
	b.rules = Rules{Files: 20_000}
	id := b.create(Settings{})
	source := b.source("", "x")
	change := func(path string) (c Change) {
		for i := range 10_000 {
			f := source
			f.Path = fmt.Sprintf(path, i)
			c.Files = append(c.Files, f)
		}
		return c
	}
	done, err := b.try(id, change("measurements/2026-11-26/station-%05d.csv"))
	if err != nil || done.Added != 10_000 {
		t.Fatalf("%+v, %v", done, err)
	}
	long := strings.Repeat(strings.Repeat("d", 250)+"/", 15)
	_, err = b.try(id, change(long+strings.Repeat("f", 200)+"%d"))
	if full, ok := errors.AsType[*QuotaError](err); !ok || full.Quota != QuotaList || full.Limit != 8_000_000 || full.Need < 50_000_000 {
		t.Errorf("got %v", err)
	}
	data, err := os.ReadFile(versionPath(filepath.Join(b.dir, "a", id), 1))
	b.must(err)
	v, err := b.Read("a", id, 0)
	b.must(err)
	if least := listBytes(v.Files); int64(len(data)) > least+maxHead {
		t.Errorf("the list has %d bytes, more than the %d that are counted", len(data), least)
	}

	// The versions are described without their lists.
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	list, err := b.Versions("a", id)
	runtime.ReadMemStats(&after)
	if len(list) != 1 || list[0] != done.Version || err != nil {
		t.Errorf("got %+v, %v", list, err)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 512<<10 {
		t.Errorf("Versions took %d bytes, with a list of %d", n, len(data))
	}
}

// An operator who lowers a bound does not keep a program from deleting files.
func TestDeletionsAboveTheBounds(t *testing.T) {
	b := newBench(t)
	id := b.create(Settings{})
	b.commit(id, "f=1", "g=12", "h=3", "i=4")
	b.rules = Rules{Files: 1, Bytes: 1}
	if done := b.commit(id, "-f"); done.Deleted != 1 || done.Version.Files != 3 {
		t.Errorf("got %+v", done)
	}
	if _, err := b.try(id, b.change("-g", "h=5")); !errors.As(err, new(*QuotaError)) {
		t.Errorf("a change: %v", err)
	}
}

func TestQuotaOfSessions(t *testing.T) {
	b := newBench(t)
	b.rules.Sessions = 1
	id := b.create(Settings{})
	if _, err := b.Create("a", Settings{}); !isQuota(err, QuotaSessions) {
		t.Errorf("a second session: %v", err)
	}
	if _, err := b.Create("b", Settings{}); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	b.must(b.Delete("a", id))
	b.create(Settings{})
}

func isQuota(err error, quota string) bool {
	full, ok := errors.AsType[*QuotaError](err)
	return ok && full.Quota == quota
}
