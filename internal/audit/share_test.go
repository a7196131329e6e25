package audit

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
)

// childRole, in the environment, makes the test binary a second process with the log of childDir.
const (
	childRole = "AUDIT_TEST_ROLE"
	childDir  = "AUDIT_TEST_DIR"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(childRole); role != "" {
		if err := child(role, tiny(os.Getenv(childDir))); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// tiny is a configuration with small files. "pruned" in the name of the directory removes old ones.
func tiny(dir string) Config {
	c := config(dir)
	c.FileBytes, c.Files = 5000, 1<<20
	if strings.Contains(filepath.Base(dir), "pruned") {
		c.Files = 2
	}
	return c
}

// child is the second process. The role "earlier" opens the log first and shares it. All other roles open it while the
// test has it open. A role prints a line after each step.
func child(role string, c Config) error {
	role, count, _ := strings.Cut(role, " ")
	c.Takeover = role != "earlier" && role != "plain"
	l, err := Open(c)
	if err != nil {
		return err
	}
	if role == "earlier" {
		err = l.Share()
	}
	fmt.Println("open")
	switch role {
	case "earlier", "next":
		n, _ := strconv.Atoi(count)
		for i := 0; err == nil && (i < n || n == 0); i++ {
			if err = l.Write(childEntry(i)); err == nil {
				fmt.Println(i)
			}
		}
		return errors.Join(err, l.Close())
	case "idle": // until its standard input ends
		_, err := io.Copy(io.Discard, os.Stdin)
		return errors.Join(err, l.Close())
	}
	// The process dies at one point of an append, with the lock.
	l.mu.Lock()
	if err := l.enter(); err != nil {
		return err
	}
	switch role {
	case "dies-in-line":
		_, err = l.f.WriteString(`{"seq":99,"prev":"ab`)
	case "dies-in-file":
		if err = l.sign(); err == nil {
			err = l.begin()
		}
	case "dies-in-first-line":
		if err = l.sign(); err == nil {
			err = l.begin()
		}
		if err == nil {
			_, err = l.f.WriteString(`{"seq":`)
		}
	case "dies-before-file":
		err = l.sign()
	case "dies-in-prune":
		if err = errors.Join(l.sign(), l.begin()); err == nil {
			err = l.put(Entry{Event: Pruned, Through: 1})
		}
	}
	if err != nil {
		return err
	}
	fmt.Println("at", role)
	select {}
}

func childEntry(i int) Entry { return Entry{Event: End, Execution: fmt.Sprint("child ", i)} }

// A peer is the second process.
type peer struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.Closer
	lines *bufio.Scanner
	wrote int // lines that are numbers of entries
}

func startPeer(t *testing.T, role, dir string) *peer {
	t.Helper()
	p := &peer{t: t, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), childRole+"="+role, childDir+"="+dir)
	p.cmd.Stderr = os.Stderr
	in, errIn := p.cmd.StdinPipe()
	out, errOut := p.cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut, p.cmd.Start()); err != nil {
		t.Fatal(err)
	}
	p.in, p.lines = in, bufio.NewScanner(out)
	t.Cleanup(func() { p.cmd.Process.Kill(); p.cmd.Wait() })
	return p
}

// line returns the next line, or "" at the end.
func (p *peer) line() string {
	if !p.lines.Scan() {
		return ""
	}
	line := p.lines.Text()
	if _, err := strconv.Atoi(line); err == nil {
		p.wrote++
	}
	return line
}

func (p *peer) expect(want string) {
	p.t.Helper()
	if got := p.line(); got != want {
		p.t.Fatalf("got %q, want %q", got, want)
	}
}

// rest reads until the process has ended.
func (p *peer) rest() error {
	for p.line() != "" {
	}
	return p.cmd.Wait()
}

// kill ends the process with SIGKILL. Entries that it has written count even if the test got no line about them.
func (p *peer) kill() {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		p.t.Error(err)
	}
	p.rest()
}

func mustWrite(t *testing.T, l *Log, i int) {
	t.Helper()
	if err := l.Write(Entry{Event: End, Execution: fmt.Sprint("test ", i)}); err != nil {
		t.Fatal(err)
	}
}

// checkShared verifies a log that was not pruned, and that it has each entry of both processes once, in
// order. After a kill, one entry can be there of which the process could not say so.
func checkShared(t *testing.T, dir string, test, child, spare int) {
	t.Helper()
	if r, err := VerifyDir(filepath.Join(dir, "audit"), "", nil); err != nil || r.First != 1 || r.Signed != r.Last || r.Torn != 0 {
		t.Errorf("got %+v, %v", r, err)
	}
	next := map[string]int{}
	for _, e := range entries(t, filepath.Join(dir, "audit")) {
		if e.Event != End {
			continue
		}
		who, number, _ := strings.Cut(e.Execution, " ")
		if number != fmt.Sprint(next[who]) {
			t.Fatalf("%s after %s %d", e.Execution, who, next[who]-1)
		}
		next[who]++
	}
	if next["test"] != test || next["child"] < child || next["child"] > child+spare {
		t.Errorf("got %v, want %d and %d to %d", next, test, child, child+spare)
	}
}

// count returns how many entries have an event.
func count(t *testing.T, dir string, event Event) (n int) {
	t.Helper()
	for _, e := range entries(t, filepath.Join(dir, "audit")) {
		if e.Event == event {
			n++
		}
	}
	return n
}

// Two processes write one chain at once, through many files, and a verification runs at the same time.
func TestShare(t *testing.T) {
	for _, name := range []string{"kept", "pruned"} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), name)
			l := open(t, tiny(dir))
			mustWrite(t, l, 0)
			for range 2 {
				if err := l.Share(); err != nil {
					t.Fatal(err)
				}
			}
			p := startPeer(t, "next 2000", dir)
			ended := make(chan error, 1)
			go func() { ended <- p.rest() }()
			n := 1
			for running := true; running || n < 2000; n++ {
				mustWrite(t, l, n)
				if n%500 == 0 {
					if err := l.Checkpoint(); err != nil {
						t.Error(err)
					}
					if r, err := VerifyDir(l.Dir, "", nil); err != nil && name == "kept" {
						t.Errorf("while both write: %+v, %v", r, err)
					}
				}
				select {
				case err := <-ended:
					if running = false; err != nil || p.wrote != 2000 {
						t.Fatalf("the second process wrote %d entries: %v", p.wrote, err)
					}
				default:
				}
			}
			for range 2 {
				if err := l.Own(); err != nil {
					t.Fatal(err)
				}
			}
			closeLog(t, l)
			if n := count(t, dir, Damage) + count(t, dir, Lost); n != 0 {
				t.Errorf("%d entries about damage", n)
			}
			if name == "kept" {
				checkShared(t, dir, n, 2000, 0)
				return
			}
			files, _ := list(l.Dir)
			if r, err := VerifyDir(l.Dir, "", nil); err != nil || r.Signed != r.Last || len(files) != 2 {
				t.Errorf("got %+v, %v, %d files", r, err, len(files))
			}
		})
	}
}

// One of the processes is killed while both write: the next or the earlier one.
func TestShareAndKill(t *testing.T) {
	rounds := 6
	if testing.Short() {
		rounds = 2
	}
	for _, role := range []string{"next", "earlier"} {
		t.Run(role, func(t *testing.T) {
			for round := range rounds {
				dir := t.TempDir()
				c := tiny(dir)
				var l *Log
				var p *peer
				if role == "next" {
					l = open(t, c)
					if err := l.Share(); err != nil {
						t.Fatal(err)
					}
					p = startPeer(t, role, dir)
					p.expect("open")
				} else {
					p = startPeer(t, role, dir)
					p.expect("open")
					c.Takeover = true
					l = open(t, c)
				}
				killed := make(chan bool)
				go func() {
					defer close(killed)
					for p.wrote < 50+13*round {
						p.line()
					}
					p.kill()
				}()
				n := 0
				for running := true; running; n++ {
					mustWrite(t, l, n)
					select {
					case <-killed:
						running = false
					default:
					}
				}
				mustWrite(t, l, n)
				if round%2 == 0 { // or the log is closed while it is shared
					if err := l.Own(); err != nil {
						t.Fatal(err)
					}
				}
				closeLog(t, l)
				checkShared(t, dir, n+1, p.wrote, 1)
				c.Takeover = false
				l = open(t, c) // a plain start
				closeLog(t, l)
				if r, err := VerifyDir(c.Dir, "", nil); err != nil {
					t.Errorf("after a plain start: %+v, %v", r, err)
				}
			}
		})
	}
}

// A process is killed within an append. The other one waits for the lock, and goes on.
func TestShareAndKillInAppend(t *testing.T) {
	for _, tt := range []struct {
		role   string
		damage int
	}{
		{"dies-in-line", 1}, {"dies-in-file", 0}, {"dies-in-first-line", 1}, {"dies-before-file", 0}, {"dies-in-prune", 0},
	} {
		t.Run(tt.role, func(t *testing.T) {
			dir := t.TempDir()
			l := open(t, tiny(dir))
			if err := l.Share(); err != nil {
				t.Fatal(err)
			}
			mustWrite(t, l, 0)
			p := startPeer(t, tt.role, dir)
			p.expect("open")
			p.expect("at " + tt.role)
			wrote := make(chan error, 1)
			go func() { wrote <- l.Write(Entry{Event: End, Execution: "test 1"}) }()
			p.kill()
			if err := <-wrote; err != nil {
				t.Error(err)
			}
			mustWrite(t, l, 2)
			if err := l.Own(); err != nil {
				t.Error(err)
			}
			mustWrite(t, l, 3)
			closeLog(t, l)
			checkShared(t, dir, 4, 0, 0)
			if n := count(t, dir, Damage); n != tt.damage {
				t.Errorf("%d entries about damage, want %d", n, tt.damage)
			}
			for _, e := range entries(t, l.Dir) {
				if e.Event == Damage && (!strings.HasPrefix(e.Torn, `{"seq":`) || e.Count != uint64(len(e.Torn)) || e.Detail != "") {
					t.Errorf("got %+v", e)
				}
			}
		})
	}
}

// If the earlier process dies within a line, and the next process has written nothing yet, Own notes the damage.
func TestOwnNotesDamage(t *testing.T) {
	dir := t.TempDir()
	c := tiny(dir)
	l := open(t, c)
	if err := l.Share(); err != nil {
		t.Fatal(err)
	}
	p := startPeer(t, "dies-in-line", dir)
	p.expect("open")
	p.expect("at dies-in-line")
	p.kill()
	if err := l.Own(); err != nil {
		t.Fatal(err)
	}
	closeLog(t, l)
	checkShared(t, dir, 0, 0, 0)
	if n := count(t, dir, Damage); n != 1 {
		t.Errorf("%d entries about damage, want 1", n)
	}
}

// While two processes share a log, no third one can open it, and none can own it. A plain open succeeds when
// both have ended.
func TestThirdProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // its clock runs ahead while a call waits for a lock
		dir := t.TempDir()
		c := tiny(dir)
		l := open(t, c)
		nextConfig := c
		nextConfig.Takeover = true
		refused := func(what string, err error) {
			t.Helper()
			if err == nil || !strings.Contains(err.Error(), "another skillrund writes its audit log there") {
				t.Errorf("%s: %v", what, err)
			}
		}
		_, err := Open(nextConfig)
		refused("next to a log that is not shared", err)
		if err := l.Share(); err != nil {
			t.Fatal(err)
		}
		p := startPeer(t, "idle", dir)
		p.expect("open")
		_, err = Open(c)
		refused("a plain third process", err)
		refused("Own while the other process lives", l.Own())
		mustWrite(t, l, 0)
		closeLog(t, l)
		_, err = Open(c)
		refused("a plain third process after the earlier one has ended", err)
		if err := errors.Join(p.in.Close(), p.rest()); err != nil {
			t.Error(err)
		}
		l = open(t, c)
		mustWrite(t, l, 1)
		closeLog(t, l)
		checkShared(t, dir, 2, 0, 0)
	})
}

// The takeover fails: the earlier process goes on as before.
func TestOwnAgain(t *testing.T) {
	dir := t.TempDir()
	l := open(t, tiny(dir))
	for i := range 3 {
		if err := l.Share(); err != nil {
			t.Fatal(err)
		}
		p := startPeer(t, "idle", dir)
		p.expect("open")
		if i == 1 {
			p.kill()
		} else if err := errors.Join(p.in.Close(), p.rest()); err != nil {
			t.Error(err)
		}
		if err := l.Own(); err != nil {
			t.Fatal(err)
		}
		mustWrite(t, l, i)
	}
	closeLog(t, l)
	checkShared(t, dir, 3, 0, 0)
}

// The end of a shared log is changed. The chain goes on, and the change stays visible.
func TestChangedWhileShared(t *testing.T) {
	dir := t.TempDir()
	l := open(t, tiny(dir))
	mustWrite(t, l, 0)
	if err := errors.Join(l.Checkpoint(), l.Share()); err != nil {
		t.Fatal(err)
	}
	path := filePath(l.Dir, 1)
	data := read(t, path)
	write(t, path, data[:len(data)/2])
	mustWrite(t, l, 1)
	mustWrite(t, l, 2)
	closeLog(t, l)
	if _, err := VerifyDir(l.Dir, "", nil); err == nil {
		t.Error("no fault")
	}
	files, err := list(l.Dir)
	if err != nil || len(files) != 2 {
		t.Fatalf("got %v, %v, want the changed file and a new one", files, err)
	}
	if found := string(read(t, files[1].path)); !strings.Contains(found, `"event":"damage","detail":"the end of the log was changed or is missing"`) {
		t.Errorf("got %s", found)
	}
}

// With a damaged key, an Open in a takeover does not put the files of the log aside, because the other process uses them.
func TestDamagedKeyBeside(t *testing.T) {
	dir := t.TempDir()
	c := tiny(dir)
	l := open(t, c)
	if err := l.Share(); err != nil {
		t.Fatal(err)
	}
	key := read(t, c.KeyFile)
	write(t, c.KeyFile, []byte("nonsense"))
	c.Takeover = true
	var damaged *damagedKey
	if _, err := Open(c); !errors.As(err, &damaged) {
		t.Errorf("got %v", err)
	}
	write(t, c.KeyFile, key)
	if err := l.Own(); err != nil {
		t.Error(err)
	}
	mustWrite(t, l, 0)
	closeLog(t, l)
	checkShared(t, dir, 1, 0, 0)
}

// The checkpoint in the file head never goes back, whichever process saves one.
func TestHeadOfSharedLog(t *testing.T) {
	dir := t.TempDir()
	c := tiny(dir)
	l := open(t, c)
	if err := l.Share(); err != nil {
		t.Fatal(err)
	}
	nextConfig := c
	nextConfig.Takeover = true
	other := open(t, nextConfig)
	last := uint64(0)
	for i := range 20 {
		mustWrite(t, l, 2*i)
		mustWrite(t, other, 2*i+1)
		for _, log := range [][]*Log{{l, other}, {other, l}}[i%2] {
			if err := log.Checkpoint(); err != nil {
				t.Error(err)
			}
			e, _, err := readHead(c.Dir)
			if err != nil || e.Seq < last {
				t.Errorf("the head has entry %d after %d: %v", e.Seq, last, err)
			}
			last = e.Seq
			if got := log.Stats(); got.Failures != 0 {
				t.Errorf("got %+v", got)
			}
		}
	}
	if err := l.saveShared([]byte("older"), 1); err != nil {
		t.Error(err)
	}
	if e, _, err := readHead(c.Dir); err != nil || e.Seq != last {
		t.Errorf("an older checkpoint was saved: %+v, %v", e, err)
	}
	// No checkpoint follows a checkpoint of the other process without another entry.
	all, err := list(c.Dir)
	if err != nil {
		t.Fatal(err)
	}
	files := len(all)
	if n := count(t, dir, Checkpoint); n > 20+files+3 {
		t.Errorf("%d checkpoints in 20 rounds and %d files", n, files)
	}
	closeLog(t, other)
	closeLog(t, l)
	checkShared(t, dir, 40, 0, 0)
}

// The other process removes the newest file that this process knows, and the next file, too.
func TestPrunedWhileShared(t *testing.T) {
	c := config(t.TempDir())
	c.FileBytes, c.Files = 1000, 1
	l := open(t, c)
	// The log's own first checkpoint waits, because it could fill the file, and the next entry would then end and remove it.
	l.checkpointing.Lock()
	for i := 0; int64(len(read(t, filePath(c.Dir, 1)))) < c.FileBytes; i++ {
		mustWrite(t, l, i)
	}
	l.checkpointing.Unlock()
	// The last entry is a checkpoint, so the other process begins the next file without one.
	if err := errors.Join(l.Checkpoint(), l.Share()); err != nil {
		t.Fatal(err)
	}
	files, err := list(c.Dir)
	if err != nil || len(files) != 1 {
		t.Fatalf("got %v, %v", files, err)
	}
	all := entries(t, c.Dir)
	known, next := files[0].path, filePath(c.Dir, all[len(all)-1].Seq+1)
	nextConfig := c
	nextConfig.Takeover = true
	other := open(t, nextConfig)
	for i := 0; ; i++ {
		mustWrite(t, other, i)
		_, errKnown := os.Stat(known)
		_, errNext := os.Stat(next)
		if isMissing(errKnown) && isMissing(errNext) {
			break
		}
	}
	if err := l.Write(Entry{Event: Cancel}); err != nil {
		t.Fatal(err)
	}
	if n := count(t, filepath.Dir(c.Dir), Cancel); n != 1 {
		t.Errorf("the entry is in the log %d times", n)
	}
	closeLog(t, l)
	closeLog(t, other)
	if r, err := VerifyDir(c.Dir, "", nil); err != nil || r.Signed != r.Last {
		t.Errorf("got %+v, %v", r, err)
	}
}

func BenchmarkShared(b *testing.B) {
	c := config(b.TempDir())
	l := open(b, c)
	if err := l.Share(); err != nil {
		b.Fatal(err)
	}
	c.Takeover = true
	other := open(b, c)
	b.ReportAllocs()
	for b.Loop() {
		for _, l := range []*Log{l, other} {
			if err := l.Write(Entry{Event: End, Execution: "01KE6WQ1XY2Z3"}); err != nil {
				b.Fatal(err)
			}
		}
	}
	closeLog(b, other)
	closeLog(b, l)
}
