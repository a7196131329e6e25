package runtime

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// manifestName is the file next to a root directory that lists the root's entries.
// The manifest lies outside of root, so sandboxes don't see it.
const manifestName = "manifest"

// maxManifest bounds a manifest, in bytes. A real one has 1,500 entries and 150 KB.
const maxManifest = 16 << 20

// writeManifest lists the entries of dir/root in a manifest.
func writeManifest(dir string) error {
	text, err := manifestOf(filepath.Join(dir, rootName))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, manifestName), text, 0o600)
}

// checkManifest compares dir/root with its manifest and names one difference. The
// error is [fs.ErrNotExist] if dir does not exist.
//
// It reads inodes, not contents. A change of a file's content, mode or owner changes
// its ctime, which no program can set back. So the only change that it misses is a
// disk that corrupts data.
func checkManifest(dir string) error {
	if _, err := os.Lstat(dir); err != nil {
		return err
	}
	f, err := os.Open(filepath.Join(dir, manifestName))
	if err != nil {
		return fmt.Errorf("manifest: %v", err) // not %w: a missing part is damage, not absence
	}
	defer f.Close()
	want, err := io.ReadAll(io.LimitReader(f, maxManifest))
	if err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	got, err := manifestOf(filepath.Join(dir, rootName))
	if err != nil {
		return fmt.Errorf("root: %v", err)
	}
	if bytes.Equal(got, want) {
		return nil
	}
	return errors.New(firstDifference(string(got), string(want)))
}

// manifestOf returns one line for each entry beneath root: mode, owner, size, ctime,
// path and link target.
// WalkDir sorts each directory, so equal trees give equal texts.
func manifestOf(root string) ([]byte, error) {
	var text bytes.Buffer
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return fmt.Errorf("%s: no inode", path)
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		link := ""
		if e.Type() == fs.ModeSymlink {
			if link, err = os.Readlink(path); err != nil {
				return err
			}
		}
		size := st.Size
		if e.IsDir() {
			size = 0 // depends on the file system
		}
		fmt.Fprintf(&text, "%o %d:%d %d %d.%09d %q %q\n", st.Mode, st.Uid, st.Gid, size, st.Ctim.Sec, st.Ctim.Nsec, rel, link)
		return nil
	})
	return text.Bytes(), err
}

// firstDifference names one entry that differs.
// The difference is for the log; which one of several is named doesn't matter.
func firstDifference(got, want string) string {
	was := map[string]string{}
	for line := range strings.Lines(want) {
		was[entryOf(line)] = line
	}
	for line := range strings.Lines(got) {
		entry := entryOf(line)
		old, ok := was[entry]
		if !ok {
			return entry + " was added"
		}
		if old != line {
			return entry + " was changed"
		}
		delete(was, entry)
	}
	for entry := range was {
		return entry + " is missing"
	}
	return "the manifest was changed"
}

// entryOf returns the quoted path in a line of a manifest.
func entryOf(line string) string {
	fields := strings.SplitN(line, " ", 5)
	if len(fields) < 5 {
		return "a line of the manifest"
	}
	return strings.TrimSpace(fields[4])
}

// checkModes checks that an unpacked bundle is fit for sandboxes: no entry is
// writable by others or setuid, and no link leads out.
// The bundle is trusted code, but its archive was built elsewhere: a mistake there must not
// become a hole in every sandbox.
func checkModes(root string) error {
	return filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		mode := info.Mode()
		switch mode.Type() {
		case fs.ModeSymlink:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(root, filepath.Join(filepath.Dir(path), to))
			if err != nil || filepath.IsAbs(to) || !filepath.IsLocal(rel) {
				return fmt.Errorf("%s: a link to %s, outside of the installation", path, to)
			}
			return nil
		case fs.ModeDir, 0:
		default:
			return fmt.Errorf("%s: %v, want a file, a directory or a link", path, mode)
		}
		if mode&(fs.ModeSetuid|fs.ModeSetgid) != 0 || mode&0o022 != 0 || mode&0o444 != 0o444 || mode.IsDir() && mode&0o111 != 0o111 {
			return fmt.Errorf("%s: mode %v, want readable by all and writable by the owner only", path, mode)
		}
		return nil
	})
}
