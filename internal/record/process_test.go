package record

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skillrun/skillrun/internal/record/journal"
)

// otherDir, in the environment, makes the test binary a second process with the store in that directory. It executes
// one command for each line of stdin, see commands, and answers each with one line.
const otherDir = "RECORD_TEST_OTHER_DIR"

// other is the second process, as itself.
type other struct {
	dir  string
	s    *Store
	logs map[string]*Log
	held io.Closer // the write lock

	mu  sync.Mutex // guards out
	out *bufio.Writer
}

func serveCommands(dir string) {
	o := &other{dir: dir, logs: map[string]*Log{}, out: bufio.NewWriter(os.Stdout)}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		said, err := commands[words[0]](o, words[1:])
		if err != nil {
			said = "error " + nameOf(err) + ": " + strings.ReplaceAll(err.Error(), "\n", "; ")
		}
		o.say("reply " + said)
	}
}

func (o *other) say(line string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	fmt.Fprintln(o.out, line)
	o.out.Flush()
}

// nameOf names the errors that tests look for.
func nameOf(err error) string {
	for name, known := range map[string]error{
		"ErrInUse": ErrInUse, "ErrHandedOver": ErrHandedOver, "ErrNotAdopted": ErrNotAdopted, "ErrEnded": ErrEnded, "ErrClosed": ErrClosed,
	} {
		if errors.Is(err, known) {
			return name
		}
	}
	if _, ok := errors.AsType[*KeyClaimed](err); ok {
		return "KeyClaimed"
	}
	return "other"
}

// pattern returns the data of an event. Each byte depends on the event and the position, so a test notices a wrong byte.
func pattern(id string, size, seed int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i*(2*seed+1) + i>>8 + len(id) + seed)
	}
	return b
}

func (o *other) append(l *Log, size, seed int) error {
	id := l.ID()
	data := pattern(id, size, seed)
	seq, err := l.Append(Event{Kind: KindOutput, Stream: 1, Data: data})
	if err == nil {
		o.say(fmt.Sprintf("appended %s %d %d", id, seq, crc32.ChecksumIEEE(data)))
	}
	return err
}

func scanWords(words []string, to ...any) {
	if _, err := fmt.Sscan(strings.Join(words, " "), to...); err != nil {
		panic(err)
	}
}

// commands are the commands that the test sends to the second process.
var commands = map[string]func(*other, []string) (string, error){
	"open": func(o *other, words []string) (string, error) { // kind, executions of the earlier process
		c := Config{Dir: o.dir, Takeover: strings.HasSuffix(words[0], "takeover"), Earlier: words[1:], MaxAge: time.Hour}
		open := Open
		if strings.HasPrefix(words[0], "idle") {
			open = openIdle
		}
		s, err := open(c)
		o.s = s
		return "", err
	},
	"create": func(o *other, words []string) (string, error) { // id, tenant, key
		x := Execution{ID: words[0], Tenant: words[1], Created: start, Detail: []byte("detail")}
		if len(words) > 2 {
			x.Key = words[2]
		}
		l, err := o.s.Create(context.Background(), x, []byte("header of "+x.ID))
		o.logs[x.ID] = l
		return "", err
	},
	"started": func(o *other, words []string) (string, error) {
		return "", o.logs[words[0]].Started(context.Background(), start, nil)
	},
	"append": func(o *other, words []string) (string, error) { // id, size, seed
		var size, seed int
		scanWords(words[1:], &size, &seed)
		return "", o.append(o.logs[words[0]], size, seed)
	},
	"pump": func(o *other, words []string) (string, error) { // id, number, largest: in the background
		var n, most int
		scanWords(words[1:], &n, &most)
		l := o.logs[words[0]]
		go func() {
			for i := range n {
				if err := o.append(l, rand.IntN(most), i); err != nil {
					o.say("failed " + words[0] + " " + err.Error())
				}
			}
			o.say("pumped " + words[0])
		}()
		return "", nil
	},
	"artifact": func(o *other, words []string) (string, error) { // id, size
		var size int
		scanWords(words[1:], &size)
		dir := o.s.ArtifactDir(words[0])
		err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "0"), make([]byte, size), 0o600))
		if err != nil {
			return "", err
		}
		return "", o.logs[words[0]].PutArtifacts(context.Background(), []Artifact{{Path: "x", SizeBytes: int64(size)}})
	},
	"end": func(o *other, words []string) (string, error) { // id, word
		err := o.logs[words[0]].End(context.Background(), words[1], []byte("outcome of "+words[0]), start)
		if err == nil {
			o.say("ended " + words[0])
		}
		return "", err
	},
	"half": func(o *other, words []string) (string, error) { // id, word: writes the end to the file, and not to the journal
		_, _, err := o.logs[words[0]].beginEnd(&Event{Kind: KindEnd, Time: start, Data: []byte("outcome of " + words[0]), End: words[1]})
		return "", err
	},
	"remove": func(o *other, words []string) (string, error) { // tenant, id
		return "", o.s.Remove(context.Background(), words[0], words[1])
	},
	"sweep": func(o *other, _ []string) (string, error) {
		_, _, err := o.s.Sweep(context.Background(), start)
		return "", err
	},
	"room": func(o *other, words []string) (string, error) {
		_, _, err := o.s.MakeRoom(context.Background(), words[0], 1<<40)
		return "", err
	},
	"purge": func(o *other, words []string) (string, error) {
		_, _, err := o.s.Purge(context.Background(), words[0])
		return "", err
	},
	"read": func(o *other, words []string) (string, error) { // tenant, id: up to the end
		r, err := o.s.Read(context.Background(), words[0], words[1], 0)
		if err != nil {
			return "", err
		}
		defer r.Close()
		n := 0
		for ; err == nil; n++ {
			_, err = r.Next(context.Background())
		}
		if err != io.EOF {
			return "", err
		}
		return fmt.Sprint(n - 1), nil
	},
	"unended": func(o *other, _ []string) (string, error) {
		all, err := o.s.Unended(context.Background())
		var ids []string
		for _, x := range all {
			ids = append(ids, x.ID)
		}
		return strings.Join(ids, " "), err
	},
	"handover": func(o *other, _ []string) (string, error) { return "", o.s.HandOver(context.Background()) },
	"resume":   func(o *other, _ []string) (string, error) { return "", o.s.Resume() },
	"adopt":    func(o *other, _ []string) (string, error) { return "", o.s.Adopt(context.Background()) },
	"close":    func(o *other, _ []string) (string, error) { return "", o.s.Close() },
	"journal":  func(o *other, _ []string) (string, error) { return o.s.batch.name, nil },
	"lock": func(o *other, _ []string) (string, error) { // the write lock of the database
		tx, err := o.s.db.states.BeginTx(context.Background(), nil)
		o.held = closer(func() error { return tx.Rollback() })
		return "", err
	},
	"unlock": func(o *other, _ []string) (string, error) { return "", o.held.Close() },
}

type closer func() error

func (c closer) Close() error { return c() }

// process is the second process, as the test sees it.
type process struct {
	t       *testing.T
	c       *exec.Cmd
	in      io.WriteCloser
	replies chan string // closed when the process has ended

	mu     sync.Mutex
	all    map[string]*acknowledged
	pumped map[string]bool
	noted  *sync.Cond // of mu; told of each line
}

// startProcess starts a second process for the store in dir.
func startProcess(t *testing.T, dir string) *process {
	t.Helper()
	p := &process{t: t, c: exec.Command(os.Args[0]), replies: make(chan string, 1), all: map[string]*acknowledged{}, pumped: map[string]bool{}}
	p.noted = sync.NewCond(&p.mu)
	p.c.Env = append(os.Environ(), otherDir+"="+dir)
	p.c.Stderr = os.Stderr
	out, err := p.c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.in, err = p.c.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.c.Start(); err != nil {
		t.Fatal(err)
	}
	go p.listen(bufio.NewReader(out))
	t.Cleanup(func() {
		p.c.Process.Kill()
		p.wait()
	})
	return p
}

func (p *process) listen(out *bufio.Reader) {
	defer close(p.replies)
	for {
		line, err := out.ReadString('\n')
		if err != nil {
			return // a part of a line is no acknowledgement
		}
		words := strings.Fields(line)
		if words[0] == "reply" {
			p.replies <- strings.Join(words[1:], " ")
			continue
		}
		p.mu.Lock()
		switch words[0] {
		case "pumped":
			p.pumped[words[1]] = true
		case "failed":
			p.t.Error(line)
		default:
			note(p.t, p.all, words)
		}
		p.noted.Broadcast()
		p.mu.Unlock()
	}
}

// ask returns the answer to a command.
func (p *process) ask(command string, args ...any) string {
	p.t.Helper()
	if _, err := io.WriteString(p.in, strings.TrimSpace(command+" "+fmt.Sprintln(args...))+"\n"); err != nil {
		p.t.Fatal(err)
	}
	answer, ok := <-p.replies
	if !ok {
		p.t.Fatalf("%s %v: the process has ended", command, args)
	}
	return answer
}

// must is ask for a command that succeeds.
func (p *process) must(command string, args ...any) {
	p.t.Helper()
	if got := p.ask(command, args...); got != "" {
		p.t.Fatalf("%s %v: got %s", command, args, got)
	}
}

// refuses is ask for a command that fails.
func (p *process) refuses(name, command string, args ...any) {
	p.t.Helper()
	if got := p.ask(command, args...); !strings.HasPrefix(got, "error "+name+":") {
		p.t.Errorf("%s %v: got %q, want %s", command, args, got, name)
	}
}

// until waits for lines of the process until f holds.
func (p *process) until(f func() bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !f() {
		p.noted.Wait()
	}
}

// kill ends the process as SIGKILL does, and returns when the kernel has dropped its locks.
func (p *process) kill() {
	p.t.Helper()
	if err := p.c.Process.Kill(); err != nil {
		p.t.Fatal(err)
	}
	p.wait()
}

// leave ends the process after all commands.
func (p *process) leave() {
	p.t.Helper()
	if err := p.in.Close(); err != nil {
		p.t.Fatal(err)
	}
	p.wait()
}

func (p *process) wait() {
	for range p.replies { // until the end of stdout
	}
	p.c.Wait() // killed or not
}

// checkThird checks that no third process can open the store.
func checkThird(t *testing.T, when, dir string) {
	t.Helper()
	p := startProcess(t, dir)
	if got := p.ask("open plain"); !strings.HasPrefix(got, "error ErrInUse:") {
		t.Errorf("%s: a third process got %q", when, got)
	}
	p.leave()
}

// journalEntries returns how many entries a journal has.
func journalEntries(t *testing.T, dir, name string) (n int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	copyFile(t, filepath.Join(dir, name), path)
	j, err := journal.Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if err := j.Recover(0, func(journal.Entry) error { n++; return nil }); err != nil {
		t.Fatal(err)
	}
	return n
}
