package skill

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

func TestWhileChanging(t *testing.T) {
	other := errors.New("other")
	tests := []struct {
		name  string
		errs  []error // of the attempts; the last one repeats
		tries int
		want  error
	}{
		{"at once", []error{nil}, 1, nil},
		{"second time", []error{fmt.Errorf("x: %w", snapshot.ErrChanging), nil}, 2, nil},
		{"never", []error{snapshot.ErrChanging}, scanAttempts, snapshot.ErrChanging},
		{"other error", []error{snapshot.ErrChanging, other}, 2, other},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				err := whileChanging(t.Context(), func() error {
					tries++
					return tt.errs[min(tries, len(tt.errs))-1]
				})
				if tries != tt.tries || !errors.Is(err, tt.want) {
					t.Errorf("%d tries, %v, want %d, %v", tries, err, tt.tries, tt.want)
				}
			})
		})
	}
	ctx, cancel := context.WithCancel(context.Background())
	err := whileChanging(ctx, func() error { cancel(); return snapshot.ErrChanging })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v, want context.Canceled", err)
	}
}

// stopsAfter is a context that is cancelled after a number of calls of Err.
type stopsAfter struct {
	context.Context
	left int
}

func (c *stopsAfter) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// A reload that is stopped, at any point, leaves no files and changes nothing.
func TestReloadStoppedAnywhere(t *testing.T) {
	root := t.TempDir()
	files{"a/SKILL.md": named("a"), "a/x": "x", "b/SKILL.md": named("b")}.Write(t, root)
	r := open(t, RegistryConfig{Roots: Roots(t.TempDir())})
	r.config.Roots = Roots(root)
	stopped := 0
	for n := 0; ; n++ {
		_, err := r.Reload(&stopsAfter{context.Background(), n})
		if err == nil {
			break
		}
		stopped++
		if !errors.Is(err, context.Canceled) || len(r.List()) != 0 || len(r.Problems()) != 0 {
			t.Fatalf("stopped after %d: %v, skills %v, problems %v", n, err, names(r.List()), r.Problems())
		}
		if got := storeNames(t, r.config.Dir); len(got) != 0 {
			t.Fatalf("stopped after %d: remaining files %v", n, got)
		}
	}
	if stopped < 5 || len(r.List()) != 2 {
		t.Errorf("stopped %d times, then %v", stopped, names(r.List()))
	}
}

// Registries that open one store at the same time import each skill once.
func TestOpenAtOnce(t *testing.T) {
	root, _ := skillDir(t, files{"x": "x"})
	dir := filepath.Join(t.TempDir(), "snapshots")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			r, err := OpenRegistry(context.Background(), RegistryConfig{Roots: Roots(root), Dir: dir, Owner: owner})
			if err != nil {
				t.Errorf("OpenRegistry: %v", err)
				return
			}
			defer r.Close()
			s, err := r.Resolve("demo")
			if err != nil {
				t.Errorf("Resolve: %v", err)
				return
			}
			if err := r.store.Verify(&s.tree); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := storeNames(t, dir); len(got) != 1 {
		t.Errorf("the store has %v, want one snapshot", got)
	}
}

// A registry whose store is full keeps its skills, reports the problem, and loads again
// when the store has room.
func TestStoreFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a small disk")
	}
	root, dir := skillDir(t, files{"x": "small"})
	store := t.TempDir()
	var wg sync.WaitGroup
	wg.Go(func() {
		// A small file system that only this thread can see. The thread ends with the test.
		runtime.LockOSThread()
		err := errors.Join(
			unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS),
			unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""),
			unix.Mount("tmpfs", store, "tmpfs", 0, "size=256k"),
		)
		if err != nil {
			t.Errorf("mount: %v", err)
			return
		}
		r, err := OpenRegistry(context.Background(), RegistryConfig{Roots: Roots(root), Dir: store, Owner: owner})
		if err != nil {
			t.Errorf("OpenRegistry: %v", err)
			return
		}
		defer r.Close()
		had, err := r.Resolve("demo")
		if err != nil {
			t.Errorf("Resolve: %v", err)
			return
		}
		big := filepath.Join(dir, "big")
		if err := os.WriteFile(big, bytes.Repeat([]byte("x"), 1<<20), 0o644); err != nil {
			t.Error(err)
		}
		c, err := r.Reload(context.Background())
		if err != nil || len(c.Updated) > 0 {
			t.Errorf("Reload = %+v, %v, want no change", c, err)
		}
		if p, _ := problemOf(r, dir); !errors.Is(p.Err, unix.ENOSPC) || p.Kept != "demo" {
			t.Errorf("problem %+v, want no space", p)
		}
		if s, err := r.Resolve("demo"); s != had || r.store.Verify(&had.tree) != nil {
			t.Errorf("the skill is not as before: %v", err)
		}
		if err := os.Truncate(big, 1); err != nil {
			t.Error(err)
		}
		if c, err := r.Reload(context.Background()); err != nil || len(c.Updated) != 1 || len(r.Problems()) != 0 {
			t.Errorf("Reload with room = %+v, %v, problems %v", c, err, r.Problems())
		}
	})
	wg.Wait()
}

// Changes that go on are waited for at most watchMost. Changes outside the roots do not
// count.
func TestAwaitChange(t *testing.T) {
	r := &Registry{config: RegistryConfig{Roots: Roots("/srv/skills"), Log: slog.New(slog.DiscardHandler)}}
	run := func(t *testing.T, send func(w *fsnotify.Watcher)) (time.Duration, error) {
		w := &fsnotify.Watcher{Events: make(chan fsnotify.Event), Errors: make(chan error)}
		start := time.Now()
		ended := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() { ended <- r.awaitChange(ctx, w, 0) }()
		send(w)
		err := <-ended
		return time.Since(start), err
	}
	change := fsnotify.Event{Name: "/srv/skills/a"}
	tests := []struct {
		name string
		send func(w *fsnotify.Watcher)
		took time.Duration
		err  error
	}{
		{"one", func(w *fsnotify.Watcher) { w.Events <- change }, watchQuiet, nil},
		{"another soon after", func(w *fsnotify.Watcher) {
			w.Events <- change
			time.Sleep(watchQuiet / 2)
			w.Events <- change
		}, watchQuiet * 3 / 2, nil},
		{"no end", func(w *fsnotify.Watcher) {
			for range watchMost / (watchQuiet / 2) {
				w.Events <- change
				time.Sleep(watchQuiet / 2)
			}
		}, watchMost, nil},
		{"lost events", func(w *fsnotify.Watcher) { w.Errors <- fsnotify.ErrEventOverflow }, watchQuiet, nil},
		{"beside the roots", func(w *fsnotify.Watcher) { w.Events <- fsnotify.Event{Name: "/srv/x"} }, time.Minute, context.DeadlineExceeded},
		{"other errors", func(w *fsnotify.Watcher) { w.Errors <- errors.New("x") }, time.Minute, context.DeadlineExceeded},
		{"closed", func(w *fsnotify.Watcher) { close(w.Events) }, 0, fsnotify.ErrClosed},
		{"closed errors", func(w *fsnotify.Watcher) { close(w.Errors) }, 0, fsnotify.ErrClosed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // with a fake clock
				if took, err := run(t, tt.send); took != tt.took || !errors.Is(err, tt.err) {
					t.Errorf("took %v, %v, want %v, %v", took, err, tt.took, tt.err)
				}
			})
		})
	}
}
