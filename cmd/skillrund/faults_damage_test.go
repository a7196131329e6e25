package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A damageFault damages a file of a dead daemon at a random place. The next daemon serves all the same. Each execution,
// session and pushed skill that the dead daemon had is unchanged, or the next daemon says that it is lost: to the caller,
// or in its log. None has another content.
type damageFault struct {
	name  string
	dir   string // in the state directory
	times int
}

var damageFaults = []damageFault{
	{"damaged database, journal or spool", "record", 12},
	{"damaged session", "sessions", 8},
	{"damaged snapshot of a skill", "snapshots", 6},
	{"damaged pushed skill", "tenants", 6},
}

// seedVar repeats the random damage of an earlier run.
const seedVar = "SKILLRUN_TEST_SEED"

func damageSeed(t *testing.T) uint64 {
	t.Helper()
	seed, err := strconv.ParseUint(os.Getenv(seedVar), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	fmt.Printf("%s: the seed is %d; %s=%[2]d repeats the damage\n", t.Name(), seed, seedVar)
	return seed
}

// bigPrograms also have a program whose output is too large for the database, so that it is in a file.
var bigPrograms = []faultProgram{
	faultPrograms[0],
	func() *pb.ExecuteRequest {
		return shell("hostile", `cat /proc/sys/kernel/random/uuid; head -c 100000 /dev/zero | tr '\0' x; echo x >made; echo; echo end`)
	},
}

const wholeText = "the content of a skill\n"

func (f damageFault) inject(t *testing.T, row *faultRow) {
	random := rand.New(rand.NewPCG(damageSeed(t), 8))
	dir := newDir(t)
	writeHostileSkill(t, dir)
	writeSkill(t, dir, "whole", "", map[string]string{"scripts/print.sh": "cat /skills/whole/data/text", "data/text": strings.Repeat(wholeText, 100)})
	d := startDaemonIn(t, dir, faultConfig)
	l := startLoadOf(t, d, bigPrograms)
	l.untilAnswers(60)
	l.end()
	l.verify(row)
	before := l.known()
	p := &pushing{secured: &secured{running: d}, about: pb.NewSkillServiceClient(d.conn)}
	for _, text := range []string{"first", "second"} {
		before.pushed = append(before.pushed, knownSkill{"pushed@" + p.mustPush(d.asTenant(t.Context(), "left", "admin"), "pushed", text), text})
	}
	before.pushed = append(before.pushed, knownSkill{"pushed", "second"})
	dead := d.doomed()
	d.kill() // an end would empty the journal
	for row.times < f.times {
		copied := newDir(t)
		if out, err := exec.Command("cp", "-a", dir+"/state", dir+"/skills", copied).CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		what := damage(t, random, filepath.Join(copied, "state", f.dir))
		row.times++
		d := startDaemonIn(t, copied, faultConfig)
		after := &faultLoad{programs: bigPrograms, round: fmt.Sprint(".", row.times), damaged: true}
		after.start(t, d)
		after.untilAnswers(12)
		for _, lost := range before.unlike(d, after.tenants) {
			row.lost++
			t.Errorf("after %s: %s\n%s", what, lost, d.complaints())
		}
		endLoad(t, d, after, row)
		if err := os.RemoveAll(copied); err != nil {
			t.Error(err)
		}
	}
	d = startDaemonIn(t, dir, faultConfig)
	row.left += d.leftOf(dead)
	d.stop()
}

// damage changes a random place of a random file beneath dir, and says what it did.
func damage(t *testing.T, random *rand.Rand, dir string) string {
	t.Helper()
	// Each kind of file has the same chance: there are many spools, and one database.
	kinds := map[string][]string{}
	var names []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		kind := kindOfFile(strings.Split(rel, "/"))
		if info, err := e.Info(); err != nil || info.Size() == 0 || kind == "artifacts" || kind == "ballast" || kind == "index" {
			// No caller of this test reads the artifacts, and the ballast has no content. A tenant whose index of pushed
			// skills is damaged has no answers (skill.TestChangedIndex).
			return err
		}
		if kinds[kind] == nil {
			names = append(names, kind)
		}
		kinds[kind] = append(kinds[kind], path)
		return nil
	})
	if err != nil || len(names) == 0 {
		t.Fatalf("files of %s: %v, %v", dir, names, err)
	}
	some := kinds[names[random.IntN(len(names))]]
	path := some[random.IntN(len(some))]
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at, size, what := random.IntN(len(data)), len(data), ""
	switch random.IntN(4) {
	case 0:
		what = "a changed bit"
		data[at] ^= 1 << random.IntN(8)
	case 1:
		what, at = "a sector of garbage", at&^511
		for i := range min(512, len(data)-at) {
			data[at+i] = byte(random.Uint32())
		}
	case 2:
		what, at = "a page of zeros", at&^4095
		clear(data[at:min(at+4096, len(data))])
	case 3:
		what = "a cut"
		data = data[:at]
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	rel, _ := filepath.Rel(dir, path)
	what = fmt.Sprintf("%s in %s at byte %d of %d", what, rel, at, size)
	t.Log(what)
	return what
}

// kindOfFile is the kind of a file of the record, the sessions or the snapshots.
func kindOfFile(path []string) string {
	switch {
	case len(path[0]) == 64: // snapshots/DIGEST/FILE
		return "file"
	case path[0] != "artifacts" && len(path) >= 3: // sessions/TENANT/ID/KIND
		return path[2]
	}
	return path[0] // record/KIND
}

// knowledge has the answers of a daemon to its callers.
type knowledge struct {
	executions map[string]*knownExecution
	sessions   []knownSession
	pushed     []knownSkill // of the first tenant
}

type knownExecution struct {
	op  *faultOp
	was *result
}

type knownSession struct{ id, log string }

type knownSkill struct{ ref, says string }

func (l *faultLoad) known() *knowledge {
	k := &knowledge{executions: map[string]*knownExecution{}}
	for _, op := range l.ops {
		if op.id != "" && k.executions[op.id] == nil {
			k.executions[op.id] = &knownExecution{op, l.read(op)}
		}
	}
	for _, u := range l.sessions {
		text, err := u.text(u.ctx, "log")
		if err != nil {
			l.t.Fatal(err)
		}
		k.sessions = append(k.sessions, knownSession{u.id, text})
	}
	return k
}

// unlike lists executions, sessions and pushed skills that differ from k, although the daemon does not report them as lost.
func (k *knowledge) unlike(d *running, tenants []context.Context) (lost []string) {
	complaints := d.complaints()
	for id, x := range k.executions {
		now, err := d.readAs(tenants[x.op.tenant], id)
		out := now.outcome
		switch {
		case status.Code(err) == codes.DataLoss:
		case status.Code(err) == codes.NotFound, err == nil && out.GetEnd() == pb.ExecutionEnd_EXECUTION_END_DAEMON_LOST:
			if !strings.Contains(complaints, "record:") {
				lost = append(lost, fmt.Sprintf("%s: got %v, %v, and the log does not say why", id, out, err))
			}
		case err != nil:
			lost = append(lost, fmt.Sprintf("%s: %v", id, err))
		case out.GetEnd() != x.was.outcome.GetEnd() || out.GetExitCode() != x.was.outcome.GetExitCode() || now.stdout.String() != x.was.stdout.String():
			lost = append(lost, fmt.Sprintf("%s: got %v with %q, want %v with %q", id, out, tail(now.stdout.String(), 200), x.was.outcome, tail(x.was.stdout.String(), 200)))
		}
	}
	sessions := pb.NewSessionServiceClient(d.conn)
	for i, s := range k.sessions {
		text, hash, err := sessionFileWithHash(tenants[i], sessions, s.id, "log")
		switch {
		case status.Code(err) == codes.DataLoss:
		case err == nil && sum([]byte(text)) != hash: // the caller notices it
		case err != nil || text != s.log:
			lost = append(lost, fmt.Sprintf("session %s: got %q, %v, want %q", s.id, text, err, s.log))
		}
	}
	for _, s := range k.pushed {
		text, err := d.printed(tenants[0], script(s.ref, "scripts/say.sh"))
		switch {
		case status.Code(err) == codes.DataLoss:
		case err != nil || text != s.says+"\n":
			lost = append(lost, fmt.Sprintf("skill %s: got %q, %v, want %q", s.ref, text, err, s.says))
		}
	}
	if text, err := d.printed(tenants[0], script("whole", "scripts/print.sh")); err != nil || text != strings.Repeat(wholeText, 100) {
		lost = append(lost, fmt.Sprintf("a script whose skill is still in its folder: got %q, %v", text, err))
	}
	return lost
}

// printed returns what a program prints.
func (d *running) printed(who context.Context, req *pb.ExecuteRequest) (string, error) {
	ctx, cancel := context.WithTimeout(who, patience)
	defer cancel()
	stream, err := d.runs.Execute(ctx, req)
	if err != nil {
		return "", err
	}
	r, err := collect(d.t, stream, 0, nil)
	if err != nil {
		return "", err
	}
	return r.stdout.String(), nil
}

// readAs returns all that a daemon knows of an execution.
func (d *running) readAs(who context.Context, id string) (*result, error) {
	ctx, cancel := context.WithTimeout(who, patience)
	defer cancel()
	stream, err := d.runs.AttachExecution(ctx, &pb.AttachExecutionRequest{ExecutionId: id})
	if err != nil {
		return &result{}, err
	}
	return collect(d.t, stream, 0, nil)
}

func sessionFileWithHash(who context.Context, sessions pb.SessionServiceClient, id, path string) (text, hash string, err error) {
	ctx, cancel := context.WithTimeout(who, patience)
	defer cancel()
	stream, err := sessions.GetSessionFile(ctx, &pb.GetSessionFileRequest{SessionId: id, Path: path})
	for err == nil {
		var r *pb.GetSessionFileResponse
		if r, err = stream.Recv(); err == nil {
			text += string(r.Data)
			if r.File != nil {
				hash = r.File.Sha256
			}
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return text, hash, err
}

// complaints returns the warnings and errors in the daemon's log.
func (d *running) complaints() string {
	var list []string
	for line := range strings.Lines(d.log.String()) {
		if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") {
			list = append(list, line)
		}
	}
	return strings.Join(list, "")
}
