package session

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/disktest"
	"github.com/skillrun/skillrun/internal/durable"
)

// crashDir, in the environment, makes the test binary the program that is killed.
const crashDir = "SESSION_TEST_CRASH_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		if err := commitUntilKilled(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if dir := os.Getenv(peerDir); dir != "" {
		if err := (&peerProcess{dir: dir}).serve(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const crashFiles = 12

// commitUntilKilled commits versions of the only session of a store. In version n, each file has the
// content n. It prints the number of each version that Commit has acknowledged.
func commitUntilKilled(dir string) error {
	s, err := Open(Config{Dir: filepath.Join(dir, "sessions"), Owner: owner, Rules: func(string) Rules { return Rules{Versions: 3} }, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	id := s.List("a")[0].ID
	for {
		w, err := s.Acquire(context.Background(), "a", id, Use{By: "the crash"})
		if err != nil {
			return err
		}
		if err := w.Open(0); err != nil {
			return err
		}
		content := strconv.Itoa(w.Base() + 1)
		var c Change
		for i := range crashFiles {
			source := filepath.Join(dir, fmt.Sprintf("%s-%d", content, i))
			if err := errors.Join(os.RemoveAll(source), os.WriteFile(source, []byte(content), 0o600)); err != nil {
				return err
			}
			c.Files = append(c.Files, NewFile{newFile(fmt.Sprintf("d%d/f%02d", i%3, i), content), source})
		}
		if _, err := w.Commit(c); err != nil {
			return err
		}
		fmt.Println(content)
		w.Release()
	}
}

// A process is killed while it commits. The next one has the acknowledged version or the one after it,
// whole, and nothing else.
func TestKill(t *testing.T) {
	b := newBench(t)
	dir := t.TempDir()
	b.must(b.Close())
	b.dir = filepath.Join(dir, "sessions")
	b.open()
	id := b.create(Settings{})
	b.rules.Versions = 3
	rounds := 10
	if testing.Short() {
		rounds = 3
	}
	for round := range rounds {
		b.must(b.Close())
		last := killAfter(t, dir, 1+round%4)
		b.open()
		head := checkWhole(b, id)
		if head < last || head > last+1 {
			t.Fatalf("version %d after a kill, %d was acknowledged", head, last)
		}
	}
}

// killAfter starts the program, and kills it after so many commits. It returns the last acknowledged one.
func killAfter(t *testing.T, dir string, commits int) (last int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashDir+"="+dir)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for n := 0; lines.Scan(); n++ {
		if last, err = strconv.Atoi(lines.Text()); err != nil {
			t.Error(err)
		}
		if n+1 == commits {
			if err := cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	if cmd.Wait(); last == 0 {
		t.Fatalf("the program has committed nothing: %s", stderr.String())
	}
	return last
}

// checkWhole checks that each version has all files with its content, that a program sees the newest, and
// that nothing else is on disk. It returns the newest version.
func checkWhole(b *bench, id string) int {
	b.t.Helper()
	seen := b.head(id)
	versions, err := b.Versions("a", id)
	b.must(err)
	if len(versions) == 0 || len(versions) > 3 {
		b.t.Fatalf("%d versions", len(versions))
	}
	for _, v := range versions {
		var want []string
		for i := range crashFiles {
			want = append(want, fmt.Sprintf("d%d/f%02d=%d", i%3, i, v.Number))
		}
		slices.Sort(want)
		b.check(fmt.Sprint("version ", v.Number), b.files(id, v.Number), want)
		if v.Number == versions[len(versions)-1].Number {
			b.check("program", seen, want)
		}
	}
	if n := b.objects(id); n != crashFiles*len(versions) {
		b.t.Errorf("%d objects for %d versions", n, len(versions))
	}
	b.checkUsage(id)
	return versions[len(versions)-1].Number
}

// The directory is copied at each step of each change, as a crash at that step would leave it. The
// session is then as before the change or as after it.
func TestEachStep(t *testing.T) {
	b := newBench(t)
	b.rules.Versions = 1
	id := b.create(Settings{})
	b.commit(id, "f=1", "g=1")
	var steps, copies []string
	b.step = func(step string) {
		steps = append(steps, step)
		copies = append(copies, filepath.Join(t.TempDir(), "copy"))
		b.must(os.CopyFS(copies[len(copies)-1], os.DirFS(b.dir)))
	}
	b.commit(id, "f=2", "-g", "h=2")
	want := map[string][]string{"objects": {"f=1", "g=1"}, "version": {"f=2", "h=2"}, "tree": {"f=2", "h=2"}}
	for i, step := range steps {
		after := &bench{t: t, dir: copies[i], rules: b.rules}
		after.clock.now = b.clock.now
		chownAll(t, after.dir)
		after.open()
		after.check(step+": readers", after.files(id, 0), want[step])
		after.check(step+": program", after.head(id), want[step])
		if n := after.objects(id); n != 2 {
			t.Errorf("%s: %d objects", step, n)
		}
		after.commit(id, "f=3", "i=3")
		after.must(after.Close())
		delete(want, step)
	}
	if len(want) > 0 {
		t.Errorf("steps that did not come: %v", want)
	}

	steps, copies = nil, nil
	other := b.create(Settings{})
	b.must(b.Delete("a", other))
	for i, step := range steps {
		after := &bench{t: t, dir: copies[i]}
		after.clock.now = b.clock.now
		after.open()
		if list := after.List("a"); len(list) != 1 || list[0].ID != id {
			t.Errorf("%s: got %+v", step, list)
		}
		if left, _ := os.ReadDir(filepath.Join(after.dir, "a")); len(left) != 1 {
			t.Errorf("%s: left on disk: %v", step, left)
		}
		after.must(after.Close())
	}
	if !slices.Equal(steps, []string{"create", "delete"}) {
		t.Errorf("steps: got %v", steps)
	}
}

// chownAll does what os.CopyFS leaves out.
func chownAll(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err == nil && filepath.Base(filepath.Dir(p)) == objectsName {
			err = errors.Join(os.Chown(p, owner.UID, owner.GID), os.Chmod(p, 0o644))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A version that does not fit on the disk is not committed at all, and the session goes on when there is
// room again.
func TestFullDisk(t *testing.T) {
	b := newBench(t)
	b.must(b.Close())
	b.dir = t.TempDir()
	remount := disktest.Mount(t, b.dir, "size=256k")
	b.open()
	t.Cleanup(func() { b.Store.Close() })
	id := b.create(Settings{})
	b.commit(id, "f=1")
	for range 3 {
		_, err := b.try(id, b.change("g=2", "big="+strings.Repeat("x", 512<<10)))
		if err == nil {
			t.Fatal("no error")
		}
		b.check("readers", b.files(id, 0), []string{"f=1"})
		b.check("program", b.head(id), []string{"f=1"})
		if n := b.objects(id); n != 1 {
			t.Errorf("%d objects", n)
		}
		b.checkUsage(id)
	}
	remount("size=4m")
	b.commit(id, "g=2")
	b.check("with room", b.head(id), []string{"f=1", "g=2"})
}

// A commit that fails after the version has its name leaves no version.
func TestFailedSync(t *testing.T) {
	b := newBench(t)
	id := b.create(Settings{})
	b.commit(id, "f=1")
	w := b.acquire(id, 0)
	next, cause := &manifest{Version: Version{Number: 2}}, errors.New("a failed sync")
	b.must(os.WriteFile(versionPath(w.x.dir, 2), []byte("x"), 0o600))
	if err := w.undo(next, map[string]string{"2-0": ""}, cause); !errors.Is(err, cause) || isUnknown(err) {
		t.Errorf("got %v, want %v", err, cause)
	}
	w.Release()
	b.check("files", b.head(id), []string{"f=1"})
	if v, err := b.Versions("a", id); len(v) != 1 || err != nil {
		t.Errorf("versions: %+v, %v", v, err)
	}
}

// onDisk moves the store of a bench to a disk of its own.
func (b *bench) onDisk(disk *disktest.Ext4) {
	b.t.Helper()
	b.must(b.Close())
	b.dir = filepath.Join(disk.Dir, "sessions")
	b.open()
	b.t.Cleanup(func() { b.Store.Close() }) // before the disk goes
}

// Commit says what it knows when the disk fails before the version has its name: there is no such version.
func TestDiskFailsBeforeTheVersion(t *testing.T) {
	b := newBench(t)
	b.onDisk(disktest.NewExt4(t))
	id := b.create(Settings{})
	b.commit(id, "f=1")
	b.step = func(step string) {
		if step == "objects" {
			disktest.CutPower(t, b.dir)
		}
	}
	w := b.acquire(id, 0)
	if _, err := w.Commit(b.change("f=2")); err == nil || isUnknown(err) {
		t.Errorf("got %v, want an error that denies the version", err)
	}
	w.Release()
	if i, err := b.Get("a", id); i.Newest.Number != 1 || err != nil {
		t.Errorf("got %+v, %v, want version 1", i, err)
	}
}

func isUnknown(err error) bool {
	_, ok := errors.AsType[*UnknownError](err)
	return ok
}

// If the version has its name, and the disk lets nobody take the name away, then nobody knows whether the version is
// on the disk. Commit does not deny it.
func TestDiskFailsAfterTheVersion(t *testing.T) {
	b := newBench(t)
	b.onDisk(disktest.NewExt4(t))
	id := b.create(Settings{})
	b.commit(id, "f=1")
	w := b.acquire(id, 0)
	b.must(os.WriteFile(versionPath(w.x.dir, 2), []byte("x"), 0o600)) // as after a rename whose sync fails
	disktest.CutPower(t, b.dir)
	err := w.undo(&manifest{Version: Version{Number: 2}}, nil, errors.New("a failed sync"))
	if unknown, ok := errors.AsType[*UnknownError](err); !ok || unknown.ID != id || unknown.Version != 2 {
		t.Errorf("got %v, want an *UnknownError for version 2", err)
	}
	w.x.loaded = false // as Commit does
	w.Release()
	if i, err := b.Get("a", id); i.Newest.Number != 1 || err != nil {
		t.Errorf("got %+v, %v, want version 1", i, err)
	}
	if err := b.openErr(id, 0); err == nil {
		t.Error("a writer begins before the version is removed")
	}
}

// The disk loses a file of an execution, and another session's commit learns of it first.
func TestDiskLosesAFileBeforeTheCommit(t *testing.T) {
	b, disk := newBench(t), disktest.NewFailingExt4(t)
	b.onDisk(disk)
	id := b.create(Settings{})
	other, err := durable.OpenFS(disk.Dir)
	b.must(err)
	defer other.Close()
	b.must(other.Sync())
	w := b.acquire(id, 0)
	var c Change
	for i := range manySyncs {
		f := newFile(fmt.Sprint("f", i), "content")
		source := filepath.Join(disk.Dir, f.Path)
		b.must(os.WriteFile(source, []byte("content"), 0o600))
		c.Files = append(c.Files, NewFile{f, source})
	}
	var requests atomic.Int64
	disk.Device.Fail(func() bool { return requests.Add(1) == 1 }) // data comes before the journal
	if err := other.Sync(); !errors.Is(err, unix.EIO) {
		t.Fatalf("the other sync: got %v, want EIO", err)
	}
	if done, err := w.Commit(c); !errors.Is(err, unix.EIO) {
		t.Errorf("got version %d, %v, want EIO", done.Version.Number, err)
	}
	w.Release()
	if i, err := b.Get("a", id); i.Newest.Number != 0 || err != nil {
		t.Errorf("got %+v, %v, want no version", i, err)
	}
}

// A deletion that could not be synced can be repeated.
func TestDeleteAgain(t *testing.T) {
	b := newBench(t)
	id := b.create(Settings{})
	dir := filepath.Join(b.dir, "a", id)
	b.must(os.Rename(dir, filepath.Join(b.dir, "a", oldPrefix+id))) // as a deletion whose sync has failed
	b.must(b.Delete("a", id))
	if list, err := os.ReadDir(filepath.Join(b.dir, "a")); len(list) != 0 || err != nil {
		t.Errorf("left on disk: %v, %v", list, err)
	}
	if n, bytes := b.Usage("a"); n != 0 || bytes != 0 {
		t.Errorf("usage: %d sessions of %d bytes", n, bytes)
	}
}
