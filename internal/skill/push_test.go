package skill

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skillrun/skillrun/internal/durable"
	"github.com/skillrun/skillrun/internal/scarcetest"
	"github.com/skillrun/skillrun/internal/skill/manifest"
)

// A tenantBench is a registry with one shared skill, demo, and tenants that push.
type tenantBench struct {
	t       *testing.T
	root    string
	state   string
	rules   Rules
	log     strings.Builder
	now     *Registry
	folders int
}

func newTenantBench(t *testing.T) *tenantBench {
	t.Helper()
	root, _ := skillDir(t, files{"which": "shared"})
	b := &tenantBench{t: t, root: root, state: t.TempDir()}
	b.restart()
	return b
}

// restart opens the registry again, as the next daemon does.
func (b *tenantBench) restart() {
	b.t.Helper()
	if b.now != nil {
		mustDo(b.t, b.now.Close())
	}
	b.now = open(b.t, RegistryConfig{
		Roots: Roots(b.root), Dir: filepath.Join(b.state, "snapshots"), TenantsDir: filepath.Join(b.state, "tenants"),
		Rules: func(string) Rules { return b.rules }, Reserved: []string{"reserved"}, Log: slog.New(slog.NewTextHandler(&b.log, nil)),
	})
}

func (b *tenantBench) try(tenant, name, text string, more files) (Pushed, error) {
	b.t.Helper()
	b.folders++
	parent := filepath.Join(b.state, fmt.Sprint("push-", b.folders))
	all := files{"f/SKILL.md": "---\nname: " + name + "\ndescription: Is pushed.\n---\n", "f/which": text}
	for p, text := range more {
		all["f/"+p] = text
	}
	all.Write(b.t, parent)
	return b.now.For(tenant).Push(b.t.Context(), Push{Parent: parent, Folder: "f"})
}

func (b *tenantBench) push(tenant, name, text string) Pushed {
	b.t.Helper()
	p, err := b.try(tenant, name, text, nil)
	mustDo(b.t, err)
	return p
}

// which returns the text of the file which in a skill, or the error's.
func (b *tenantBench) which(tenant, ref string) string {
	b.t.Helper()
	sk, err := b.now.For(tenant).Resolve(ref)
	if err != nil {
		return err.Error()
	}
	text, err := os.ReadFile(filepath.Join(sk.Dir, "which"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (b *tenantBench) want(tenant, ref, text string) {
	b.t.Helper()
	if got := b.which(tenant, ref); got != text {
		b.t.Errorf("%s of %s: got %q, want %q", ref, tenant, got, text)
	}
}

// snapshots returns the names in a tenant's store, without its two files.
func (b *tenantBench) snapshots(tenant string) (names []string) {
	b.t.Helper()
	all, err := os.ReadDir(filepath.Join(b.state, "tenants", tenant, "skills"))
	mustDo(b.t, err)
	for _, e := range all {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

func TestPushedSkillsArePrivate(t *testing.T) {
	b := newTenantBench(t)
	const missing = `"own": skill not found`
	b.push("a", "own", "of a")
	b.push("a", "demo", "demo of a")
	b.want("a", "own", "of a")
	b.want("a", "demo", "demo of a")
	b.want("b", "own", missing)
	b.want("b", "demo", "shared")
	b.want("", "own", missing)
	b.push("b", "own", "of b")
	b.want("a", "own", "of a")
	b.want("b", "own", "of b")
	digest := b.push("a", "own", "newer of a").Skill.Digest
	if got := b.which("b", "own@"+digest); !strings.Contains(got, "digest mismatch") {
		t.Errorf("b has a's version: %s", got)
	}
	var names []string
	for _, sk := range b.now.For("a").List() {
		names = append(names, sk.Name+" "+b.which("a", sk.Name))
	}
	if want := []string{"demo demo of a", "own newer of a"}; !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
	if _, err := b.now.Resolve("own"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a shared skill: %v", err)
	}
	if _, err := b.now.For("b").Delete(t.Context(), "demo"); !isNotPushed(err) {
		t.Errorf("b deletes a shared skill: %v", err)
	}
	// Names of tenants that would lead elsewhere have no skills.
	for _, tenant := range []string{"", ".", "..", "../a", "a/b"} {
		if _, err := b.try(tenant, "own", "x", nil); err == nil {
			t.Errorf("%q has pushed", tenant)
		}
	}
}

func isNotPushed(err error) bool { _, ok := errors.AsType[*NotPushedError](err); return ok }

func TestSharedSkillsAreFiltered(t *testing.T) {
	b := newTenantBench(t)
	b.rules.Shared = func(name string) bool { return name != "demo" }
	b.want("a", "demo", `"demo": skill not found`)
	if list := b.now.For("a").List(); len(list) > 0 {
		t.Errorf("got %v", list)
	}
	b.push("a", "demo", "own")
	b.want("a", "demo", "own")
}

func TestPinsFindEveryKeptVersion(t *testing.T) {
	b := newTenantBench(t)
	shared, err := b.now.Resolve("demo")
	mustDo(t, err)
	var digests []string
	for _, text := range []string{"one", "two", "three"} {
		digests = append(digests, b.push("a", "demo", text).Skill.Digest)
	}
	check := func() {
		t.Helper()
		for i, text := range []string{"one", "two", "three"} {
			b.want("a", "demo@"+digests[i], text)
		}
		b.want("a", "demo", "three")
		b.want("a", "demo@"+shared.Digest, "shared")
		if got := b.which("a", "demo@sha256:"+strings.Repeat("0", 64)); !strings.Contains(got, "digest mismatch: want") || !strings.Contains(got, "have "+digests[2]) {
			t.Errorf("got %s", got)
		}
	}
	check()
	b.restart()
	check()
	// A version that is pushed again becomes the newest.
	if p := b.push("a", "demo", "one"); !p.Existed || p.Skill.Digest != digests[0] {
		t.Errorf("got %+v", p)
	}
	b.want("a", "demo", "one")
	versions, err := b.now.For("a").Versions("demo")
	if err != nil || len(versions) != 3 || versions[0].Digest != digests[0] || versions[2].Digest != digests[1] || versions[0].Bytes == 0 || time.Since(versions[0].Pushed) < 0 {
		t.Errorf("got %+v, %v", versions, err)
	}
	if v, err := b.now.For("b").Versions("demo"); err != nil || len(v) != 1 || v[0].Digest != shared.Digest || !v[0].Pushed.IsZero() {
		t.Errorf("of b: %+v, %v", v, err)
	}
	if _, err := b.now.For("a").Delete(t.Context(), "demo@"+digests[0]); err != nil {
		t.Fatal(err)
	}
	b.want("a", "demo", "three")
	gone, err := b.now.For("a").Delete(t.Context(), "demo")
	if err != nil || len(gone) != 2 || len(b.snapshots("a")) != 0 {
		t.Errorf("got %v, %v, %v", gone, err, b.snapshots("a"))
	}
	b.want("a", "demo", "shared")
}

func TestHeldVersionStaysUntilItsEnd(t *testing.T) {
	b := newTenantBench(t)
	v := b.now.For("a")
	b.push("a", "own", "one")
	sk, release, err := v.Hold("own")
	mustDo(t, err)
	_, releaseToo, err := v.Hold("own")
	mustDo(t, err)
	_, err = v.Delete(t.Context(), "own")
	mustDo(t, err)
	b.want("a", "own", `"own": skill not found`)
	if _, err := os.ReadFile(filepath.Join(sk.Dir, "which")); err != nil {
		t.Errorf("the snapshot is gone: %v", err)
	}
	// A skill that is pushed again before the release stays after it.
	b.push("a", "own", "one")
	release()
	release() // twice is once
	releaseToo()
	b.want("a", "own", "one")
	sk, release, err = v.Hold("own")
	mustDo(t, err)
	_, err = v.Delete(t.Context(), "own")
	mustDo(t, err)
	release()
	b.now.owner("a").removal.Wait()
	if _, err := os.Stat(sk.Dir); !errors.Is(err, os.ErrNotExist) || len(b.snapshots("a")) != 0 {
		t.Errorf("after the last hold: %v, %v", err, b.snapshots("a"))
	}
	if _, _, err := sk.Open("which"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a file of a deleted skill: %v", err)
	}
}

// The use of the quotas of pushed skills counts kept versions, and deleted ones while an execution holds them.
func TestPushedUse(t *testing.T) {
	b := newTenantBench(t)
	use := func(tenant string, versions int, want int64) {
		t.Helper()
		if bytes, n := b.now.For(tenant).PushedUse(); n != versions || bytes != want {
			t.Errorf("%s: %d bytes and %d versions, want %d and %d", tenant, bytes, n, want, versions)
		}
	}
	use("a", 0, 0)
	each := b.push("a", "own", "1").Version.Bytes
	b.push("a", "own", "2")
	b.push("a", "other", "3")
	use("a", 2, 3*each)
	use("b", 0, 0)
	_, release, err := b.now.For("a").Hold("other")
	mustDo(t, err)
	_, err = b.now.For("a").Delete(t.Context(), "other")
	mustDo(t, err)
	use("a", 2, 3*each)
	release()
	b.restart()
	use("a", 2, 2*each)
}

func TestQuotasOfVersions(t *testing.T) {
	b := newTenantBench(t)
	b.rules.MaxVersions = 2
	first := b.push("a", "own", "1")
	b.push("a", "other", "other")
	b.push("a", "own", "2")
	_, release, err := b.now.For("a").Hold("own@" + first.Skill.Digest)
	mustDo(t, err)
	// The oldest one runs, and the other one is the newest until the push.
	third := b.push("a", "own", "3")
	if len(third.Removed) != 1 || third.Removed[0].Digest == first.Skill.Digest {
		t.Errorf("removed %v", third.Removed)
	}
	b.want("a", "own@"+first.Skill.Digest, "1")
	release()
	if p := b.push("a", "own", "4"); len(p.Removed) != 1 || p.Removed[0].Digest != first.Skill.Digest {
		t.Errorf("removed %v", p.Removed)
	}
	b.want("a", "other", "other")
	b.rules.MaxVersions = 1
	_, release, err = b.now.For("a").Hold("own")
	mustDo(t, err)
	defer release()
	_, err = b.try("a", "own", "5", nil)
	if e, ok := errors.AsType[*QuotaError](err); !ok || e.Limit != 1 || e.Quota != quotaVersions {
		t.Errorf("got %v", err)
	}
	b.want("a", "own", "4")
	b.want("b", "own", `"own": skill not found`)
}

func TestQuotaOfBytes(t *testing.T) {
	b := newTenantBench(t)
	one := b.push("a", "own", "1").Version.Bytes // two files and a directory
	if one != 3*diskBlock {
		t.Fatalf("got %d bytes", one)
	}
	b.rules.MaxBytes = 2 * one
	b.push("a", "own", "2")
	if p := b.push("a", "own", "3"); len(p.Removed) != 1 {
		t.Errorf("removed %v", p.Removed)
	}
	if p := b.push("a", "other", "x"); len(p.Removed) != 1 {
		t.Errorf("removed %v", p.Removed)
	}
	// Now both are the newest of their names.
	_, err := b.try("a", "third", "x", nil)
	if e, ok := errors.AsType[*QuotaError](err); !ok || e.Quota != quotaBytes || e.Limit != 2*one || e.Used != 2*one || e.Asked != one {
		t.Errorf("got %v", err)
	}
	if n := len(b.snapshots("a")); n != 2 {
		t.Errorf("%d snapshots after a refused push", n)
	}
	// A deleted version counts as long as it runs.
	_, release, err := b.now.For("a").Hold("own")
	mustDo(t, err)
	_, err = b.now.For("a").Delete(t.Context(), "own")
	mustDo(t, err)
	if _, err := b.try("a", "third", "x", nil); err == nil {
		t.Error("the quota forgot a version that runs")
	}
	release()
	b.now.owner("a").removal.Wait()
	b.push("a", "third", "x")
	b.push("b", "own", "y") // another tenant's quota
}

func TestPushRefuses(t *testing.T) {
	b := newTenantBench(t)
	for name, more := range map[string]files{
		"no manifest":         {"SKILL.md": ""},
		"a bad name":          {"SKILL.md": "---\nname: Not Good\ndescription: d\n---\n"},
		"a link out of it":    {"link": "-> /etc/passwd"},
		"a link to a sibling": {"link": "-> ../other"},
		"a loop":              {"link": "-> link"},
	} {
		if _, err := b.try("a", "own", "x", more); !isInvalid(err) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := b.try("a", "reserved", "x", nil); errors.As(err, new(*ReservedNameError)) == false {
		t.Errorf("a reserved name: %v", err)
	}
	if n := b.snapshots("a"); len(n) > 0 {
		t.Errorf("left: %v", n)
	}
	b.push("a", "own", "x")
	parent := filepath.Join(b.state, "named")
	files{"f/SKILL.md": minimal}.Write(t, parent)
	if _, err := b.now.For("a").Push(t.Context(), Push{Parent: parent, Folder: "f", Name: "other"}); !isInvalid(err) {
		t.Errorf("another name: %v", err)
	}
	b.rules.Source = func(host string) bool { return host == "good.example" }
	for source, ok := range map[string]bool{
		"https://good.example/x": true, "https://bad.example/x": false, "http://good.example/x": false, "good.example": false,
		"https://u:p@good.example/x": false, "https://good.example@bad.example/": false, "": true,
	} {
		if _, err := b.now.For("a").Push(t.Context(), Push{Parent: parent, Folder: "f", Source: source}); (err == nil) != ok {
			t.Errorf("source %q: %v", source, err)
		}
	}
}

// A skill that is larger than the whole quota is told so, before its files come and after: no deletion would help.
func TestPushLargerThanTheQuota(t *testing.T) {
	b := newTenantBench(t)
	one := b.push("a", "small", "x").Version.Bytes
	b.rules.MaxBytes = one - 1
	_, err := b.try("a", "large", "x", nil)
	for asked, err := range map[int64]error{one: err, 1 << 30: b.now.For("a").CheckPush("", 1<<30)} {
		want := fmt.Sprintf("quota of skill bytes: the skill alone needs %d, and the whole quota is %d; make the skill smaller, or ask the operator for more", asked, one-1)
		if e, ok := errors.AsType[*QuotaError](err); !ok || e.Error() != want {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// The message has each place once, so that skillrun push puts none in front of it.
func TestInvalidSkillError(t *testing.T) {
	finding := func(line int, message string) manifest.Finding {
		return manifest.Finding{File: "SKILL.md", Line: line, Message: message}
	}
	for want, list := range map[string][]manifest.Finding{
		"SKILL.md:5: a": {finding(5, "a")},
		"SKILL.md:5: a (and 4 more: SKILL.md:6, SKILL.md:7)": {finding(5, "a"), finding(5, "b"), finding(6, "c: d"), finding(7, "e"), finding(6, "f")},
		"SKILL.md:5: a (and 1 more)":                         {finding(5, "a"), finding(5, "b")},
	} {
		err := &InvalidSkillError{"demo", list}
		if got := err.Error(); got != "not a valid skill: "+want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func isInvalid(err error) bool { _, ok := errors.AsType[*InvalidSkillError](err); return ok }

// The next start removes the remains of a crash: a snapshot that the index does not list, and
// incomplete snapshots.
func TestCrashLeavesNoHalfPush(t *testing.T) {
	b := newTenantBench(t)
	kept := b.push("a", "own", "kept")
	lost := b.push("a", "own", "lost")
	// As if the daemon had been killed between the two steps of the second push.
	index := filepath.Join(b.state, "tenants/a/skills/index")
	before := b.now.owner("a").current()[:1]
	mustDo(t, b.now.owner("a").writeIndex(before))
	mustDo(t, os.MkdirAll(filepath.Join(b.state, "tenants/a/skills/new-1/half"), 0o700))
	mustDo(t, os.WriteFile(filepath.Join(filepath.Dir(index), ".new-1"), []byte("half"), 0o600))
	b.restart()
	b.want("a", "own", "kept")
	if got := b.which("a", "own@"+lost.Skill.Digest); !strings.Contains(got, "digest mismatch") {
		t.Errorf("got %s", got)
	}
	if got := b.snapshots("a"); !slices.Equal(got, []string{strings.TrimPrefix(kept.Skill.Digest, "sha256:")}) {
		t.Errorf("left: %v", got)
	}
}

// A tenant whose directory is damaged has no skills at all: a shared skill must not take the name of
// one that cannot be read.
func TestDamagedTenantFailsClosed(t *testing.T) {
	b := newTenantBench(t)
	sk := b.push("a", "demo", "own").Skill
	mustDo(t, os.WriteFile(filepath.Join(sk.Dir, "which"), []byte("changed"), 0o644))
	b.restart()
	if got := b.which("a", "demo"); !strings.Contains(got, "damaged") {
		t.Errorf("got %s", got)
	}
	b.push("a", "demo", "own") // repairs it
	b.want("a", "demo", "own")
	mustDo(t, os.WriteFile(filepath.Join(b.state, "tenants/a/skills/index"), []byte("{"), 0o600))
	b.restart()
	if got := b.which("a", "demo"); !strings.Contains(got, "is damaged: checksum differs") {
		t.Errorf("got %s", got)
	}
	if _, err := b.try("a", "demo", "new", nil); err == nil {
		t.Error("a push to a damaged directory")
	}
	b.want("b", "demo", "shared")
	if n := strings.Count(b.log.String(), "cannot be used"); n != 2 {
		t.Errorf("logged %d times:\n%s", n, b.log.String())
	}
}

// Each changed bit of the index is noticed, also in a name, where it makes other valid JSON. An index that seems to be
// empty would have the snapshots removed.
func TestChangedIndex(t *testing.T) {
	b := newTenantBench(t)
	sk := b.push("a", "demo", "own").Skill
	index := filepath.Join(b.state, "tenants/a/skills/index")
	whole, err := os.ReadFile(index)
	mustDo(t, err)
	for at := range whole {
		mustDo(t, os.WriteFile(index, slices.Concat(whole[:at], []byte{whole[at] ^ 1}, whole[at+1:]), 0o600))
		b.restart()
		if got := b.which("a", "demo"); !strings.Contains(got, "is damaged: checksum differs") {
			t.Errorf("a changed bit at %d of %q: got %s", at, whole, got)
		}
	}
	mustDo(t, os.WriteFile(index, whole, 0o600))
	b.restart()
	b.want("a", "demo@"+sk.Digest, "own")
}

// Without its index a store with snapshots is damaged: nothing is removed, and the skills are back with the index. A crash
// during the first push leaves an index.
func TestMissingIndex(t *testing.T) {
	b := newTenantBench(t)
	sk := b.push("a", "demo", "own").Skill
	index := filepath.Join(b.state, "tenants/a/skills/index")
	whole, err := os.ReadFile(index)
	mustDo(t, err)
	mustDo(t, os.Remove(index))
	b.restart()
	if got := b.which("a", "demo"); !strings.Contains(got, "is damaged: it is missing") {
		t.Errorf("got %s", got)
	}
	if _, err := b.try("a", "demo", "new", nil); err == nil {
		t.Error("a push without the index")
	}
	mustDo(t, os.WriteFile(index, whole, 0o600))
	b.restart()
	b.want("a", "demo@"+sk.Digest, "own")

	mustDo(t, os.MkdirAll(filepath.Join(b.state, "tenants/b/skills/new-1"), 0o700)) // a crash before the snapshot
	b.restart()
	b.push("b", "own", "1")
	b.want("b", "own", "1")
	b.push("c", "own", "1")
	mustDo(t, b.now.owner("c").writeIndex(nil)) // a crash before the second step of the first push
	b.restart()
	b.push("c", "own", "2")
	b.want("c", "own", "2")
}

// A tenant's skills that cannot be read for a moment are back afterwards, and not damaged.
func TestPushedSkillsThatCannotBeReadForAMoment(t *testing.T) {
	b := newTenantBench(t)
	b.push("a", "demo", "own")
	b.restart()
	fails := func(when string) {
		t.Helper()
		logged := strings.Count(b.log.String(), "cannot be used")
		scarcetest.WithoutDescriptors(t, func() {
			for range 2 {
				if _, err := b.now.For("a").Resolve("demo"); !durable.MayPass(err) {
					t.Errorf("%s: got %v, want the error of the system", when, err)
				}
			}
		})
		if n := strings.Count(b.log.String(), "cannot be used"); n != logged+1 {
			t.Errorf("%s: logged %d times", when, n-logged)
		}
	}
	fails("the index")
	if v, err := b.now.For("a").Versions("demo"); err != nil || len(v) != 1 {
		t.Errorf("the index, again: got %v, %v", v, err)
	}
	fails("the skill")
	b.want("a", "demo", "own")
}

func TestPushIsAChange(t *testing.T) {
	b := newTenantBench(t)
	for _, change := range []func(){
		func() { b.push("a", "own", "1") },
		func() { _, err := b.now.For("a").Delete(t.Context(), "own"); mustDo(t, err) },
	} {
		changed := b.now.Changed()
		change()
		select {
		case <-changed:
		default:
			t.Error("no notice of the change")
		}
	}
}

// The links of a venv to its interpreter lead out of the skill, and are on the disk all the same. So they count.
func TestInterpreterLinksCount(t *testing.T) {
	b := newTenantBench(t)
	parent := t.TempDir()
	all := files{"f/SKILL.md": "---\nname: own\ndescription: Is pushed.\n---\n"}
	const links = 1000
	for i := range links {
		all[fmt.Sprintf("f/venv/bin/python%d", i)] = "-> /usr/bin/python3"
	}
	all.Write(t, parent)
	b.rules.MaxBytes = 1 << 20
	_, err := b.now.For("a").Push(t.Context(), Push{Parent: parent, Folder: "f"})
	if e, ok := errors.AsType[*QuotaError](err); !ok || e.Quota != quotaBytes || e.Limit != 1<<20 {
		t.Errorf("got %v, want an error about the quota of bytes", err)
	}
	b.rules.MaxBytes = 0
	p, err := b.now.For("a").Push(t.Context(), Push{Parent: parent, Folder: "f"})
	mustDo(t, err)
	if want := int64(links+4) * diskBlock; p.Version.Bytes != want { // and SKILL.md with three directories
		t.Errorf("got %d bytes, want %d", p.Version.Bytes, want)
	}
}

// Executions use copies of a venv's programs, and links to the other entries of the venv. They count as the files of the
// skill do.
func TestCopiesOfAVenvCount(t *testing.T) {
	b := newTenantBench(t)
	parent := t.TempDir()
	files{
		"f/SKILL.md": "---\nname: own\ndescription: Is pushed.\n---\n", "f/venv/pyvenv.cfg": "version = 3.11.2\n",
		"f/venv/bin/python3": "-> /usr/bin/python3", "f/venv/bin/tool": strings.Repeat("x", 2*diskBlock), "f/venv/bin/sub/tool": "x",
		"f/venv/bin/large": strings.Repeat("x", MaxVenvProgram+1), "f/venv/lib/mine.py": "", "f/bin/tool": "x",
	}.Write(t, parent)
	p, err := b.now.For("a").Push(t.Context(), Push{Parent: parent, Folder: "f"})
	mustDo(t, err)
	const (
		directories = 6 // the skill, bin, venv, and venv's bin, bin/sub and lib
		small       = 6 // the files, without tool and large, and the link
		copies      = 4 // venv itself, and links to its three entries
	)
	want := DiskBytes(MaxVenvProgram+1) + 2*DiskBytes(2*diskBlock) + (directories+small+copies)*diskBlock
	if p.Version.Bytes != want {
		t.Errorf("got %d bytes, want %d", p.Version.Bytes, want)
	}
}

// PushedVenvs has the newest version of each skill with a virtual environment, of tenants that call only in a later
// process, too. It opens and loads nothing.
func TestPushedVenvs(t *testing.T) {
	b := newTenantBench(t)
	venv := files{"venv/pyvenv.cfg": "version = 3.11.2\n"}
	push := func(tenant, name, text string, more files) string {
		t.Helper()
		p, err := b.try(tenant, name, text, more)
		mustDo(t, err)
		return p.Skill.Digest
	}
	push("a", "plain", "1", nil)
	push("a", "with", "1", venv)
	push("a", "without", "1", venv)
	push("a", "without", "2", nil)
	want := map[string][]string{"a": {push("a", "with", "2", venv)}, "b": {push("b", "with", "1", venv)}}
	check := func(all bool, want map[string][]string) {
		t.Helper()
		got := map[string][]string{}
		for tenant, list := range b.now.PushedVenvs(all) {
			for _, v := range list {
				got[tenant] = append(got[tenant], v.Digest)
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("all %t: got %v, want %v", all, got, want)
		}
	}
	check(false, want)
	b.restart()
	check(false, map[string][]string{})
	check(true, want)
	if b.now.owner("b").opened.Load() {
		t.Error("the tenants' lists were opened")
	}
	b.want("b", "with", "1")
	check(false, map[string][]string{"b": want["b"]})
	if b.now.owner("a").opened.Load() {
		t.Error("the list of a tenant that made no call was opened")
	}
	b.rules.NoPush = true // the tenants are not configured any longer
	check(true, map[string][]string{})
}
