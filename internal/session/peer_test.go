package session

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// peerDir, in the environment, makes the test binary a second process with the store in this directory.
const peerDir = "SESSION_TEST_PEER_DIR"

// An order is a line to the second process, and an answer a line from it.
type order struct {
	Do    string
	ID    string
	Files []string // path=content
	Held  []Held
	Bytes int64  // Rules.TotalBytes
	Keep  int    // Rules.Versions
	At    string // the step at which the process stops
}

type answer struct {
	Err   string
	ID    string
	Held  []Held
	Freed *Held // OnRelease was called, and waits for a line
	At    string
	N     int
}

// peerProcess is the second process.
type peerProcess struct {
	dir     string
	in      *json.Decoder
	store   *Store
	rules   Rules
	writers map[string]*Writer
}

func (p *peerProcess) say(a answer) {
	line, err := json.Marshal(a)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

// serve executes the commands on its standard input, one a line.
func (p *peerProcess) serve() error {
	p.in, p.writers = json.NewDecoder(os.Stdin), map[string]*Writer{}
	for {
		var o order
		if err := p.in.Decode(&o); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		a, err := p.do(o)
		if err != nil {
			a.Err = err.Error()
		}
		p.say(a)
	}
}

func (p *peerProcess) do(o order) (a answer, err error) {
	ctx := context.Background()
	switch o.Do {
	case "open", "open next":
		p.rules = Rules{TotalBytes: o.Bytes, Versions: o.Keep}
		p.store, err = Open(Config{
			Dir: p.dir, Owner: owner, Takeover: o.Do == "open next", Held: o.Held, Log: slog.New(slog.DiscardHandler),
			Rules: func(string) Rules { return p.rules }, Now: func() time.Time { return time.Unix(1_700_000_000, 0) },
		})
		if err == nil {
			p.store.OnRelease(func(tenant, id string) {
				p.say(answer{Freed: &Held{Tenant: tenant, ID: id}})
				_ = p.in.Decode(&order{})
			})
		}
	case "create":
		var i Info
		i, err = p.store.Create("a", Settings{})
		a.ID = i.ID
	case "delete":
		err = p.store.Delete("a", o.ID)
	case "label":
		_, err = p.store.Update("a", o.ID, func(set *Settings) { set.Labels = map[string]string{"by": "the peer"} })
	case "acquire":
		p.writers[o.ID], err = p.store.Acquire(ctx, "a", o.ID, Use{By: "execution " + o.ID})
	case "open files":
		err = p.writers[o.ID].Open(0)
	case "commit":
		var done Committed
		done, err = p.commit(o)
		a.N = done.Version.Number
	case "release":
		p.writers[o.ID].Release()
	case "stop at":
		p.store.step = func(step string) {
			if step == o.At {
				p.say(answer{At: step})
				select {}
			}
		}
	case "hand over":
		a.Held, err = p.store.HandOver(ctx)
	case "freed":
		p.store.Freed("a", o.ID)
	case "adopt":
		err = p.store.Adopt(ctx)
	case "close":
		err = p.store.Close()
	default:
		err = fmt.Errorf("unknown order %q", o.Do)
	}
	return a, err
}

func (p *peerProcess) commit(o order) (Committed, error) {
	var c Change
	for i, file := range o.Files {
		path, content, _ := strings.Cut(file, "=")
		source := filepath.Join(filepath.Dir(p.dir), fmt.Sprintf("source-%d-%s-%d", os.Getpid(), o.ID, i))
		if err := errors.Join(os.RemoveAll(source), os.WriteFile(source, []byte(content), 0o600)); err != nil {
			return Committed{}, err
		}
		c.Files = append(c.Files, NewFile{newFile(path, content), source})
	}
	return p.writers[o.ID].Commit(c)
}

// A peer is the second process, seen from the test.
type peer struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
	mu  sync.Mutex
}

// startPeer starts a second process with the store of the test.
func startPeer(t testing.TB, b *bench) *peer {
	t.Helper()
	p := &peer{t: t, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), peerDir+"="+b.dir)
	p.cmd.Stderr = os.Stderr
	in, errIn := p.cmd.StdinPipe()
	out, errOut := p.cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut, p.cmd.Start()); err != nil {
		t.Fatal(err)
	}
	p.in, p.out = in, bufio.NewScanner(out)
	t.Cleanup(p.kill)
	return p
}

// send sends an order, whose answer the caller reads with answer.
func (p *peer) send(o order) {
	p.t.Helper()
	line, err := json.Marshal(o)
	if err == nil {
		_, err = p.in.Write(append(line, '\n'))
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *peer) answer() (a answer) {
	p.t.Helper()
	if !p.out.Scan() {
		p.t.Fatal("the second process has ended")
	}
	if err := json.Unmarshal(p.out.Bytes(), &a); err != nil {
		p.t.Fatal(err)
	}
	return a
}

// ask sends an order and returns the answer, which may have an error.
func (p *peer) ask(o order) answer {
	p.t.Helper()
	p.send(o)
	return p.answer()
}

// do is ask without an error.
func (p *peer) do(o order) answer {
	p.t.Helper()
	a := p.ask(o)
	if a.Err != "" {
		p.t.Fatalf("%s: %s", o.Do, a.Err)
	}
	return a
}

// write makes the second process a writer of a session.
func (p *peer) write(id string) {
	p.t.Helper()
	p.do(order{Do: "acquire", ID: id})
	p.do(order{Do: "open files", ID: id})
}

// kill ends the process with SIGKILL, once.
func (p *peer) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
	_ = p.cmd.Wait() // it says that the process was killed
	p.cmd = nil
}
