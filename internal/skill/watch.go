package skill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/skillrun/skillrun/internal/durable"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

// Changes come in bursts. A reload waits until nothing has changed for watchQuiet, but no
// longer than watchMost after the first change.
const (
	watchQuiet = 100 * time.Millisecond
	watchMost  = 2 * time.Second
)

// Watch reloads whenever something in the roots changes. It begins with a reload, so that
// changes before the call count too. After an error that may pass, it reloads again without a change. It returns nil
// when ctx ends, or an error if watching
// becomes impossible. Reload may be called at the same time, for example on SIGHUP. It is the
// caller's goroutine that works. The error, for example when the machine has no inotify instance
// left, ends the watching only: Reload still works.
func (r *Registry) Watch(ctx context.Context) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch skills: %w", err)
	}
	defer w.Close()
	pause := unreadInterval
	for {
		// Watches come before the reload, so that changes during the reload are seen.
		unwatched, why := r.watch(w)
		r.sayUnwatched(unwatched, why)
		var again time.Duration
		if unwatched > 0 {
			again = unwatchedInterval
		}
		_, err := r.Reload(ctx)
		if err != nil && ctx.Err() == nil {
			r.config.Log.Error("skills not reloaded", "err", err)
		}
		if err != nil || r.unread() {
			again = pause
			pause = min(2*pause, unwatchedInterval)
		} else {
			pause = unreadInterval
		}
		if err := r.awaitChange(ctx, w, again); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("watch skills: %w", err)
		}
	}
}

// unread reports whether a root or a folder could not be read, for a reason that may pass without a change of the folder.
func (r *Registry) unread() bool {
	return slices.ContainsFunc(r.Problems(), func(p Problem) bool { return durable.MayPass(p.Err) })
}

// sayUnwatched logs how many directories are not watched, when the number changes.
func (r *Registry) sayUnwatched(unwatched int, why error) {
	if unwatched != r.unwatched && unwatched > 0 {
		r.config.Log.Warn("skills are not watched completely", "unwatched_directories", unwatched, "err", why, "read_again_after_s", int(unwatchedInterval.Seconds()))
	}
	r.unwatched = unwatched
}

// awaitChange returns after a change, once it has been quiet, see watchQuiet. Unless again is 0,
// it returns after that time at the latest, for directories that are not watched or could not be read.
func (r *Registry) awaitChange(ctx context.Context, w *fsnotify.Watcher, again time.Duration) error {
	var quiet, most <-chan time.Time
	if again > 0 {
		most = time.After(again)
	}
	changed := false
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-quiet:
			return nil
		case <-r.rewatch:
			return nil
		case <-most:
			return nil
		case ev, ok := <-w.Events:
			if !ok {
				return fsnotify.ErrClosed
			}
			if !r.concerns(ev.Name) {
				continue
			}
		case err, ok := <-w.Errors:
			if !ok {
				return fsnotify.ErrClosed
			}
			// Lost events count as a change.
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				r.config.Log.Warn("watch skills", "err", err)
				continue
			}
		}
		quiet = time.After(watchQuiet)
		if !changed {
			changed, most = true, time.After(watchMost)
		}
	}
}

// concerns reports whether a change at a path can change a skill. Of the directory above a
// root only the root itself counts.
func (r *Registry) concerns(name string) bool {
	if snapshot.Excluded(filepath.Base(name)) {
		return false
	}
	return slices.ContainsFunc(r.allRoots(), func(root Root) bool {
		rel, err := filepath.Rel(root.Dir, name)
		return err == nil && filepath.IsLocal(rel)
	})
}

// watch watches every directory of the roots. It also watches the directory above each root,
// because the root itself may appear, go or be replaced. Adding a watch twice is harmless. It
// returns how many directories are not watched, and why the first one is not.
func (r *Registry) watch(w *fsnotify.Watcher) (unwatched int, why error) {
	count := 0
	add := func(dir string) {
		if count++; count > maxWatches {
			unwatched, why = unwatched+1, cmp.Or(why, fmt.Errorf("more than %d directories", maxWatches))
			return
		}
		if err := w.Add(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			unwatched, why = unwatched+1, cmp.Or(why, err)
		}
	}
	for _, root := range r.allRoots() {
		add(filepath.Dir(root.Dir))
		// The root may be a link, unless it is one with NoLinks, but nothing beneath it is followed.
		top := root.Dir
		if !root.NoLinks {
			top += string(filepath.Separator)
		}
		_ = filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				// Reload may succeed a moment later, so no problem would say that changes beneath p are not seen.
				if !errors.Is(err, fs.ErrNotExist) {
					unwatched, why = unwatched+1, cmp.Or(why, err)
				}
				return nil
			case !d.IsDir():
				return nil
			case snapshot.Excluded(d.Name()):
				return fs.SkipDir
			}
			add(filepath.Clean(p))
			return nil
		})
	}
	return unwatched, why
}
