package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// wheelOf returns a wheel with one module and one program.
func wheelOf(name, version, module, requires string) []byte {
	info := name + "-" + version + ".dist-info/"
	files := []struct{ name, text string }{
		{name + ".py", module},
		{info + "METADATA", "Metadata-Version: 2.1\nName: " + name + "\nVersion: " + version + "\n" + requires},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{info + "entry_points.txt", "[console_scripts]\n" + name + "-say = " + name + ":say\n"},
	}
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	record := ""
	for _, f := range files {
		sum := sha256.Sum256([]byte(f.text))
		record += fmt.Sprintf("%s,sha256=%s,%d\n", f.name, base64.RawURLEncoding.EncodeToString(sum[:]), len(f.text))
		w, _ := z.Create(f.name)
		io.WriteString(w, f.text)
	}
	w, _ := z.Create(info + "RECORD")
	io.WriteString(w, record+info+"RECORD,,\n")
	z.Close()
	return out.Bytes()
}

// packageIndex serves skgreet and its dependency skbase on loopback. It requires
// credentials. Each request calls before first.
func packageIndex(t *testing.T, before func()) (url string) {
	t.Helper()
	s := httptest.NewServer(packages(func(*http.Request) { before() }))
	t.Cleanup(s.Close)
	return strings.Replace(s.URL, "http://", "http://me:s3cret@", 1) + "/simple/"
}

// packages is the handler of packageIndex.
func packages(before func(*http.Request)) http.Handler {
	wheels := map[string][]byte{
		"skgreet": wheelOf("skgreet", "1.0", "import skbase\ndef say():\n    print('hello from', skbase.NAME)\n", "Requires-Dist: skbase\n"),
		"skbase":  wheelOf("skbase", "2.0", "NAME = 'base'\ndef say():\n    print(NAME)\n", ""),
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		before(r)
		if _, password, _ := r.BasicAuth(); password != "s3cret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		name := path.Base(r.URL.Path)
		if project, _, ok := strings.Cut(name, "-"); ok && wheels[project] != nil {
			w.Write(wheels[project])
			return
		}
		if wheels[name] == nil {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		version := map[string]string{"skgreet": "1.0", "skbase": "2.0"}[name]
		sum := sha256.Sum256(wheels[name])
		fmt.Fprintf(w, `<a href="/files/%s-%s-py3-none-any.whl#sha256=%x">x</a>`, name, version, sum)
	})
}

const needsGreet = "python_packages: [skgreet]\nallowed-tools: Bash(python3:*) Bash(skgreet-say) Bash(echo:*)"

// errorInfo returns the ErrorInfo of a status: the reason, as "reason", and the metadata.
func errorInfo(err error) map[string]string {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			out := map[string]string{"reason": info.Reason}
			maps.Copy(out, info.Metadata)
			return out
		}
	}
	return nil
}

// A skill can't run without its packages. The refusal says how to prepare them, and after
// that the skill runs.
func TestEnvironmentEndToEnd(t *testing.T) {
	t.Parallel()
	index := packageIndex(t, func() {})
	for _, python := range []string{"system", "embedded"} {
		t.Run(python, func(t *testing.T) {
			dir := newDir(t)
			writeSkill(t, dir, "greet", needsGreet+"\npython: "+python, map[string]string{
				"scripts/greet.py": "import skgreet\nskgreet.say()\n",
				"scripts/sh.sh":    "python3 -c 'import skgreet; skgreet.say()'; skgreet-say\n",
				"scripts/plain.sh": "echo plain\n",
			})
			extra := "environments: {index: \"" + index + "\"}\n"
			d := startDaemonIn(t, dir, extra)
			sources := map[string]*pb.ExecuteRequest{
				"script": script("greet", "scripts/greet.py"), "code": code("greet", "import skgreet; skgreet.say()"),
				"command": command("greet", "python3 scripts/greet.py"), "one of two": command("greet", "echo | python3 scripts/greet.py"),
			}
			for name, req := range sources {
				_, err := d.try(req)
				info := errorInfo(err)
				if status.Code(err) != codes.FailedPrecondition || info["reason"] != "PACKAGES_MISSING" || info["fix"] != "skillrun prepare greet" || info["packages"] != "skgreet" {
					t.Errorf("%s: got %v, %v; want PACKAGES_MISSING", name, err, info)
				}
			}
			if got := d.run(script("greet", "scripts/plain.sh")).stdout.String(); got != "plain\n" {
				t.Errorf("without Python: got %q", got)
			}
			sk, err := d.skills.GetSkill(t.Context(), &pb.GetSkillRequest{Skill: "greet"})
			if err != nil || len(sk.Requirements) != 1 || sk.Requirements[0].Text != "skgreet" || sk.Requirements[0].Line != 4 {
				t.Errorf("got %v, %v; want the requirement", sk.GetRequirements(), err)
			}

			stdout, stderr, code := prepareBy(t, d, "greet")
			if code != 0 || !strings.Contains(stderr, "Successfully installed") || !strings.Contains(stdout, "greet: prepared for Python "+python+" 3.") || !strings.HasSuffix(stdout, "skbase==2.0\nskgreet==1.0\n") {
				t.Fatalf("prepare: got %d, %q, %q", code, stdout, stderr)
			}
			check := func(d *running) {
				t.Helper()
				for name, req := range sources {
					if r := d.run(req); r.stdout.String() != "hello from base\n" {
						t.Errorf("%s: got %q, %q", name, r.stdout.String(), r.stderr.String())
					}
				}
				if r := d.run(command("greet", "skgreet-say")); r.stdout.String() != "hello from base\n" {
					t.Errorf("program: got %q, %q", r.stdout.String(), r.stderr.String())
				}
				if r := d.run(script("greet", "scripts/sh.sh")); r.stdout.String() != "hello from base\nhello from base\n" {
					t.Errorf("from bash: got %q, %q", r.stdout.String(), r.stderr.String())
				}
			}
			check(d)
			d.stop()
			d = startDaemonIn(t, dir, extra) // prepared environments survive a restart
			check(d)
			if stdout, stderr, code := prepareBy(t, d, "greet"); code != 0 || stderr != "" || !strings.Contains(stdout, "was there already") {
				t.Errorf("again: got %d, %q, %q", code, stdout, stderr)
			}
			if strings.Contains(d.log.String()+stdout+stderr, "s3cret") {
				t.Error("the index's password is in a log")
			}
		})
	}
}

func prepareBy(t *testing.T, d *running, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := d.cli(append([]string{"prepare"}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	code = exitCode(t, cmd.Run())
	return out.String(), errs.String(), code
}

// If an environment can't be prepared, or a skill needs none, the message says why or what
// to do.
func TestEnvironmentCantBePrepared(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeSkill(t, dir, "greet", needsGreet, nil)
	writeSkill(t, dir, "none", "", map[string]string{"scripts/x.sh": "echo x\n"})
	writeSkill(t, dir, "tools", "system_packages: [skillrun-no-such-tool]", map[string]string{"scripts/x.sh": "echo x\n"})
	d := startDaemonIn(t, dir, "")
	if _, stderr, code := prepareBy(t, d, "greet"); code != 126 || !strings.Contains(stderr, "NO_PACKAGE_SOURCE") || !strings.Contains(stderr, "environments.index") {
		t.Errorf("no source: got %d, %q", code, stderr)
	}
	if stdout, _, code := prepareBy(t, d, "none"); code != 0 || stdout != "none: needs no packages\n" {
		t.Errorf("nothing to do: got %d, %q", code, stdout)
	}
	if _, stderr, code := prepareBy(t, d, "nowhere"); code != 127 {
		t.Errorf("no skill: got %d, %q", code, stderr)
	}
	_, err := d.try(script("tools", "scripts/x.sh"))
	if info := errorInfo(err); status.Code(err) != codes.FailedPrecondition || info["reason"] != "SYSTEM_PACKAGES_MISSING" || info["fix"] != "apt-get install skillrun-no-such-tool" {
		t.Errorf("system package: got %v, %v", err, info)
	}
	d.stop()
	d = startDaemonIn(t, dir, "environments: {index: \"http://127.0.0.1:1/simple/\"}\n")
	if _, stderr, code := prepareBy(t, d, "greet"); code != 125 || !strings.Contains(stderr, "PACKAGE_INDEX_UNAVAILABLE") {
		t.Errorf("no index there: got %d, %q", code, stderr)
	}
}

// After a daemon was killed during a build, the next daemon removes the incomplete build.
func TestEnvironmentAfterAKill(t *testing.T) {
	t.Parallel()
	asked, hold := make(chan struct{}, 16), make(chan struct{})
	held := true
	index := packageIndex(t, func() {
		if held {
			asked <- struct{}{}
			<-hold
		}
	})
	dir := newDir(t)
	writeSkill(t, dir, "greet", needsGreet, nil)
	extra := "environments: {index: \"" + index + "\"}\n"
	d := startDaemonIn(t, dir, extra)
	stream, err := d.skills.PrepareSkill(t.Context(), &pb.PrepareSkillRequest{Skill: "greet"})
	if err != nil {
		t.Fatal(err)
	}
	<-asked
	d.kill()
	held = false
	close(hold)
	for err == nil {
		_, err = stream.Recv()
	}
	if errors.Is(err, io.EOF) {
		t.Error("the build ended well")
	}
	if leftOver(t, dir) == 0 {
		t.Error("the killed daemon left nothing, so this test shows nothing")
	}
	d = startDaemonIn(t, dir, extra)
	until(t, "the remains are removed in the background", func() bool { return leftOver(t, dir) == 0 })
	if stdout, stderr, code := prepareBy(t, d, "greet"); code != 0 {
		t.Errorf("got %d, %q, %q", code, stdout, stderr)
	}
}

// A build that is under way in a takeover goes on, and its client gets the answer. The earlier daemon waits for it.
func TestBuildGoesOnInATakeover(t *testing.T) {
	t.Parallel()
	asked, hold := make(chan struct{}, 16), make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	defer release()
	index := packageIndex(t, func() {
		asked <- struct{}{}
		<-hold
	})
	dir := newDir(t)
	writeSkill(t, dir, "greet", needsGreet, nil)
	d := startDaemonIn(t, dir, "environments: {index: \""+index+"\"}\n")
	stream, err := d.skills.PrepareSkill(t.Context(), &pb.PrepareSkillRequest{Skill: "greet"})
	if err != nil {
		t.Fatal(err)
	}
	<-asked
	next := d.takeOver()
	until(t, "the earlier daemon waits for no build", func() bool {
		return strings.Contains(d.log.String(), "builds of packages go on here") || d.hasExited()
	})
	// Without the build, the earlier daemon would end after readerPatience. With it, the next one does not wait for that.
	next.run(code("calculator", "print(1)")).wantStdout(t, "1\n")
	release()
	for err == nil {
		_, err = stream.Recv()
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("the build ends with %v", err)
	}
	next.untilAlone(d)
	if stdout, stderr, code := prepareBy(t, next, "greet"); code != 0 || !strings.Contains(stdout+stderr, "was there already") {
		t.Errorf("got %d, %q, %q", code, stdout, stderr)
	}
}

// leftOver counts the entries in the directory of the environments. The daemon may remove some of them meanwhile.
func leftOver(t *testing.T, dir string) int {
	t.Helper()
	n := 0
	root := filepath.Join(dir, "state/environments")
	err := filepath.WalkDir(root, func(p string, _ fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case p != root:
			n++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
