package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
)

// unpackInto unpacks layers into a new directory. It fails the test if anything outside
// that directory changes.
func unpackInto(t testing.TB, maxBytes int64, maxFiles int, layers ...[]byte) (string, error) {
	t.Helper()
	dir := t.TempDir()
	root, beside := filepath.Join(dir, "root"), filepath.Join(dir, "beside")
	err := errors.Join(os.Mkdir(root, 0o755), os.Mkdir(beside, 0o700), os.WriteFile(filepath.Join(beside, "file"), []byte("as it was"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	before := treeOf(t, beside)
	u, err := newUnpacker(root, maxBytes, maxFiles)
	if err != nil {
		t.Fatal(err)
	}
	defer u.close()
	for _, b := range layers {
		r, derr := decompress(bytes.NewReader(b))
		if derr != nil {
			return root, derr
		}
		if err = u.layer(t.Context(), r); err != nil {
			break
		}
	}
	if after := treeOf(t, beside); !slices.Equal(before, after) {
		t.Errorf("outside the image: got %q, want %q", after, before)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 2 {
		t.Errorf("new entries outside the image: %v, %v", names, err)
	}
	return root, err
}

func TestUnpack(t *testing.T) {
	file := func(name string) item { return item{name: name, text: name} }
	for _, tt := range []struct {
		name   string
		layers [][]item
		want   []string
	}{
		{"files and directories", [][]item{{{name: "a/"}, {name: "a/b", text: "x", mode: 0o755}, {name: "./c", text: "y"}, {name: "/d", text: "z"}}},
			[]string{"a drwxr-xr-x", "a/b -rwxr-xr-x x", "c -rw-r--r-- y", "d -rw-r--r-- z"}},
		{"directories without an entry", [][]item{{file("a/b/c")}}, []string{"a drwxr-xr-x", "a/b drwxr-xr-x", "a/b/c -rw-r--r-- a/b/c"}},
		{"a later layer wins", [][]item{{file("a"), {name: "d/", mode: 0o700}, file("d/x")}, {{name: "a", text: "new"}, {name: "d/", mode: 0o755}}},
			[]string{"a -rw-r--r-- new", "d drwxr-xr-x", "d/x -rw-r--r-- d/x"}},
		{"a file over a directory", [][]item{{file("a/b/c")}, {file("a")}}, []string{"a -rw-r--r-- a"}},
		{"a directory over a file", [][]item{{file("a")}, {file("b"), {name: "a/"}, file("a/c")}}, []string{"a drwxr-xr-x", "a/c -rw-r--r-- a/c", "b -rw-r--r-- b"}},
		{"a directory over a link is not what the link leads to", [][]item{{file("t/x"), {name: "a", kind: tar.TypeSymlink, to: "t"}}, {{name: "a/"}, file("a/y")}},
			[]string{"a drwxr-xr-x", "a/y -rw-r--r-- a/y", "t drwxr-xr-x", "t/x -rw-r--r-- t/x"}},
		{"a file over a link is not what the link leads to", [][]item{{file("t"), {name: "a", kind: tar.TypeSymlink, to: "t"}, {name: "a", text: "new"}}},
			[]string{"a -rw-r--r-- new", "t -rw-r--r-- t"}},
		{"through a link within", [][]item{{file("usr/lib/x"), {name: "lib", kind: tar.TypeSymlink, to: "/usr/lib"}}, {file("lib/y")}},
			[]string{"lib -> /usr/lib", "usr drwxr-xr-x", "usr/lib drwxr-xr-x", "usr/lib/x -rw-r--r-- usr/lib/x", "usr/lib/y -rw-r--r-- lib/y"}},
		{"a link that would lead out ends at the root", [][]item{{file("beside/x"), {name: "a", kind: tar.TypeSymlink, to: "../../../beside"}, file("a/y")}},
			[]string{"a -> ../../../beside", "beside drwxr-xr-x", "beside/x -rw-r--r-- beside/x", "beside/y -rw-r--r-- a/y"}},
		{"an absolute link is within", [][]item{{{name: "etc/"}, {name: "a", kind: tar.TypeSymlink, to: "/etc"}, {name: "a/passwd", text: "x"}}},
			[]string{"a -> /etc", "etc drwxr-xr-x", "etc/passwd -rw-r--r-- x"}},
		{"links say what they like", [][]item{{{name: "a", kind: tar.TypeSymlink, to: "/proc/self/root/../.."}, {name: "b", kind: tar.TypeSymlink, to: "b"}}},
			[]string{"a -> /proc/self/root/../..", "b -> b"}},
		{"hard links", [][]item{{file("a"), {name: "d/b", kind: tar.TypeLink, to: "a"}, {name: "c", kind: tar.TypeLink, to: "/d/b"}}, {{name: "a", text: "new"}}},
			[]string{"a -rw-r--r-- new", "c -rw-r--r-- a", "d drwxr-xr-x", "d/b -rw-r--r-- a"}},
		{"a hard link to itself", [][]item{{file("a"), {name: "a", kind: tar.TypeLink, to: "a"}}}, []string{"a -rw-r--r-- a"}},
		{"a hard link to a link is one to the link", [][]item{{{name: "a", kind: tar.TypeSymlink, to: "/beside/file"}, {name: "b", kind: tar.TypeLink, to: "a"}}},
			[]string{"a -> /beside/file", "b -> /beside/file"}},
		{"whiteout", [][]item{{file("a"), file("b/c"), file("b/d")}, {file("b/.wh.c"), {name: ".wh.a"}}}, []string{"b drwxr-xr-x", "b/d -rw-r--r-- b/d"}},
		{"whiteout of a directory", [][]item{{file("a/b/c")}, {file(".wh.a")}}, nil},
		{"whiteout of a link", [][]item{{file("a/b"), {name: "l", kind: tar.TypeSymlink, to: "a"}}, {file(".wh.l")}}, []string{"a drwxr-xr-x", "a/b -rw-r--r-- a/b"}},
		{"whiteout of nothing", [][]item{{file("a")}, {file(".wh.b"), file("c/.wh.d")}}, []string{"a -rw-r--r-- a"}},
		{"whiteout of what the layer itself has", [][]item{{file("a")}, {{name: "a", text: "new"}, file(".wh.a")}}, []string{"a -rw-r--r-- new"}},
		{"whiteout before what the layer has", [][]item{{file("a/b")}, {file(".wh.a"), file("a/c")}}, []string{"a drwxr-xr-x", "a/c -rw-r--r-- a/c"}},
		{"whiteout after an entry of the layer", [][]item{{file("a/b")}, {file("a/c"), file(".wh.a")}}, []string{"a drwxr-xr-x", "a/c -rw-r--r-- a/c"}},
		{"opaque", [][]item{{file("a/b"), file("a/c/d"), file("e")}, {{name: "a/"}, file("a/.wh..wh..opq"), file("a/n")}},
			[]string{"a drwxr-xr-x", "a/n -rw-r--r-- a/n", "e -rw-r--r-- e"}},
		{"opaque whiteout after an entry of the layer", [][]item{{file("a/b"), file("a/c/d")}, {file("a/c/n"), file("a/.wh..wh..opq")}},
			[]string{"a drwxr-xr-x", "a/c drwxr-xr-x", "a/c/n -rw-r--r-- a/c/n"}},
		{"opaque root", [][]item{{file("a/b"), {name: "l", kind: tar.TypeSymlink, to: "/"}}, {file(".wh..wh..opq"), file("n")}}, []string{"n -rw-r--r-- n"}},
		{"whiteout through a link", [][]item{{file("t/x"), {name: "l", kind: tar.TypeSymlink, to: "../../t"}}, {file("l/.wh.x")}}, []string{"l -> ../../t", "t drwxr-xr-x"}},
		{"metadata of other engines", [][]item{{file(".wh..wh.aufs"), file(".wh..wh.plnk/1.2")}}, nil},
		{"no special bits", [][]item{{{name: "a", text: "x", mode: 0o7755}, {name: "d/", mode: 0o3777}}}, []string{"a -rwxr-xr-x x", "d drwxrwxrwx"}},
		{"devices where a sandbox has its own", [][]item{{{name: "dev/null", kind: tar.TypeChar, mode: 0o666}, {name: "run/initctl", kind: tar.TypeFifo}}}, []string{"dev drwxr-xr-x", "run drwxr-xr-x"}},
		{"the root", [][]item{{{name: "./", mode: 0o777}, {name: "/"}, file("a")}}, []string{"a -rw-r--r-- a"}},
		{"odd names", [][]item{{file("a\nb"), file("\xff\xfe"), file("..."), file(" "), file(`a\b`), file("wh.x"), file("x.wh.y")}},
			[]string{"\xff\xfe -rw-r--r-- \xff\xfe", "  -rw-r--r--  ", "... -rw-r--r-- ...", "a\nb -rw-r--r-- a\nb", `a\b -rw-r--r-- a\b`, "wh.x -rw-r--r-- wh.x", "x.wh.y -rw-r--r-- x.wh.y"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var layers [][]byte
			for i, items := range tt.layers {
				b := archive(t, items...)
				if i%2 == 0 {
					b = zipped(t, b)
				}
				layers = append(layers, b)
			}
			root, err := unpackInto(t, 1<<20, 100, layers...)
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(tt.want)
			if got := treeOf(t, root); !slices.Equal(got, tt.want) {
				t.Errorf("got %q\nwant %q", got, tt.want)
			}
		})
	}
}

// TestUnpackRefuses: an entry that leaves the image, is more than a file, or exceeds a
// limit is refused by name.
func TestUnpackRefuses(t *testing.T) {
	deep := strings.Repeat("d/", maxDepth) + "file"
	var chain []item // of links, each to a directory deeper than a name can reach
	at := ""
	for i := range 4 {
		at = fmt.Sprintf("l%d", i)
		from := ""
		if i > 0 {
			from = fmt.Sprintf("l%d/", i-1)
		}
		chain = append(chain, item{name: from + strings.Repeat("d/", 50)}, item{name: at, kind: tar.TypeSymlink, to: from + strings.Repeat("d/", 50)})
	}
	var undeclared []item // files whose directories have no entry
	for i := range 4 {
		undeclared = append(undeclared, item{name: fmt.Sprintf("%d/", i) + strings.Repeat("d/", 100) + "file"})
	}
	link := func(name, to string) item { return item{name: name, kind: tar.TypeSymlink, to: to} }
	hard := func(name, to string) item { return item{name: name, kind: tar.TypeLink, to: to} }
	for _, tt := range []struct {
		name  string
		items []item
		want  string
	}{
		{"dots", []item{{name: "../beside/file"}}, "has a .. in it"},
		{"dots in the middle", []item{{name: "a/../../beside/file"}}, "has a .. in it"},
		{"dots at the end", []item{{name: "a/.."}}, "has a .. in it"},
		{"absolute dots", []item{{name: "/../beside/file"}}, "has a .. in it"},
		{"the root as a link", []item{link(".", "../beside")}, "the image's root"},
		{"the root as a file", []item{{name: ".", kind: tar.TypeReg}}, "the image's root"},
		{"a parent that is a file", []item{{name: "a", text: "x"}, {name: "a/b"}}, "is not a directory"},
		{"a parent that is a link to nothing", []item{link("a", "nothing"), {name: "a/b"}}, `entry "a/b": it lies beneath "a", a symbolic link to "nothing", which the image does not have`},
		{"a far parent that is a link to nothing", []item{link("d/a", "/no/thing"), {name: "d/a/b/c/"}}, `it lies beneath "d/a", a symbolic link to "/no/thing", which the image does not have`},
		{"hard link beneath a link to nothing", []item{link("a", "nothing"), {name: "x"}, hard("a/b", "x")}, `it lies beneath "a", a symbolic link to "nothing"`},
		{"a parent that is a link in a circle", []item{link("a", "b"), link("b", "a"), {name: "a/c"}}, "form a loop"},
		{"hard link with dots", []item{hard("a", "../beside/file")}, "has a .. in it"},
		{"hard link to an absolute path of the machine", []item{hard("a", "/etc/passwd")}, "no such file"},
		{"hard link through a link that leads out", []item{link("l", "../beside"), hard("a", "l/file")}, "no such file"},
		{"hard link through /proc", []item{link("l", "/proc/self/root/etc"), hard("a", "l/passwd")}, "no such file"},
		{"hard link to a directory", []item{{name: "d/"}, hard("a", "d")}, "not a file"},
		{"hard link to the root", []item{hard("a", "/")}, "the image's root"},
		{"hard link to what it replaces", []item{{name: "d/x"}, hard("d", "d/x")}, "no such file"},
		{"whiteout of nothing at all", []item{{name: "a/"}, {name: "a/.wh."}}, "names no entry"},
		{"whiteout of dot", []item{{name: "a/"}, {name: "a/.wh.."}}, "names no entry"},
		{"whiteout of dots", []item{{name: "a/"}, {name: "a/.wh..."}}, "names no entry"},
		{"in a whiteout", []item{{name: ".wh.a/b"}}, "name of a whiteout"},
		{"whiteout in a whiteout", []item{{name: ".wh.a/.wh.b"}}, "name of a whiteout"},
		{"whiteout in a file", []item{{name: "a", text: "x"}, {name: "a/.wh.b"}}, "is not a directory"},
		{"character device", []item{{name: "usr/null", kind: tar.TypeChar, mode: 0o666}}, "devices are not allowed"},
		{"block device", []item{{name: "disk", kind: tar.TypeBlock}}, "devices are not allowed"},
		{"device through a link", []item{{name: "usr/"}, link("x", "usr"), {name: "x/null", kind: tar.TypeChar}}, "devices are not allowed"},
		{"a device that says it is in /dev", []item{{name: "usr/"}, link("dev", "usr"), {name: "dev/null", kind: tar.TypeChar}}, "devices are not allowed"},
		{"pipe", []item{{name: "usr/pipe", kind: tar.TypeFifo}}, "pipes are not allowed"},
		{"an unknown type", []item{{name: "x", kind: 'Q'}}, "is not supported"},
		{"a link to nothing at all", []item{link("a", "")}, "0 bytes"},
		{"a long link", []item{link("a", strings.Repeat("x", 5000))}, "5000 bytes"},
		{"a long name", []item{{name: strings.Repeat("d/", 3000) + "x"}}, "at most 4095"},
		{"a long component", []item{{name: strings.Repeat("x", 300)}}, "file name too long"},
		{"deep", []item{{name: deep}}, "directories deep"},
		{"deep directory", []item{{name: deep + "/"}}, "directories deep"},
		{"deep by links", chain, "directories deep"},
		{"more bytes than there may be", []item{{name: "a", text: strings.Repeat("x", 600<<10)}, {name: "b", text: strings.Repeat("x", 600<<10)}}, "pull.bytes"},
		{"one large file", []item{{name: "a", size: 1 << 50}}, "pull.bytes"},
		{"the same file again and again", slices.Repeat([]item{{name: "a", text: strings.Repeat("x", 300<<10)}}, 5), "pull.bytes"},
		{"more entries than there may be", slices.Repeat([]item{{name: "a/"}}, 401), "pull.files"},
		{"more directories that no entry names than there may be", undeclared, "pull.files"},
		{"an end before the end", []item{{name: "a", size: 100, text: "x"}}, "unexpected EOF"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := unpackInto(t, 1<<20, 400, archive(t, tt.items...))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
	t.Run("links through layers", func(t *testing.T) {
		one := archive(t, link("a", "/"), link("b", "../.."))
		two := archive(t, item{name: "a/b/beside/file", text: "overwritten"})
		root, err := unpackInto(t, 1<<20, 100, one, two)
		if err != nil {
			t.Fatal(err)
		}
		if want := "beside/file -rw-r--r-- overwritten"; !slices.Contains(treeOf(t, root), want) {
			t.Errorf("got %q, want %q", treeOf(t, root), want)
		}
	})
}

// Small archives that unpack to much data, and invalid ones.
func TestUnpackBombs(t *testing.T) {
	zeros := archive(t, item{name: "zeros", text: strings.Repeat("\x00", 64<<20)})
	small := archive(t, item{name: "a", text: "x"})
	var far bytes.Buffer
	w, err := zstd.NewWriter(&far, zstd.WithWindowSize(zstd.MaxWindowSize), zstd.WithSingleSegment(false))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(bytes.Repeat(small, 10)); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil { // so that the frame's header has no size
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	e, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		bytes []byte
		want  string
	}{
		{"gzip", zipped(t, zeros), "pull.bytes"},
		{"zstd", e.EncodeAll(zeros, nil), "pull.bytes"},
		{"zeros after the end", append(bytes.Clone(small), make([]byte, 64<<20)...), "pull.bytes"},
		{"zeros after the end, compressed", zipped(t, append(bytes.Clone(small), make([]byte, 64<<20)...)), "pull.bytes"},
		{"a window of a stranger's choice", far.Bytes(), "window size exceeded"},
		{"gzip in gzip", zipped(t, zipped(t, small)), "EOF"},
		{"gzip cut short", zipped(t, small)[:40], "unexpected EOF"},
		{"zstd cut short", e.EncodeAll(small, nil)[:30], "unexpected EOF"},
		{"not an archive", bytes.Repeat([]byte("x"), 2000), "tar"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := unpackInto(t, 1<<20, 100, tt.bytes)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
	if root, err := unpackInto(t, 1<<20, 100, e.EncodeAll(small, nil)); err != nil || len(treeOf(t, root)) != 1 {
		t.Errorf("zstd: got %v", err)
	}
}

// A whiteout of what its layer has cleared already does not read the directories again. The files
// with the name "later" show that: a whiteout that read their directory would remove them.
func TestWhiteoutsAreDoneOnce(t *testing.T) {
	root := t.TempDir()
	u, err := newUnpacker(root, 1<<20, 100)
	if err != nil {
		t.Fatal(err)
	}
	defer u.close()
	u.added, u.cleared = map[pathSum]bool{}, map[pathSum]bool{}
	for _, name := range []string{"lower", "a/lower", "a/b/lower"} {
		writeIn(t, root, name)
	}
	unpack := func(names ...string) {
		t.Helper()
		for _, name := range names {
			if err := u.entry(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644}, strings.NewReader("")); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	want := func(want ...string) {
		t.Helper()
		var got []string
		for _, line := range treeOf(t, root) {
			if name, rest, _ := strings.Cut(line, " "); rest[0] == '-' {
				got = append(got, name)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	unpack("a/b/new", "a/.wh..wh..opq")
	want("a/b/new", "lower")
	writeIn(t, root, "a/later")
	writeIn(t, root, "a/b/later")
	unpack("a/.wh..wh..opq", "a/b/.wh..wh..opq", ".wh.a", ".wh..wh..opq")
	want("a/b/later", "a/b/new", "a/later")
}

// writeIn writes an empty file and the directories above it.
func writeIn(t *testing.T, root, name string) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A Python bytecode cache is only valid for one modification time of its source.
func TestUnpackKeepsTimes(t *testing.T) {
	for _, at := range []time.Time{time.Unix(1700000000, 0), time.Unix(1, 0), time.Unix(-5, 0), time.Unix(1<<40, 0)} {
		root, err := unpackInto(t, 1<<20, 100, archive(t, item{name: "a.py", text: "x", time: at}))
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(root, "a.py"))
		if err != nil {
			t.Fatal(err)
		}
		if sane := at.Unix() > 0 && at.Unix() < maxTime; sane != info.ModTime().Equal(at) {
			t.Errorf("%v: got %v", at, info.ModTime())
		}
	}
}
