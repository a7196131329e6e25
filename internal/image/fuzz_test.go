package image

import (
	"archive/tar"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzUnpack unpacks two layers of arbitrary bytes. unpackInto checks that nothing outside
// the image changes. The image has only files, directories and links, and stays within both
// limits.
func FuzzUnpack(f *testing.F) {
	link := func(name, to string) item { return item{name: name, kind: tar.TypeSymlink, to: to} }
	hard := func(name, to string) item { return item{name: name, kind: tar.TypeLink, to: to} }
	plain := archive(f, item{name: "a/"}, item{name: "a/b", text: "x", mode: 0o4755}, item{name: "c", text: "y"}, hard("d", "c"), link("e", "a"))
	for _, second := range [][]byte{
		nil, plain, zipped(f, plain), plain[:700], zipped(f, plain)[:50],
		archive(f, item{name: "../beside/file", text: "x"}),
		archive(f, link("a", "../beside"), item{name: "a/file", text: "x"}, hard("h", "a/file")),
		archive(f, link("x", "/"), item{name: "x/x/x/y", text: "x"}, item{name: "x/.wh.c"}, item{name: "x/.wh..wh..opq"}),
		archive(f, item{name: ".wh.a"}, item{name: "a/.wh.."}, item{name: "a/.wh..."}),
		archive(f, item{name: "usr/null", kind: tar.TypeChar}, item{name: "dev/p", kind: tar.TypeFifo}, item{name: "disk", kind: tar.TypeBlock}),
		archive(f, item{name: strings.Repeat("d/", 200)}),
		archive(f, item{name: "big", size: 1 << 40}),
		append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0x24, 0x00}, plain[:600]...),
	} {
		f.Add(plain, second)
	}
	const maxBytes, maxFiles = 1 << 16, 32
	f.Fuzz(func(t *testing.T, first, second []byte) {
		root, _ := unpackInto(t, maxBytes, maxFiles, first, second)
		var bytes int64
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || path == root {
				return err
			}
			info, err := os.Lstat(path)
			if err != nil {
				return err
			}
			if mode := info.Mode(); mode&^(fs.ModePerm|fs.ModeDir|fs.ModeSymlink) != 0 {
				t.Errorf("%q has mode %v", path, mode)
			}
			if strings.Count(path[len(root):], "/") > maxDepth {
				t.Errorf("%q is deep", path)
			}
			if info.Mode().IsRegular() {
				bytes += info.Size()
			}
			return nil
		})
		// A hard link counts once for each name here, but once on disk.
		if err != nil || bytes > maxBytes*maxFiles {
			t.Errorf("%d bytes, %v", bytes, err)
		}
	})
}
