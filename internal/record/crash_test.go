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
)

// crashDir, in the environment, makes the test binary the program that crashes.
const crashDir = "RECORD_TEST_CRASH_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(otherDir); dir != "" {
		serveCommands(dir)
		os.Exit(0)
	}
	if dir := os.Getenv(crashDir); dir != "" {
		if err := writeUntilKilled(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// writeUntilKilled creates executions, appends to them from two goroutines, and ends
// some. It prints one line on stdout for each acknowledged write.
func writeUntilKilled(dir string) error {
	s, err := Open(Config{Dir: dir})
	if err != nil {
		return err
	}
	failed := make(chan error)
	for range 2 {
		go func() {
			for {
				if err := writeExecution(s); err != nil {
					failed <- err
				}
			}
		}()
	}
	return <-failed
}

func writeExecution(s *Store) error {
	ctx := context.Background()
	id := NewID()
	x := Execution{ID: id, Tenant: "a"}
	if rand.IntN(2) == 0 {
		x.Key = "key of " + id
	}
	l, err := s.Create(ctx, x, []byte("header"))
	if err != nil {
		return err
	}
	fmt.Printf("created %s %s\n", id, strings.ReplaceAll(x.Key, " ", "_"))
	if err := l.Started(ctx, time.Now(), nil); err != nil {
		return err
	}
	fmt.Printf("started %s\n", id)
	errs := make([]error, 2)
	var pumps sync.WaitGroup
	most := []int{100, 10_000, 200_000}[rand.IntN(3)] // some never get a file
	for i := range errs {
		pumps.Go(func() {
			for range rand.IntN(20) {
				data := make([]byte, rand.IntN(most))
				for j := range data {
					data[j] = byte(j * len(data))
				}
				seq, err := l.Append(Event{Kind: KindOutput, Stream: uint8(i), Data: data})
				if err != nil {
					errs[i] = err
					return
				}
				fmt.Printf("appended %s %d %d\n", id, seq, crc32.ChecksumIEEE(data))
			}
		})
	}
	pumps.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if rand.IntN(4) == 0 {
		return nil // runs on
	}
	if err := l.End(ctx, "EXITED", []byte("outcome"), time.Now()); err != nil {
		return err
	}
	fmt.Printf("ended %s\n", id)
	return nil
}

// acknowledged collects the lines of a crashed process about one execution.
type acknowledged struct {
	started, ended bool
	key            bool
	sums           map[uint64]uint32
}

// Processes are killed while they write. The next process has every acknowledged write,
// and no partial one.
func TestCrash(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "record")
	all := map[string]*acknowledged{}
	rounds := 25
	if testing.Short() {
		rounds = 5
	}
	for range rounds {
		crashOnce(t, dir, all)
		s := openStore(t, Config{Dir: dir})
		left, err := s.Unended(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range left {
			if a := all[x.ID]; a != nil && (a.ended || a.started && x.State != Running) {
				t.Errorf("%s was acknowledged as more than %v", x.ID, x.State)
			}
			end(t, reopenLog(t, s, x.ID), "DAEMON_LOST", start)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s := openStore(t, Config{Dir: dir})
	for id, a := range all {
		checkAcknowledged(t, s, id, a)
	}
	// Executions without an acknowledgement are whole as well.
	events := 0
	for _, id := range listAll(t, s, Filter{Tenant: "a"}) {
		events += len(readAll(t, s, "a", id, 0))
	}
	t.Logf("%d executions acknowledged, %d events read", len(all), events)
	if len(all) < rounds {
		t.Errorf("only %d executions", len(all))
	}
}

// crashOnce runs a process, kills it after some lines, and notes its lines in all.
func crashOnce(t *testing.T, dir string, all map[string]*acknowledged) {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), crashDir+"="+dir)
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	kill := 1 + rand.IntN(60)
	lines := bufio.NewReader(out)
	for n := 1; ; n++ {
		line, err := lines.ReadString('\n')
		if err == io.EOF {
			break // a part of a line is no acknowledgement
		}
		if err != nil {
			t.Fatal(err)
		}
		note(t, all, strings.Fields(line))
		if n == kill {
			if err := c.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := c.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Fatalf("got %v", err)
	}
}

func note(t *testing.T, all map[string]*acknowledged, line []string) {
	t.Helper()
	if all[line[1]] == nil {
		all[line[1]] = &acknowledged{sums: map[uint64]uint32{}}
	}
	a := all[line[1]]
	switch line[0] {
	case "created":
		a.key = len(line) > 2
	case "started":
		a.started = true
	case "ended":
		a.ended = true
	case "appended":
		var seq uint64
		var sum uint32
		if _, err := fmt.Sscan(strings.Join(line[2:], " "), &seq, &sum); err != nil {
			t.Fatal(err)
		}
		a.sums[seq] = sum
	}
}

func checkAcknowledged(t *testing.T, s *Store, id string, a *acknowledged) {
	t.Helper()
	events := readAll(t, s, "a", id, 0)
	for i, e := range events {
		if e.Seq != uint64(i+1) || (e.Kind == KindHeader) != (i == 0) || (e.Kind == KindEnd) != (i == len(events)-1) {
			t.Errorf("%s: event %d is %d of kind %d", id, i, e.Seq, e.Kind)
		}
		if want, ok := a.sums[e.Seq]; ok && crc32.ChecksumIEEE(e.Data) != want {
			t.Errorf("%s: event %d has other data", id, e.Seq)
		}
		delete(a.sums, e.Seq)
	}
	if len(a.sums) > 0 {
		t.Errorf("%s: events %v are lost", id, a.sums)
	}
	x := get(t, s, "a", id)
	if last := events[len(events)-1]; x.State != Ended || x.End != last.End || a.ended && x.End != "EXITED" {
		t.Errorf("%s: row says %s, spool %s, acknowledged %v", id, x.End, last.End, a.ended)
	}
	if !a.key {
		return
	}
	_, err := s.Create(t.Context(), Execution{ID: NewID(), Tenant: "a", Key: "key of " + id}, nil)
	if claimed, ok := errors.AsType[*KeyClaimed](err); !ok || claimed.Existing.ID != id {
		t.Errorf("%s: its key: got %v", id, err)
	}
}
