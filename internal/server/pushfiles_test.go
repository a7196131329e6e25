package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"weak"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

func pushed(path, text string) *pb.PushSkillRequest {
	return &pb.PushSkillRequest{Message: &pb.PushSkillRequest_Entry{Entry: &pb.PushSkillEntry{Path: path, SizeBytes: uint64(len(text)), Data: []byte(text)}}}
}

func pushedLink(path, target string) *pb.PushSkillRequest {
	return &pb.PushSkillRequest{Message: &pb.PushSkillRequest_Entry{Entry: &pb.PushSkillEntry{Path: path, LinkTarget: target}}}
}

func pushedData(text string) *pb.PushSkillRequest {
	return &pb.PushSkillRequest{Message: &pb.PushSkillRequest_Data{Data: []byte(text)}}
}

// receive writes the entries of a push to a new directory. It returns the directory and the first
// error.
func receive(t testing.TB, bytes int64, messages ...*pb.PushSkillRequest) (string, error) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "skill")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := newPushedFiles(dir, bytes, snapshot.Bounds{MaxFiles: 100})
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	for _, m := range messages {
		if err := f.take(m); err != nil {
			return dir, err
		}
	}
	return dir, f.finish()
}

func TestPushedFiles(t *testing.T) {
	long := &pb.PushSkillRequest{Message: &pb.PushSkillRequest_Entry{Entry: &pb.PushSkillEntry{Path: "scripts/run.sh", Executable: true, SizeBytes: 6, Data: []byte("ab")}}}
	dir, err := receive(t, 100, pushed("SKILL.md", "x"), long, pushedData("cd"), pushedData("ef"), pushed("empty", ""), pushedLink("scripts/link", "run.sh"))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"SKILL.md": "x", "scripts/run.sh": "abcdef", "empty": "", "scripts/link": "abcdef"} {
		if got, err := os.ReadFile(filepath.Join(dir, path)); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v", path, got, err)
		}
	}
	if fi, err := os.Stat(filepath.Join(dir, "scripts/run.sh")); err != nil || fi.Mode() != 0o700 {
		t.Errorf("got %v, %v; want an executable file", fi, err)
	}
	if fi, err := os.Stat(filepath.Join(dir, "SKILL.md")); err != nil || fi.Mode() != 0o600 {
		t.Errorf("got %v, %v; want a file that is not executable", fi, err)
	}
}

func TestPushedFilesRefuse(t *testing.T) {
	for name, tt := range map[string]struct {
		messages []*pb.PushSkillRequest
		field    string
	}{
		"parent":                   {[]*pb.PushSkillRequest{pushed("../x", "")}, "entry.path"},
		"parent inside":            {[]*pb.PushSkillRequest{pushed("a/../../x", "")}, "entry.path"},
		"parent that stays":        {[]*pb.PushSkillRequest{pushed("a/../x", "")}, "entry.path"},
		"absolute":                 {[]*pb.PushSkillRequest{pushed("/etc/passwd", "")}, "entry.path"},
		"NUL":                      {[]*pb.PushSkillRequest{pushed("a\x00b", "")}, "entry.path"},
		"newline":                  {[]*pb.PushSkillRequest{pushed("a\nb", "")}, "entry.path"},
		"line separator":           {[]*pb.PushSkillRequest{pushed("a\u2028b", "")}, "entry.path"},
		"reversed text":            {[]*pb.PushSkillRequest{pushed("a\u202egnp.sh", "")}, "entry.path"},
		"isolated text":            {[]*pb.PushSkillRequest{pushed("\u2066a/b", "")}, "entry.path"},
		"link to reversed text":    {[]*pb.PushSkillRequest{pushedLink("a", "b\u202ac")}, "entry.link_target"},
		"backslash":                {[]*pb.PushSkillRequest{pushed(`a\b`, "")}, "entry.path"},
		"empty":                    {[]*pb.PushSkillRequest{pushed("", "")}, "entry.path"},
		"dot":                      {[]*pb.PushSkillRequest{pushed(".", "")}, "entry.path"},
		"slash at the end":         {[]*pb.PushSkillRequest{pushed("a/", "")}, "entry.path"},
		"empty component":          {[]*pb.PushSkillRequest{pushed("a//b", "")}, "entry.path"},
		"not UTF-8":                {[]*pb.PushSkillRequest{pushed("a\xff", "")}, "entry.path"},
		"long component":           {[]*pb.PushSkillRequest{pushed(strings.Repeat("a", 256), "")}, "entry.path"},
		"long path":                {[]*pb.PushSkillRequest{pushed(strings.Repeat("a/", 600)+"b", "")}, "entry.path"},
		"deep path":                {[]*pb.PushSkillRequest{pushed(strings.Repeat("a/", 64)+"b", "")}, "entry.path"},
		"twice":                    {[]*pb.PushSkillRequest{pushed("a", ""), pushed("a", "")}, "entry.path"},
		"twice, a link":            {[]*pb.PushSkillRequest{pushed("a", ""), pushedLink("a", "b")}, "entry.path"},
		"case":                     {[]*pb.PushSkillRequest{pushed("a", ""), pushed("A", "")}, "entry.path"},
		"case of a directory":      {[]*pb.PushSkillRequest{pushed("lib/a", ""), pushed("Lib/b", "")}, "entry.path"},
		"file as a directory":      {[]*pb.PushSkillRequest{pushed("a", ""), pushed("a/b", "")}, "entry.path"},
		"directory as a file":      {[]*pb.PushSkillRequest{pushed("a/b", ""), pushed("a", "")}, "entry.path"},
		"beneath a link":           {[]*pb.PushSkillRequest{pushedLink("a", "/etc"), pushed("a/passwd", "")}, "entry.path"},
		"link with data":           {[]*pb.PushSkillRequest{{Message: &pb.PushSkillRequest_Entry{Entry: &pb.PushSkillEntry{Path: "a", LinkTarget: "b", SizeBytes: 1}}}}, "entry.link_target"},
		"link to NUL":              {[]*pb.PushSkillRequest{pushedLink("a", "b\x00c")}, "entry.link_target"},
		"link that is too long":    {[]*pb.PushSkillRequest{pushedLink("a", strings.Repeat("b", 4096))}, "entry.link_target"},
		"more than announced":      {[]*pb.PushSkillRequest{pushed("a", "123456"), pushed("b", "12345")}, "entry.size_bytes"},
		"huge":                     {[]*pb.PushSkillRequest{{Message: &pb.PushSkillRequest_Entry{Entry: &pb.PushSkillEntry{Path: "a", SizeBytes: 1 << 63}}}}, "entry.size_bytes"},
		"longer than its size":     {[]*pb.PushSkillRequest{{Message: &pb.PushSkillRequest_Entry{Entry: &pb.PushSkillEntry{Path: "a", SizeBytes: 1, Data: []byte("ab")}}}}, "entry.data"},
		"later longer":             {[]*pb.PushSkillRequest{{Message: &pb.PushSkillRequest_Entry{Entry: &pb.PushSkillEntry{Path: "a", SizeBytes: 1}}}, pushedData("ab")}, "data"},
		"empty data":               {[]*pb.PushSkillRequest{{Message: &pb.PushSkillRequest_Entry{Entry: &pb.PushSkillEntry{Path: "a", SizeBytes: 1}}}, pushedData(""), pushedData("a")}, "data"},
		"data without a file":      {[]*pb.PushSkillRequest{pushed("a", "x"), pushedData("y")}, "data"},
		"next before the end":      {[]*pb.PushSkillRequest{{Message: &pb.PushSkillRequest_Entry{Entry: &pb.PushSkillEntry{Path: "a", SizeBytes: 2}}}, pushed("b", "")}, "entry"},
		"end before the end":       {[]*pb.PushSkillRequest{{Message: &pb.PushSkillRequest_Entry{Entry: &pb.PushSkillEntry{Path: "a", SizeBytes: 2}}}}, "data"},
		"a second header":          {[]*pb.PushSkillRequest{{Message: &pb.PushSkillRequest_Header{Header: &pb.PushSkillHeader{}}}}, "message"},
		"nothing":                  {[]*pb.PushSkillRequest{{}}, "message"},
		"too many, by directories": {[]*pb.PushSkillRequest{pushed(strings.Repeat("a/", 60)+"x", ""), pushed(strings.Repeat("b/", 60)+"x", "")}, "entry"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := receive(t, 10, tt.messages...)
			if e, ok := errors.AsType[*executor.RequestError](err); !ok || e.Field != tt.field {
				t.Errorf("got %v, want an error about %s", err, tt.field)
			}
		})
	}
}

// A link keeps its path and its target until the end of the push, and nothing else of its message.
func TestPushedLinksKeepNoMessage(t *testing.T) {
	f, err := newPushedFiles(t.TempDir(), 0, snapshot.Bounds{MaxFiles: 100})
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	const links = 50
	var entries []weak.Pointer[pb.PushSkillEntry]
	for i := range links {
		m := pushedLink(fmt.Sprint("link", i), "target")
		m.GetEntry().ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 99, protowire.BytesType), make([]byte, 1<<20)))
		if err := f.take(m); err != nil {
			t.Fatal(err)
		}
		entries = append(entries, weak.Make(m.GetEntry()))
	}
	runtime.GC()
	kept := 0
	for _, e := range entries {
		if e.Value() != nil {
			kept++
		}
	}
	if kept > 1 { // the stack may still have the last one
		t.Errorf("%d of %d messages are in memory", kept, links)
	}
	if len(f.links) != links {
		t.Errorf("got %d links, want %d", len(f.links), links)
	}
}

// Paths, directories and targets of links have a bound together, because all of them stay in memory during the push.
func TestPushedNamesAreBounded(t *testing.T) {
	bounds, folders := snapshot.Bounds{MaxFiles: 20_000}, strings.Repeat(strings.Repeat("d", 250)+"/", 3)
	for name, entry := range map[string]func(i int) *pb.PushSkillRequest{
		"targets": func(i int) *pb.PushSkillRequest { return pushedLink(fmt.Sprint(i), strings.Repeat("x", maxLinkTarget)) },
		"paths":   func(i int) *pb.PushSkillRequest { return pushedLink(folders+fmt.Sprintf("%0250d", i), "x") },
	} {
		t.Run(name, func(t *testing.T) {
			f, err := newPushedFiles(t.TempDir(), 0, bounds)
			if err != nil {
				t.Fatal(err)
			}
			defer f.close()
			for i := range bounds.MaxFiles {
				err := f.take(entry(i))
				if e, ok := errors.AsType[*executor.RequestError](err); ok && e.Field == "entry" && strings.Contains(err.Error(), "too many bytes together") {
					return
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			t.Error("the names have no bound")
		})
	}
}

// Whatever messages come, no file is written outside the directory, no more bytes than announced are
// on disk, and a push that is complete has exactly the entries that it sent.
func FuzzPushedFiles(f *testing.F) {
	seed := func(messages ...*pb.PushSkillRequest) {
		var all []byte
		for _, m := range messages {
			data, err := proto.Marshal(m)
			if err != nil {
				f.Fatal(err)
			}
			all = protowire.AppendBytes(all, data)
		}
		f.Add(all)
	}
	seed(pushed("SKILL.md", "x"), pushed("a/b", "yz"), pushedLink("c", "a/b"))
	seed(pushedLink("a", ".."), pushed("a/b", ""))
	seed(pushed("../x", ""))
	seed(&pb.PushSkillRequest{Message: &pb.PushSkillRequest_Entry{Entry: &pb.PushSkillEntry{Path: "a", SizeBytes: 3, Data: []byte("x")}}}, pushedData("yz"))
	const most = 64
	f.Fuzz(func(t *testing.T, data []byte) {
		parent := t.TempDir()
		dir := filepath.Join(parent, "skill")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		files, err := newPushedFiles(dir, most, snapshot.Bounds{MaxFiles: 20})
		if err != nil {
			t.Fatal(err)
		}
		defer files.close()
		sent := 0
		for len(data) > 0 && err == nil {
			one, n := protowire.ConsumeBytes(data)
			if n < 0 {
				break
			}
			data = data[n:]
			m := new(pb.PushSkillRequest)
			if proto.Unmarshal(one, m) != nil {
				return
			}
			if err = files.take(m); err == nil && m.GetEntry() != nil {
				sent++
			}
		}
		if err == nil {
			err = files.finish()
		}
		if ours, ok := errors.AsType[*executor.RequestError](err); err != nil && !ok {
			t.Fatalf("%v (%v)", err, ours)
		}
		onDisk, bytes := 0, int64(0)
		if walkErr := filepath.WalkDir(parent, func(p string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				onDisk++
				fi, err := d.Info()
				if err != nil {
					return err
				}
				if fi.Mode().IsRegular() {
					bytes += fi.Size()
				}
				if !strings.HasPrefix(p, dir+"/") {
					t.Errorf("%s is outside the folder", p)
				}
			}
			return err
		}); walkErr != nil {
			t.Fatal(walkErr)
		}
		if bytes > most || err == nil && onDisk != sent {
			t.Errorf("%d bytes, %d entries of %d", bytes, onDisk, sent)
		}
	})
}
