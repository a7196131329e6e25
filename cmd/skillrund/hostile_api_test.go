package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"

	"google.golang.org/genproto/googleapis/rpc/errdetails"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// items returns one list of a case's code. An item is a string, or {"$repeat": [s, n]} for s
// repeated n times.
func items(t *testing.T, c hostileCase, key string) []string {
	t.Helper()
	var code map[string]json.RawMessage
	if err := json.Unmarshal([]byte(c.Code), &code); err != nil {
		t.Fatal(err)
	}
	var raw []json.RawMessage
	if err := json.Unmarshal(code[key], &raw); err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, r := range raw {
		var s string
		var repeat struct {
			Of []json.RawMessage `json:"$repeat"`
		}
		switch {
		case json.Unmarshal(r, &s) == nil:
		case json.Unmarshal(r, &repeat) == nil && len(repeat.Of) == 2:
			var n int
			if json.Unmarshal(repeat.Of[0], &s) != nil || json.Unmarshal(repeat.Of[1], &n) != nil {
				t.Fatalf("%s", r)
			}
			s = strings.Repeat(s, n)
		default:
			t.Fatalf("%s of %s: %s", key, c.ID, r)
		}
		list = append(list, s)
	}
	if len(list) < 5 {
		t.Fatalf("%s: %d items", key, len(list))
	}
	return list
}

// wantCode checks the code of an error, not its text.
func wantCode(t testing.TB, what string, err error, want ...codes.Code) {
	t.Helper()
	if got := status.Code(err); !slices.Contains(want, got) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// works checks that the daemon still executes programs.
func (d *running) works() {
	d.t.Helper()
	d.run(code("hostile", "print('works')")).wantStdout(d.t, "works\n")
}

func hugeMessage(t *testing.T, d *running, _ hostileCase) {
	before := d.residentBytes()
	huge := &pb.ExecuteRequest{Skill: "hostile", Source: &pb.ExecuteRequest_Code{Code: &pb.InlineCode{Text: "#" + strings.Repeat("A", 64<<20)}}}
	_, err := d.try(huge)
	wantCode(t, "one of 64 MiB", err, codes.ResourceExhausted)
	d.works() // the connection survives
	var peak atomic.Int64
	var wg sync.WaitGroup
	for range 16 { // more would take too much memory of the test: the client makes a copy for each
		wg.Go(func() {
			_, err := d.try(huge)
			wantCode(t, "one of many", err, codes.ResourceExhausted)
			peak.Store(max(peak.Load(), d.residentBytes()))
		})
	}
	wg.Wait()
	if grown := peak.Load() - before; grown > 16<<20+heapSlack {
		t.Errorf("the daemon grew by %d MiB", grown>>20)
	}
	d.works()
}

func gzipBomb(t *testing.T, d *running, _ hostileCase) {
	var bomb bytes.Buffer
	w := gzip.NewWriter(&bomb)
	for range 256 {
		w.Write(make([]byte, 1<<20))
	}
	w.Close()
	before := d.residentBytes()
	for _, encoding := range []string{"gzip", "snappy-unknown", "deflate"} {
		h := dialH2(t, d)
		stream := h.request("/skillrun.v1.ExecutionService/Execute", "grpc-encoding", encoding)
		h.message(stream, 1, bomb.Bytes(), true)
		if got := h.status(stream); got != codes.Unimplemented {
			t.Errorf("%s: %v, want %v", encoding, got, codes.Unimplemented)
		}
	}
	// The compressed flag is set, but grpc-encoding is missing.
	h := dialH2(t, d)
	stream := h.request("/skillrun.v1.ExecutionService/Execute")
	h.message(stream, 1, bomb.Bytes(), true)
	if got := h.status(stream); got != codes.Internal && got != codes.Unimplemented {
		t.Errorf("without grpc-encoding: %v", got)
	}
	if grown := d.residentBytes() - before; grown > heapSlack {
		t.Errorf("the daemon grew by %d MiB", grown>>20)
	}
	d.works()
}

// pathTraversal has a daemon of its own: other cases add skills to the group's.
func pathTraversal(t *testing.T, _ *running, c hostileCase) {
	dir := newDir(t)
	writeHostileSkill(t, dir)
	d := startDaemonIn(t, dir, "")
	before := listTree(t, d.dir)
	for _, name := range items(t, c, "for_each_name") {
		req := code("hostile", "import os, sys\nfor top, _, files in os.walk('/workspace'):\n    for f in files: print(os.path.join(top, f))")
		req.Files = []*pb.InputFile{{Path: name, Source: &pb.InputFile_Content{Content: []byte("hostile input")}}}
		r, err := d.try(req)
		if err != nil {
			wantCode(t, fmt.Sprintf("file %q", name), err, codes.InvalidArgument)
		} else {
			r.wantExit(t, 0)
			if !slices.Contains(strings.Split(r.stdout.String(), "\n"), "/workspace/"+name) {
				t.Errorf("file %q was taken and is not there by that name: %q", name, r.stdout.String())
			}
		}
		// The same names in calls that read files.
		s, err := d.runs.GetArtifact(t.Context(), &pb.GetArtifactRequest{ExecutionId: cmp.Or(idOf(r), "none"), Path: name})
		if err == nil {
			_, err = s.Recv()
		}
		wantCode(t, fmt.Sprintf("artifact %q", name), err, codes.NotFound, codes.InvalidArgument)
		f, err := d.skills.ReadSkillFile(t.Context(), &pb.ReadSkillFileRequest{Skill: "hostile", Path: name})
		if err == nil {
			_, err = f.Recv()
		}
		wantCode(t, fmt.Sprintf("skill file %q", name), err, codes.NotFound, codes.InvalidArgument, codes.FailedPrecondition)
		_, err = d.try(script("hostile", name))
		wantCode(t, fmt.Sprintf("script %q", name), err, codes.NotFound, codes.InvalidArgument, codes.FailedPrecondition)
	}
	if after := listTree(t, d.dir); !slices.Equal(before, after) {
		t.Errorf("files on the host: %v, before %v", after, before)
	}
	for _, path := range []string{"/etc/cron.d/x", "/x", "/var/tmp/x", "/tmp/x"} {
		if data, err := os.ReadFile(path); err == nil && string(data) == "hostile input" {
			t.Errorf("%s was written", path)
		}
	}
}

func idOf(r *result) string {
	if r == nil {
		return ""
	}
	return r.id
}

// listTree lists a daemon's directory, without the directories that change with every
// execution.
func listTree(t *testing.T, dir string) []string {
	t.Helper()
	var list []string
	filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, path)
		if rel == "state/record" || rel == "state/staging" || rel == "run" || strings.HasPrefix(rel, "state/sandbox/") {
			return filepath.SkipDir
		}
		list = append(list, rel)
		return nil
	})
	return list
}

// rawCodec sends and receives messages as bytes.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error)      { return v.([]byte), nil }
func (rawCodec) Unmarshal(data []byte, v any) error { *v.(*[]byte) = data; return nil }
func (rawCodec) Name() string                       { return "proto" }

// raw sends the bytes of one request and returns the error of the call.
func (d *running) raw(ctx context.Context, method string, message []byte) error {
	s, err := d.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method, grpc.ForceCodec(rawCodec{}))
	if err != nil {
		return err
	}
	if err := s.SendMsg(message); err != nil && err != io.EOF {
		return err
	}
	if err := s.CloseSend(); err != nil {
		return err
	}
	for {
		var answer []byte
		if err := s.RecvMsg(&answer); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func nulAndUTF8(t *testing.T, d *running, _ hostileCase) {
	with := func(change func(*pb.ExecuteRequest)) *pb.ExecuteRequest {
		req := code("hostile", "print(1)")
		change(req)
		return req
	}
	for name, req := range map[string]*pb.ExecuteRequest{
		"argument":          with(func(r *pb.ExecuteRequest) { r.Args = []string{"a\x00b"} }),
		"code":              code("hostile", "print(1)\x00"),
		"command":           command("hostile", "echo a\x00b"),
		"env name":          with(func(r *pb.ExecuteRequest) { r.Env = map[string]string{"A\x00": "x"} }),
		"env value":         with(func(r *pb.ExecuteRequest) { r.Env = map[string]string{"A": "x\x00y"} }),
		"env name with =":   with(func(r *pb.ExecuteRequest) { r.Env = map[string]string{"A=B": "x"} }),
		"env without name":  with(func(r *pb.ExecuteRequest) { r.Env = map[string]string{"": "y"} }),
		"env with a blank":  with(func(r *pb.ExecuteRequest) { r.Env = map[string]string{"X Y": "z"} }),
		"secret env":        with(func(r *pb.ExecuteRequest) { r.SecretEnv = map[string]string{"A\x00": "x"} }),
		"working directory": with(func(r *pb.ExecuteRequest) { r.WorkingDirectory = "a\x00b" }),
		"file":              with(func(r *pb.ExecuteRequest) { r.Files = []*pb.InputFile{{Path: "a\x00b"}} }),
		"language":          with(func(r *pb.ExecuteRequest) { r.GetCode().Language = "python\x00" }),
	} {
		r, err := d.try(req)
		if err == nil && name == "code" && r.outcome.GetEnd() == pb.ExecutionEnd_EXECUTION_END_EXITED {
			continue // code may reach the program without being an argument
		}
		wantCode(t, name, err, codes.InvalidArgument, codes.FailedPrecondition, codes.PermissionDenied)
	}
	// A string that is not UTF-8, in every string of a request.
	fields := (&pb.ExecuteRequest{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.Kind() != protoreflect.StringKind || f.IsMap() {
			continue
		}
		m := protowire.AppendTag(nil, f.Number(), protowire.BytesType)
		err := d.raw(t.Context(), "/skillrun.v1.ExecutionService/Execute", protowire.AppendBytes(m, []byte("\xff\xfe")))
		wantCode(t, string(f.Name()), err, codes.InvalidArgument, codes.Internal)
	}
	r := d.run(shell("hostile", `printf '\xff\xfe'`))
	r.wantExit(t, 0)
	r.wantStdout(t, "\xff\xfe")
}

func envInjection(t *testing.T, d *running, c hostileCase) {
	for _, item := range items(t, c, "for_each") {
		name, value, _ := strings.Cut(item, "=")
		for what, req := range map[string]*pb.ExecuteRequest{"code": shell("hostile", "id -u"), "command": command("hostile", "id -u")} {
			for kind, set := range map[string]func(*pb.ExecuteRequest){
				"env":    func(r *pb.ExecuteRequest) { r.Env = map[string]string{name: value} },
				"secret": func(r *pb.ExecuteRequest) { r.SecretEnv = map[string]string{name: value} },
			} {
				asked := proto.Clone(req).(*pb.ExecuteRequest)
				asked.Env, asked.SecretEnv = nil, nil
				set(asked)
				r, err := d.try(asked)
				if err != nil {
					wantCode(t, what+" "+kind+" "+item, err, codes.InvalidArgument)
					continue
				}
				// An accepted variable must not change how the program runs.
				r.wantExit(t, 0)
				r.wantStdout(t, "1000\n")
				if r.stderr.Len() > 0 {
					t.Errorf("%s %s %s: stderr %q", what, kind, item, r.stderr.String())
				}
			}
		}
	}
	for _, word := range []string{"level=debug", "goroutine "} { // effects of libcontainer's log level and of GOTRACEBACK
		if strings.Contains(d.log.String(), word) {
			t.Errorf("the daemon's log has %q", word)
		}
	}
}

func cwdTricks(t *testing.T, d *running, c hostileCase) {
	dir := newDir(t)
	writeHostileSkill(t, dir)
	for link, target := range map[string]string{"link-to-root": "/", "link-up": "..", "link-proc": "/proc/self/fd/7"} {
		if err := os.Symlink(target, filepath.Join(dir, "skills/hostile", link)); err != nil {
			t.Fatal(err)
		}
	}
	own := startDaemonIn(t, dir, "")
	list := append(items(t, c, "for_each"), "link-to-root", "link-up", "link-proc", "..", "data/../..", "./", "data/.", "data//", "\n", "data/lock")
	for _, cwd := range list {
		for _, d := range []*running{d, own} {
			r, err := d.try(in(shell("hostile", "pwd -P; ls -d /etc/shadow 2>/dev/null"), cwd))
			switch {
			case err != nil:
				wantCode(t, fmt.Sprintf("%q", cwd), err, codes.InvalidArgument, codes.FailedPrecondition)
			case r.outcome.End == pb.ExecutionEnd_EXECUTION_END_SETUP_FAILED:
				if strings.HasPrefix(cwd, "/") {
					t.Errorf("%q: found out in the sandbox only", cwd)
				}
			case !strings.HasPrefix(r.stdout.String(), "/workspace"):
				t.Errorf("%q: ran in %q", cwd, r.stdout.String())
			}
		}
	}
}

func entrypointTricks(t *testing.T, d *running, c hostileCase) {
	exe := fmt.Sprintf("/proc/%d/exe", d.cmd.Process.Pid)
	before := fileSum(t, exe)
	for _, language := range items(t, c, "for_each") {
		req := code("hostile", "print(1)")
		req.GetCode().Language = language
		_, err := d.try(req)
		wantCode(t, fmt.Sprintf("language %q", language), err, codes.InvalidArgument, codes.FailedPrecondition)
	}
	d.addSkill("tricks", "allowed-tools: Bash", map[string]string{
		"scripts/self": "#!/proc/self/exe\n", "scripts/one": "#!/proc/1/exe\n", "scripts/fd": "#!/proc/self/fd/6\n", "scripts/dot": "#!../bin/sh\n",
		"scripts/loop": "#!/skills/tricks/scripts/loop\n", "scripts/env": "#!/usr/bin/env -S /proc/1/exe init\n", "scripts/long": "#!/" + strings.Repeat("a/", 4000) + "\n",
	})
	for _, path := range []string{"scripts/self", "scripts/one", "scripts/fd", "scripts/dot", "scripts/loop", "scripts/env", "scripts/long"} {
		r, err := d.try(script("tricks", path))
		if err != nil {
			wantCode(t, path, err, codes.InvalidArgument, codes.FailedPrecondition)
		} else if r.outcome.GetExitCode() == 0 && r.outcome.End == pb.ExecutionEnd_EXECUTION_END_EXITED {
			t.Errorf("%s ran: %q", path, r.stdout.String())
		}
	}
	for _, line := range []string{"/proc/self/exe", "/proc/1/exe --version", "/dev/fd/3", "/proc/self/fd/6"} {
		r, err := d.try(command("tricks", line))
		if err == nil && r.outcome.End == pb.ExecutionEnd_EXECUTION_END_EXITED && r.outcome.GetExitCode() == 0 {
			t.Errorf("%s ran: %q", line, r.stdout.String())
		}
	}
	if after := fileSum(t, exe); after != before {
		t.Error("the daemon's binary changed")
	}
}

func fileSum(t *testing.T, path string) [sha256.Size]byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(data)
}

// No call takes an archive. This tests the files that hostile archives leave if an
// operator unpacks them into a folder of skills.
func unpackedArchives(t *testing.T, _ *running, _ hostileCase) {
	dir := newDir(t)
	writeHostileSkill(t, dir)
	names := []string{"links", "devices", "hardlink", "setuid", "twins", "deep", "many", "big"}
	for _, name := range names {
		writeSkill(t, dir, name, "", map[string]string{"scripts/ok.sh": "echo " + name})
	}
	at := func(path string) string { return filepath.Join(dir, "skills", path) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Symlink("/tmp", at("links/d")))
	must(os.Symlink("/etc/passwd", at("links/x")))
	must(os.Symlink("../../hostile/SKILL.md", at("links/other")))
	must(os.Symlink("scripts", at("links/inside")))
	must(unix.Mkfifo(at("devices/fifo"), 0o666))
	must(unix.Mknod(at("devices/null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	must(unix.Mknod(at("devices/disk"), unix.S_IFBLK|0o666, int(unix.Mkdev(8, 0))))
	must(os.Chmod(at("setuid/scripts/ok.sh"), 0o755|os.ModeSetuid|os.ModeSetgid))
	for _, name := range []string{"é", "e\u0301", "A", "a", "..\\..\\w", "\xff"} {
		must(os.WriteFile(at("twins/"+name), []byte(name), 0o644))
	}
	must(os.MkdirAll(at("deep/"+strings.Repeat("a/", 1000)), 0o755))
	must(os.WriteFile(at("deep/"+strings.Repeat("a/", 1000)+"x"), nil, 0o644))
	for i := range 300 {
		must(os.WriteFile(at(fmt.Sprintf("many/%d", i)), nil, 0o644))
	}
	must(os.Truncate(at("big/scripts/ok.sh"), 1<<40)) // a sparse file of 1 TiB
	d := startDaemonIn(t, dir, "snapshots: {files: 200, bytes: 1MiB}\n")
	for name, path := range map[string]string{"links": "x", "devices": "null", "setuid": "scripts/ok.sh", "links ": "d/a", "links  ": "other", "devices ": "fifo"} {
		name = strings.TrimSpace(name)
		s, err := d.skills.ReadSkillFile(t.Context(), &pb.ReadSkillFileRequest{Skill: name, Path: path})
		if err == nil {
			_, err = s.Recv()
		}
		wantCode(t, name+"/"+path, err, codes.FailedPrecondition, codes.NotFound, codes.InvalidArgument)
	}
	for _, name := range names {
		r, err := d.try(shell(name, "cat d/hostname x other fifo disk 2>/dev/null; find / -xdev -perm /6000 2>/dev/null | grep -v ^/usr; echo end"))
		if err == nil {
			r.wantStdout(t, "end\n")
		}
		t.Logf("%s: %v", name, err)
	}
	for _, name := range []string{"many", "big"} {
		_, err := d.skills.GetSkill(t.Context(), &pb.GetSkillRequest{Skill: name})
		wantCode(t, name+" is past the bounds", err, codes.NotFound, codes.FailedPrecondition)
	}
	d.works()
}

func skillIDs(t *testing.T, d *running, c hostileCase) {
	ids := append(items(t, c, "for_each"), "..", ".", "hostile/../hostile", "hostile@", "hostile@sha256:", "hostile@sha256:../..", strings.Repeat("é", 64), "\xf0\x9f\x92\xa9\u0000")
	for _, id := range ids {
		what := fmt.Sprintf("%.40q", id)
		_, err := d.skills.GetSkill(t.Context(), &pb.GetSkillRequest{Skill: id})
		wantCode(t, "get "+what, err, codes.NotFound, codes.InvalidArgument)
		_, err = d.skills.ActivateSkill(t.Context(), &pb.ActivateSkillRequest{Skill: id})
		wantCode(t, "activate "+what, err, codes.NotFound, codes.InvalidArgument)
		if id != "" { // without a skill the request itself has the rules
			_, err = d.skills.CheckCommand(t.Context(), &pb.CheckCommandRequest{Skill: id, Command: "id"})
			wantCode(t, "check "+what, err, codes.NotFound, codes.InvalidArgument)
		}
		_, err = d.try(code(id, "print(1)"))
		wantCode(t, "execute "+what, err, codes.NotFound, codes.InvalidArgument)
		if len(status.Convert(err).Message()) > 4096 || !utf8.ValidString(status.Convert(err).Message()) {
			t.Errorf("%s: message %.100q of %d bytes", what, status.Convert(err).Message(), len(status.Convert(err).Message()))
		}
	}
	// The same names as folders: with all of them the daemon still serves the other skills.
	dir := newDir(t)
	writeHostileSkill(t, dir)
	for _, id := range ids {
		if id != "" && id != "." && id != ".." && len(id) < 256 && !strings.ContainsAny(id, "/\x00") {
			folder := filepath.Join(dir, "skills", id)
			if err := os.MkdirAll(folder, 0o755); err != nil {
				t.Fatal(err)
			}
			name, _ := json.Marshal(id)
			if err := os.WriteFile(filepath.Join(folder, "SKILL.md"), []byte("---\nname: "+string(name)+"\ndescription: x\n---\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	own := startDaemonIn(t, dir, "")
	if _, err := own.skills.ListSkills(t.Context(), &pb.ListSkillsRequest{}); err != nil {
		t.Errorf("list: %v", err)
	}
	own.works()
}

// slots configures a daemon with few slots, for which a flood competes.
const slots = "concurrency: {running: 2, queued: 8, queue_timeout: 60s}\n"

func streamFlood(t *testing.T, _ *running, _ hostileCase) {
	d := startHostile(t, slots)
	var ran, refused, other atomic.Int64
	var wg sync.WaitGroup
	for range 10 { // of connections
		conn, err := grpc.NewClient("unix://"+d.dir+"/s.sock", grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		for range 100 {
			wg.Go(func() {
				s, err := executionClient{pb.NewExecutionServiceClient(conn)}.Execute(t.Context(), code("hostile", "print(1)"))
				if err != nil {
					other.Add(1)
					t.Error(err)
					return
				}
				var r *result
				r, err = collect(t, s, 0, nil)
				switch {
				case err == nil && r.outcome.GetEnd() == pb.ExecutionEnd_EXECUTION_END_EXITED:
					ran.Add(1)
				case status.Code(err) == codes.ResourceExhausted:
					refused.Add(1)
					if !hasRetryInfo(err) {
						t.Errorf("refused without RetryInfo: %v", err)
					}
				default:
					other.Add(1)
					t.Errorf("%v, %v", err, r.outcome)
				}
			})
		}
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	most := d.sampleRunning(done)
	if most > 2 {
		t.Errorf("%d sandboxes at once, want at most 2", most)
	}
	if ran.Load() < 10 || refused.Load() == 0 || ran.Load()+refused.Load() != 1000 {
		t.Errorf("%d ran, %d were refused, %d else; want 1000 with at least 10 that ran, and some refused", ran.Load(), refused.Load(), other.Load())
	}
	// One connection opens more streams than it may have.
	h := dialH2(t, d)
	var over []uint32
	for range 150 {
		over = append(over, h.request("/skillrun.v1.ExecutionService/ExecuteInteractive"))
	}
	rejected := 0
	for _, s := range over[100:] {
		if h.reset(s) {
			rejected++
		}
	}
	if rejected == 0 {
		t.Error("a connection has more than 100 streams")
	}
	h.conn.Close()
	d.works() // every slot is free again
	d.wantNothingLeft()
}

func hasRetryInfo(err error) bool {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok && info.RetryDelay.AsDuration() > 0 {
			return true
		}
	}
	return false
}

// sampleRunning counts the sandboxes with a running program until done is closed, and
// returns the largest count.
func (d *running) sampleRunning(done <-chan struct{}) (most int) {
	group := d.pidsGroup()
	for {
		var found []*box
		entries, _ := os.ReadDir(group)
		for _, e := range entries {
			if !e.IsDir() {
				continue
			}
			b := &box{name: e.Name(), paths: []string{filepath.Join(group, e.Name())}}
			b.look()
			// The init of a sandbox gets another name when the sandbox is used.
			if b.sandbox() && b.init != "" && b.comm != waitingInit && b.comm != zygoteComm {
				found = append(found, b)
			}
		}
		// A sandbox may have ended before a later one was found. All sandboxes that still live
		// now existed at the same time.
		n := 0
		for _, b := range found {
			lives := func(pid string) bool {
				state := statusOf(pid)["State"]
				return state != "" && !strings.HasPrefix(state, "Z")
			}
			if slices.ContainsFunc(b.pids, lives) {
				n++
			}
		}
		most = max(most, n)
		select {
		case <-done:
			return most
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func cancelStorm(t *testing.T, _ *running, _ hostileCase) {
	d := startHostile(t, "concurrency: {running: 8, queued: 1000, queue_timeout: 60s}\n")
	d.works()
	before := d.held()
	const storms = 200
	ids := make(chan string, storms)
	var wg sync.WaitGroup
	for worker := range 8 {
		random := rand.New(rand.NewPCG(1, uint64(worker)))
		wg.Go(func() {
			for i := range storms / 8 {
				// Half of the executions are cancelled at a random time after the request, the
				// other half at a random time after the header.
				ctx, cancel := context.WithCancel(t.Context())
				patience := time.Duration(random.IntN(120_000)) * time.Microsecond
				if i%2 == 0 {
					time.AfterFunc(patience, cancel)
				}
				s, err := d.runs.Execute(ctx, code("hostile", "import time; time.sleep(30)"))
				if err == nil {
					var e *pb.ExecutionEvent
					if e, err = s.Recv(); err == nil {
						ids <- e.ExecutionId
						if i%2 != 0 {
							time.AfterFunc(patience, cancel)
						}
						<-ctx.Done()
					}
				}
				if err != nil && i%2 != 0 {
					t.Errorf("refused: %v", err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	close(ids)
	n := 0
	for id := range ids {
		n++
		r := d.attach(id, 0)
		if r.outcome.End != pb.ExecutionEnd_EXECUTION_END_CANCELLED {
			t.Errorf("%s: got %v, want CANCELLED", id, r.outcome)
		}
	}
	if n < storms/8/2*8 {
		t.Errorf("only %d of %d had begun before they were cancelled", n, storms)
	}
	// Executions whose client went before the header came may still be ending.
	untilNone(t, "not ended", func() (running []string) {
		list, err := d.runs.ListExecutions(t.Context(), &pb.ListExecutionsRequest{States: []pb.ExecutionState{pb.ExecutionState_EXECUTION_STATE_RUNNING, pb.ExecutionState_EXECUTION_STATE_QUEUED}})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list.Executions {
			running = append(running, e.String())
		}
		return running
	})
	d.wantNothingLeft()
	d.wantHeldAs(before)
	d.works()
}

// holdings counts the daemon's kernel resources, except the resources of waiting sandboxes.
// The files of its database are counted separately: under load the daemon opens more
// connections to the database and keeps them.
type holdings struct{ files, database, mounts, cgroups, threads int }

// mostDatabaseFiles is the number of files that the six connections of internal/record have
// open: each has the database and its log, and all share one index of the log. The check of synced writes has the
// database and the log once more.
const mostDatabaseFiles = 6*2 + 1 + 2

// filesOfWaiting is how many files the daemon has open for a waiting sandbox: a socket, a
// pidfd, four namespaces, the upper layer, three streams and the OOM notifier.
const filesOfWaiting = 11

// held counts at a moment when no sandbox is being made or destroyed: two counts in a row are equal. One count would
// not do, because the init of a sandbox has its name before the daemon has closed the files of its start.
func (d *running) held() (h holdings) {
	d.t.Helper()
	var last holdings
	await(func() bool {
		waiting := d.waitingBoxes()
		h = d.heldNow(waiting)
		now := h
		now.threads = 0 // Go's runtime starts threads at any time
		same := now == last
		last = now
		return same && h.cgroups == 0 && maps.Equal(d.waitingBoxes(), waiting)
	})
	return h
}

func (d *running) heldNow(waiting map[string]bool) holdings {
	d.t.Helper()
	proc := fmt.Sprintf("/proc/%d", d.cmd.Process.Pid)
	count := func(dir string) int {
		entries, err := os.ReadDir(dir)
		if err != nil {
			d.t.Fatal(err)
		}
		return len(entries)
	}
	all := d.descriptors()
	database := len(grep(strings.Join(all, "\n"), "/state/record/record.db"))
	mounts := 0
	for _, line := range d.mountLines() {
		if !waiting[d.sandboxOf(line)] {
			mounts++
		}
	}
	return holdings{
		files: len(all) - database - len(waiting)*filesOfWaiting, database: database,
		mounts: mounts, cgroups: len(usedBoxes(d.instance())), threads: count(proc + "/task"),
	}
}

// slack is how many files may come and go with connections and the workers of Go's runtime.
const slack = 8

// wantHeldAs waits until the daemon holds at most slightly more than before. It runs
// programs until then: libcontainer leaves files of failed starts open, and only the
// garbage collector, which needs allocations to run, closes them.
func (d *running) wantHeldAs(before holdings) {
	d.t.Helper()
	const programs = 10 // between two counts: on a busy machine one count takes a second
	var now holdings
	if !await(func() bool {
		for range programs {
			d.works()
		}
		now = d.held() // waits until the daemon has destroyed their sandboxes
		return now.files <= before.files+slack && now.database <= mostDatabaseFiles && now.mounts <= before.mounts && now.cgroups <= before.cgroups
	}) {
		d.t.Errorf("holds %+v, before %+v\nused: %v\n%s", now, before, usedBoxes(d.instance()), strings.Join(d.descriptors(), "\n"))
	}
}

func disconnect(t *testing.T, _ *running, _ hostileCase) {
	d := startHostile(t, "listen: {unix: s.sock, tcp: \"127.0.0.1:0\"}\n")
	var last net.Conn
	conn, err := grpc.NewClient(tcpAddress(t, d), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			last = c
			return c, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, mode := range []pb.OnDisconnect{pb.OnDisconnect_ON_DISCONNECT_CANCEL, pb.OnDisconnect_ON_DISCONNECT_CONTINUE} {
		req := shell("hostile", "echo ready; sleep 2; echo done")
		req.OnDisconnect, req.IdempotencyKey = mode, mode.String()
		if mode == pb.OnDisconnect_ON_DISCONNECT_CANCEL {
			req.GetCode().Text = "echo ready; sleep 30; echo done"
		}
		over := *d
		over.runs = executionClient{pb.NewExecutionServiceClient(conn)}
		ready, s := over.untilOutput(t.Context(), req)
		tcp := last.(*net.TCPConn)
		if err := tcp.SetLinger(0); err != nil { // so that close sends RST
			t.Fatal(err)
		}
		tcp.Close()
		for {
			if _, err := s.Recv(); err != nil {
				break
			}
		}
		r := d.attach(ready.ExecutionId, 0)
		if mode == pb.OnDisconnect_ON_DISCONNECT_CANCEL {
			if r.outcome.End != pb.ExecutionEnd_EXECUTION_END_CANCELLED || r.stdout.String() != "ready\n" {
				t.Errorf("cancel: ended as %v with %q", r.outcome, r.stdout.String())
			}
		} else {
			r.wantExit(t, 0)
			r.wantStdout(t, "ready\ndone\n")
		}
		// A request with the same idempotency key gets the same execution, not a second one.
		again := d.run(req)
		if again.id != r.id || !again.header.Deduplicated {
			t.Errorf("%v: ran again as %s, was %s", mode, again.id, r.id)
		}
	}
	d.wantNothingLeft()
}

func replay(t *testing.T, _ *running, _ hostileCase) {
	dir := newDir(t)
	writeHostileSkill(t, dir)
	d := startDaemonIn(t, dir, "")
	req := shell("hostile", "echo $RANDOM$RANDOM$RANDOM")
	req.IdempotencyKey = "r1"
	answers := make([]string, 50)
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() {
			if r, err := d.try(req); err != nil {
				t.Error(err)
			} else {
				answers[i] = r.id + " " + r.stdout.String()
			}
		})
	}
	wg.Wait()
	for i := range answers {
		if answers[i] != answers[0] {
			t.Errorf("answer %q, the first is %q", answers[i], answers[0])
		}
	}
	different := shell("hostile", "echo different")
	different.IdempotencyKey = "r1"
	_, err := d.try(different)
	wantStatus(t, err, "AlreadyExists", "IDEMPOTENCY_KEY_REUSED")
	d.kill()
	d = startDaemonIn(t, dir, "")
	if r := d.run(req); r.id+" "+r.stdout.String() != answers[0] {
		t.Errorf("after a restart %q, before %q", r.id+" "+r.stdout.String(), answers[0])
	}
	_, err = d.try(different)
	wantStatus(t, err, "AlreadyExists", "IDEMPOTENCY_KEY_REUSED")
	list, err := d.runs.ListExecutions(t.Context(), &pb.ListExecutionsRequest{})
	if err != nil || len(list.Executions) != 1 {
		t.Errorf("%v, %v; want one execution", list, err)
	}
}

func limitOverflow(t *testing.T, d *running, _ hostileCase) {
	for name, l := range map[string]*pb.ExecutionLimits{
		"memory -1":            {MemoryBytes: math.MaxUint64},
		"memory 1":             {MemoryBytes: 1},
		"memory max int64":     {MemoryBytes: math.MaxInt64},
		"memory max int64 + 1": {MemoryBytes: math.MaxInt64 + 1},
		"processes -1":         {Processes: math.MaxUint32},
		"processes max int32":  {Processes: math.MaxInt32},
		"wall 0":               {WallTime: &durationpb.Duration{}},
		"wall -1 s":            {WallTime: durationpb.New(-time.Second)},
		"wall -1 ns":           {WallTime: &durationpb.Duration{Nanos: -1}},
		"wall max":             {WallTime: &durationpb.Duration{Seconds: math.MaxInt64, Nanos: math.MaxInt32}},
		"wall mixed signs":     {WallTime: &durationpb.Duration{Seconds: 1, Nanos: -1}},
		"cpu -1 ns":            {CpuTime: &durationpb.Duration{Nanos: -1}},
		"cpu max":              {CpuTime: &durationpb.Duration{Seconds: 315_576_000_000}},
		"output -1":            {OutputBytes: math.MaxUint64},
		"files -1":             {WorkspaceFiles: math.MaxUint32},
		"workspace -1":         {WorkspaceBytes: math.MaxUint64},
		"open files -1":        {OpenFiles: math.MaxUint32},
		"open files 1":         {OpenFiles: 1},
		"processors -1":        {MilliCpus: math.MaxUint32},
		"processors 0.009":     {MilliCpus: 9},
	} {
		req := code("hostile", "print(1)")
		req.Limits = l
		_, err := d.try(req)
		wantCode(t, name, err, codes.InvalidArgument)
	}
	// Zero means "not set", never "no limit": the kernel has a finite limit for each.
	for name, l := range map[string]*pb.ExecutionLimits{"none": nil, "all zero": {}} {
		req := code("hostile", "print('held', flush=True); input()")
		req.Limits = l
		tr := &trial{TB: t, d: d, c: hostileCase{ID: name}}
		s, err := d.runs.ExecuteInteractive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Start{Start: req}}); err != nil {
			t.Fatal(err)
		}
		r, err := collect(t, s, 0, func(e *pb.ExecutionEvent) {
			if !bytes.Contains(e.GetOutput().GetData(), []byte("held")) {
				return
			}
			finiteLimits(t, d, e.ExecutionId)
			if err := s.Send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Stdin{Stdin: []byte("\n")}}); err != nil {
				t.Error(err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		tr.r = r
		r.wantExit(t, 0)
		if got := r.header.Limits; got.MemoryBytes == 0 || got.Processes == 0 || got.WallTime.AsDuration() <= 0 || got.OutputBytes == 0 || got.WorkspaceBytes == 0 || got.WorkspaceFiles == 0 || got.OpenFiles == 0 {
			t.Errorf("%s: echoed as %v", name, got)
		}
	}
}

// finiteLimits checks the limits in the cgroups of a running execution.
func finiteLimits(t *testing.T, d *running, id string) {
	t.Helper()
	found := 0
	var groups []string
	for _, b := range d.boxesOfExecution(id) {
		groups = append(groups, b.paths...)
	}
	for _, c := range groups {
		for _, file := range []string{"pids.max", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.max", "memory.swap.max"} {
			data, err := os.ReadFile(filepath.Join(c, file))
			if err != nil {
				continue
			}
			found++
			if s := strings.TrimSpace(string(data)); s == "max" || len(s) > 12 { // cgroup v1 writes "no limit" as a number near 2^63
				t.Errorf("%s %s is %s", c, file, s)
			}
		}
	}
	if found < 2 {
		t.Errorf("%d limits of %s found; the check looks in the wrong place", found, id)
	}
}

// methods returns the paths of all methods of the contract.
func methods(t *testing.T) []string {
	t.Helper()
	var all []string
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for j := range s.Methods().Len() {
				if m := s.Methods().Get(j); strings.HasPrefix(string(s.FullName()), "skillrun.v1.") {
					all = append(all, "/"+string(s.FullName())+"/"+string(m.Name()))
				}
			}
		}
		return true
	})
	if len(all) < 20 {
		t.Fatalf("only %d methods", len(all))
	}
	return all
}

func protoFuzz(t *testing.T, _ *running, _ hostileCase) {
	d := startHostile(t, "")
	good, err := proto.Marshal(code("hostile", "print(1)"))
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(3, 1))
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	send := func(what, method string, message []byte) {
		t.Helper()
		err := d.raw(ctx, method, message)
		if c := status.Code(err); c == codes.Unknown || c == codes.Unavailable || c == codes.DeadlineExceeded {
			t.Errorf("%s of %d bytes to %s: %v", what, len(message), method, err)
		}
	}
	nested := []byte{}
	for range 20_000 {
		nested = protowire.AppendBytes(protowire.AppendTag(nil, 9, protowire.BytesType), nested)
		if len(nested) > 1<<20 {
			break
		}
	}
	groups := append(bytes.Repeat([]byte{9<<3 | 3}, 20_000), bytes.Repeat([]byte{9<<3 | 4}, 20_000)...)
	unknown := protowire.AppendBytes(protowire.AppendTag(slices.Clone(good), 19_999, protowire.BytesType), make([]byte, 3<<20))
	bothArms := protowire.AppendString(protowire.AppendTag(slices.Clone(good), 2, protowire.BytesType), "data/lock")
	enum := protowire.AppendVarint(protowire.AppendTag(slices.Clone(good), 15, protowire.VarintType), math.MaxInt32)
	entry := protowire.AppendString(protowire.AppendTag(protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "K"), 2, protowire.BytesType), "v")
	twice := slices.Clone(good)
	for range 2 {
		twice = protowire.AppendBytes(protowire.AppendTag(twice, 10, protowire.BytesType), entry)
	}
	const execute = "/skillrun.v1.ExecutionService/Execute"
	for what, m := range map[string][]byte{"nested": nested, "groups": groups, "unknown fields": unknown, "both arms of a oneof": bothArms, "enum": enum, "map with a key twice": twice, "nothing": {}} {
		send(what, execute, m)
	}
	for _, m := range []string{"enum"} { // an undefined enum value
		if err := d.raw(ctx, execute, enum); err != nil {
			wantCode(t, m, err, codes.InvalidArgument)
		}
	}
	record, err := os.ReadDir(filepath.Join(d.dir, "state/record"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range record {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && e.Name() != "ballast" && info.Size() > 3<<20 {
			t.Errorf("%s has %d bytes: unknown fields are stored", e.Name(), info.Size())
		}
	}
	all := methods(t)
	slices.Sort(all) // in every run the same noise goes to the same method
	for range 1500 {
		m := make([]byte, random.IntN(64))
		if random.IntN(2) == 0 {
			m = slices.Clone(good)
		}
		for range random.IntN(4) + 1 {
			if len(m) > 0 {
				m[random.IntN(len(m))] = byte(random.Uint32())
			}
		}
		method := all[random.IntN(len(all))]
		if random.IntN(20) > 0 && strings.HasSuffix(method, "/Execute") {
			continue // most of these would run a program; a few are enough
		}
		send("noise", method, m)
	}
	if strings.Contains(d.log.String(), "msg=panic") {
		t.Error("a handler panicked")
	}
	d.works()
	d.wantNothingLeft()
}

func quotaRace(t *testing.T, _ *running, _ hostileCase) {
	d := startHostile(t, "concurrency: {running: 4, queued: 1000, queue_timeout: 60s}\n")
	var wg sync.WaitGroup
	var done atomic.Int64
	for i := range 60 {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			req := code("hostile", "import time; time.sleep(0.1)")
			switch i % 5 {
			case 0: // its start fails
				req.WorkingDirectory = "no/such"
			case 1: // cancelled
				time.AfterFunc(time.Duration(i)*5*time.Millisecond, cancel)
			}
			s, err := d.runs.Execute(ctx, req)
			if err != nil {
				return
			}
			if r, err := collect(t, s, 0, nil); err == nil && r.outcome != nil {
				done.Add(1)
			}
		})
	}
	finished := make(chan struct{})
	go func() { wg.Wait(); close(finished) }()
	// The daemon answers for a killed execution, and frees its slot, before the last thread
	// has left the cgroup, so one more than the limit may be visible for a moment.
	if most := d.sampleRunning(finished); most > 4 {
		t.Errorf("%d sandboxes at once, want at most 4", most)
	} else if most < 2 {
		t.Errorf("%d sandboxes at once: nothing raced", most)
	}
	if done.Load() < 40 {
		t.Errorf("%d of 60 came to an end", done.Load())
	}
	d.works()
	d.wantNothingLeft()
}

func skillSwap(t *testing.T, _ *running, _ hostileCase) {
	dir := newDir(t)
	writeHostileSkill(t, dir)
	body := func(v int) map[string]string {
		return map[string]string{"scripts/a.sh": fmt.Sprintf("echo %d; cat /skills/swap/data; cat data; sha256sum < /skills/swap/scripts/a.sh", v), "data": fmt.Sprintf("%d\n", v)}
	}
	writeSkill(t, dir, "swap", "version: 1.0.0", body(1))
	d := startDaemonIn(t, dir, "")
	digests := map[string]string{}
	var mu sync.Mutex
	ends := make(chan struct{}, 1)
	stop := make(chan struct{})
	var swapper sync.WaitGroup
	swapper.Go(func() {
		for v := 2; ; v++ {
			writeSkill(t, filepath.Join(dir, "next"), "swap", fmt.Sprintf("version: %d.0.0", v%2+1), body(v%2+1))
			// An atomic exchange, as installers of skills should do it.
			if err := unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, "next/skills/swap"), unix.AT_FDCWD, filepath.Join(dir, "skills/swap"), unix.RENAME_EXCHANGE); err != nil {
				t.Error(err)
				return
			}
			d.cmd.Process.Signal(unix.SIGHUP)
			select {
			case <-ends: // one swap for each execution: others are running
			case <-stop:
				return
			}
		}
	})
	var wg sync.WaitGroup
	both := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(digests) >= 2
	}
	deadline := time.Now().Add(patience)
	for range 4 {
		wg.Go(func() {
			for i := 0; i < 20 || !both() && time.Now().Before(deadline); i++ {
				r, err := d.try(script("swap", "scripts/a.sh"))
				if err != nil {
					t.Error(err)
					return
				}
				tell(ends)
				fields := strings.Fields(r.stdout.String())
				if len(fields) < 4 || fields[0] != fields[1] || fields[1] != fields[2] {
					t.Errorf("a mix: %q %q", r.stdout.String(), r.stderr.String())
					continue
				}
				mu.Lock()
				if was, ok := digests[r.outcome.SkillDigest]; ok && was != fields[0] {
					t.Errorf("digest %s printed %s and %s", r.outcome.SkillDigest, was, fields[0])
				}
				digests[r.outcome.SkillDigest] = fields[0]
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	close(stop)
	swapper.Wait()
	if len(digests) != 2 {
		t.Errorf("%d versions ran, want both", len(digests))
	}
	// The skill is deleted while an execution uses it.
	tr := hostileCase{Code: "echo held; read x; cat data", Lang: "bash", Limits: hostileLimits{WallMS: patience.Milliseconds()}.over(catalogueLimits)}
	req := tr.request()
	req.Skill = "swap"
	s, err := d.runs.ExecuteInteractive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Start{Start: req}}); err != nil {
		t.Fatal(err)
	}
	r, err := collect(t, s, 0, func(e *pb.ExecutionEvent) {
		if string(e.GetOutput().GetData()) != "held\n" {
			return
		}
		if err := os.RemoveAll(filepath.Join(dir, "skills/swap")); err != nil {
			t.Error(err)
		}
		d.cmd.Process.Signal(unix.SIGHUP)
		for {
			if _, err := d.skills.GetSkill(t.Context(), &pb.GetSkillRequest{Skill: "swap"}); status.Code(err) == codes.NotFound {
				break
			}
		}
		if err := s.Send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Stdin{Stdin: []byte("go\n")}}); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	r.wantExit(t, 0)
}

func errorAndLogHygiene(t *testing.T, d *running, _ hostileCase) {
	req := code("hostile", "x")
	req.GetCode().Language = "no-such"
	_, err := d.try(req)
	wantCode(t, "language", err, codes.InvalidArgument, codes.FailedPrecondition)
	for _, bad := range []error{err, func() error { _, err := d.try(script("hostile", "no/such.py")); return err }(), func() error { _, err := d.try(code("nobody", "x")); return err }()} {
		for _, word := range []string{d.dir, "/var/tmp", "/sys/fs", "goroutine", ".go:", "*executor.", "executor.", "skillrun-", "panic", "pid "} {
			if strings.Contains(status.Convert(bad).Message(), word) {
				t.Errorf("%q tells %q", status.Convert(bad).Message(), word)
			}
		}
	}
	forged := shell("hostile", `printf '\x1b]0;pwn\x07\nlevel=ERROR msg=forged\n{"level":"error","tenant":"B"}\n' >&2; cat >/dev/null; exit 3`)
	forged.SecretEnv = map[string]string{"TOKEN": "s3cret-of-env"}
	forged.Stdin = &pb.ExecuteRequest_StdinBytes{StdinBytes: []byte("s3cret-of-stdin")}
	forged.Args = []string{"s3cret-of-args"}
	forged.Labels = map[string]string{"a\nlevel=ERROR msg=forged": "b"}
	if _, err := d.try(forged); err != nil {
		forged.Labels = nil
		r := d.run(forged)
		r.wantExit(t, 3)
	}
	odd := script("hostile", "scripts/\nlevel=ERROR msg=forged\x1b[31m")
	_, err = d.try(odd)
	wantCode(t, "odd script", err, codes.NotFound, codes.InvalidArgument)
	log := d.log.String()
	if n := strings.Count(log, "msg=execution "); n == 0 {
		t.Fatal("the log has no execution; the check looks in the wrong place")
	}
	for line := range strings.Lines(log) {
		if strings.HasPrefix(line, "level=ERROR") || strings.HasPrefix(line, "{") || strings.ContainsAny(strings.TrimSuffix(line, "\n"), "\x1b\x07") {
			t.Errorf("the log has the line %q", line)
		}
	}
	if strings.Contains(log, "s3cret") {
		t.Error("the log has a secret")
	}
	err = filepath.WalkDir(filepath.Join(d.dir, "state"), func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return nil
		}
		data, _ := os.ReadFile(path)
		for _, secret := range []string{"s3cret-of-env", "s3cret-of-stdin"} {
			if bytes.Contains(data, []byte(secret)) {
				t.Errorf("%s has %s", path, secret)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// manyWindows is many times the number of bytes that the daemon sends to a client that reads
// nothing. A program that printed as much did not wait for its reader.
const manyWindows = 16 << 20

func slowReader(t *testing.T, d *running, _ hostileCase) {
	before := d.residentBytes()
	// The program prints more than output_bytes, and then waits for its deadline.
	req := wall(shell("hostile", "yes | head -c 80M; sleep 600"), 2*startsWithin)
	req.Limits.OutputBytes = 64 << 20
	req.OnDisconnect = pb.OnDisconnect_ON_DISCONNECT_CONTINUE
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, err := d.runs.Execute(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	first, err := s.Recv() // the client reads nothing after this
	if err != nil {
		t.Fatal(err)
	}
	// The execution ends although its client does not read.
	var o *pb.ExecutionOutcome
	until(t, "the execution does not end", func() bool {
		e, err := d.runs.GetExecution(t.Context(), &pb.GetExecutionRequest{ExecutionId: first.ExecutionId})
		if err != nil {
			t.Fatal(err)
		}
		o = e.Outcome
		return e.State == pb.ExecutionState_EXECUTION_STATE_ENDED
	})
	if o.End != pb.ExecutionEnd_EXECUTION_END_TIMED_OUT || o.Stdout.TotalBytes < manyWindows {
		t.Errorf("ended as %v", o)
	}
	if o.Stdout.TotalBytes != 80<<20 {
		t.Logf("only %d MiB of 80 were printed before the deadline", o.Stdout.TotalBytes>>20)
	}
	if grown := d.residentBytes() - before; grown > heapSlack {
		t.Errorf("the daemon grew by %d MiB", grown>>20)
	}
	tr := &trial{TB: t, d: d, id: first.ExecutionId}
	nothingRemains(tr)
}

func stdinFlood(t *testing.T, d *running, _ hostileCase) {
	before := d.residentBytes()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := d.runs.ExecuteInteractive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Start{Start: shell("hostile", "echo ready; sleep 3; echo done")}}); err != nil {
		t.Fatal(err)
	}
	var sent, most atomic.Int64
	flood := make(chan struct{})
	go func() {
		defer close(flood)
		chunk := make([]byte, 64<<10)
		for range 16 << 10 { // 1 GiB
			if s.Send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Stdin{Stdin: chunk}}) != nil {
				return
			}
			sent.Add(int64(len(chunk)))
			most.Store(max(most.Load(), d.residentBytes()))
		}
	}()
	r, err := collect(t, s, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.wantExit(t, 0)
	r.wantStdout(t, "ready\ndone\n")
	cancel()
	<-flood
	if n := sent.Load(); n > 64<<20 {
		t.Errorf("%d MiB were taken from a client by a daemon whose script reads nothing", n>>20)
	}
	if grown := most.Load() - before; grown > heapSlack {
		t.Errorf("the daemon grew by %d MiB", grown>>20)
	}
}

// manyResources names one file of a skill many times, while the daemon has few free descriptors.
func manyResources(t *testing.T, _ *running, _ hostileCase) {
	d := startHostile(t, "")
	d.works()
	before := d.held()
	var old unix.Rlimit
	if err := unix.Prlimit(d.cmd.Process.Pid, unix.RLIMIT_NOFILE, nil, &old); err != nil {
		t.Fatal(err)
	}
	few := unix.Rlimit{Cur: uint64(before.files + before.database + 128), Max: old.Max}
	if err := unix.Prlimit(d.cmd.Process.Pid, unix.RLIMIT_NOFILE, &few, nil); err != nil {
		t.Fatal(err)
	}
	req := code("hostile", "import os; print(len(os.listdir('/workspace/many')))")
	named := func(n int) *pb.ExecuteRequest {
		for i := len(req.Files); i < n; i++ {
			req.Files = append(req.Files, &pb.InputFile{Path: fmt.Sprint("many/", i), Source: &pb.InputFile_Uri{Uri: "skill://hostile/SKILL.md"}})
		}
		return req
	}
	d.run(named(1000)).wantStdout(t, "1000\n")
	_, err := d.try(named(20_000))
	wantCode(t, "20,000 files", err, codes.InvalidArgument)
	d.works()
	d.wantHeldAs(before)
}
