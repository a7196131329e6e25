package skill

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

// Changes come in bursts. A reload waits until nothing has changed for watchQuiet, but no
// longer than watchMost after the first change.
const (
	watchQuiet = 100 * time.Millisecond
	watchMost  = 2 * time.Second
)

// Watch reloads whenever something in the roots changes. It begins with a reload, so that
// changes before the call count too. It returns nil when ctx ends, or an error if watching
// becomes impossible. Reload may be called at the same time, for example on SIGHUP. It is the
// caller's goroutine that works. The error, for example when the machine has no inotify instance
// left, ends the watching only: Reload still works.
func (r *Registry) Watch(ctx context.Context) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch skills: %w", err)
	}
	defer w.Close()
	for {
		// Watches come before the reload, so that changes during the reload are seen.
		r.addWatches(w)
		if _, err := r.Reload(ctx); err != nil && ctx.Err() == nil {
			r.config.Log.Error("skills not reloaded", "err", err)
		}
		if err := r.awaitChange(ctx, w); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("watch skills: %w", err)
		}
	}
}

// awaitChange returns after a change, once it has been quiet, see watchQuiet.
func (r *Registry) awaitChange(ctx context.Context, w *fsnotify.Watcher) error {
	var quiet, most <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-quiet:
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
		if most == nil {
			most = time.After(watchMost)
		}
	}
}

// concerns reports whether a change at a path can change a skill. Of the directory above a
// root only the root itself counts.
func (r *Registry) concerns(name string) bool {
	if snapshot.Excluded(filepath.Base(name)) {
		return false
	}
	return slices.ContainsFunc(r.config.Roots, func(root string) bool {
		rel, err := filepath.Rel(root, name)
		return err == nil && filepath.IsLocal(rel)
	})
}

// addWatches watches every directory of the roots. It also watches the directory above each
// root, because the root itself may appear, go or be replaced. Adding a watch twice is
// harmless. Changes in directories that cannot be watched are seen by the next Reload.
func (r *Registry) addWatches(w *fsnotify.Watcher) {
	count := 0
	add := func(dir string) error {
		if count++; count > maxWatches {
			return fmt.Errorf("more than %d directories", maxWatches)
		}
		return w.Add(dir)
	}
	for _, root := range r.config.Roots {
		if err := add(filepath.Dir(root)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			r.config.Log.Warn("directory is not watched", "dir", filepath.Dir(root), "err", err)
		}
		// The root may be a link, but nothing beneath it is followed.
		if err := add(root); err != nil {
			continue
		}
		err := filepath.WalkDir(root+string(filepath.Separator), func(p string, d fs.DirEntry, err error) error {
			switch {
			case err != nil || !d.IsDir():
				return nil
			case snapshot.Excluded(d.Name()):
				return fs.SkipDir
			}
			return add(filepath.Clean(p))
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			r.config.Log.Warn("skills are not watched completely", "root", root, "err", err)
		}
	}
}
