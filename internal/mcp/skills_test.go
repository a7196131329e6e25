package mcp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/ingress"
	"github.com/skillrun/skillrun/internal/skill"
)

// An answer is the result of a method of the extension, in the form of the wire.
type answer struct {
	sdk.ResultBase
	fields map[string]any
}

func (a *answer) UnmarshalJSON(data []byte) error { return json.Unmarshal(data, &a.fields) }

type params struct {
	sdk.ParamsBase
	fields map[string]any
}

func (p *params) MarshalJSON() ([]byte, error) {
	all := maps.Clone(p.fields)
	if len(p.Meta) > 0 {
		all["_meta"] = p.Meta
	}
	return json.Marshal(all)
}

// ask calls a method of the extension.
func (c *client) ask(method string, fields map[string]any) (map[string]any, error) {
	if fields == nil {
		fields = map[string]any{}
	}
	r, err := sdk.CallCustomMethod[*params, *answer](c.t.Context(), c.ClientSession, method, &params{fields: fields})
	if err != nil {
		return nil, err
	}
	return r.fields, nil
}

// must is ask for a call that succeeds.
func (c *client) must(method string, fields map[string]any) map[string]any {
	c.t.Helper()
	r, err := c.ask(method, fields)
	if err != nil {
		c.t.Fatalf("%s %v: %v", method, fields, err)
	}
	return r
}

// listAll returns the entries of all pages of skills/list, by URI.
func (c *client) listAll() (entries map[string]map[string]any, pages int) {
	c.t.Helper()
	entries = map[string]map[string]any{}
	for cursor := ""; ; pages++ {
		r := c.must(methodList, map[string]any{"cursor": cursor})
		for _, e := range r["skills"].([]any) {
			entry := e.(map[string]any)
			if entries[entry["uri"].(string)] != nil {
				c.t.Errorf("%v is listed twice", entry["uri"])
			}
			entries[entry["uri"].(string)] = entry
		}
		if cursor, _ = r["nextCursor"].(string); cursor == "" {
			return entries, pages + 1
		}
	}
}

// refused checks the code of an error and that its data has a reason.
func refused(t *testing.T, err error, reason, text string) {
	t.Helper()
	wire := (*jsonrpc.Error)(nil)
	if !errors.As(err, &wire) || wire.Code != jsonrpc.CodeInvalidParams || !strings.Contains(wire.Message, text) {
		t.Errorf("got %v, want code %d and %q", err, jsonrpc.CodeInvalidParams, text)
		return
	}
	var data struct{ Reason string }
	if json.Unmarshal(wire.Data, &data) != nil || data.Reason != reason {
		t.Errorf("%v: data %s, want reason %s", err, wire.Data, reason)
	}
}

const richFrontMatter = `name: rich
description: >
  Does "things" with <data> &
  more.
license: Apache-2.0
version: 1.0
released: 2026-09-13
flags: [yes, true, ~, 010, 0x1f, 1e3, .5]
metadata:
  zeta: "1"
  alpha: two
x-deep: {zeta: [1, two], alpha: ~}
x-unknown: &a {k: v}
x-alias: *a
`

// An entry has the front matter of the file, verbatim and in the same order.
func TestSkillFrontMatterIsVerbatim(t *testing.T) {
	d := startIdle(t, nil)
	d.write("rich/SKILL.md", "---\n"+richFrontMatter+"---\n\nRich.\n")
	d.reload()
	var raw struct {
		Result struct {
			Skill struct{ FrontMatter json.RawMessage }
		}
	}
	p := d.pipe(t)
	p.send(`{"jsonrpc":"2.0","id":7,"method":"skills/get","params":{"uri":"skill://rich/SKILL.md"}}`)
	line, err := p.r.ReadBytes('\n')
	if err != nil || json.Unmarshal(line, &raw) != nil {
		t.Fatalf("%v: %s", err, line)
	}
	const want = `{"name":"rich","description":"Does \"things\" with <data> & more.\n","license":"Apache-2.0","version":1.0,"released":"2026-09-13",` +
		`"flags":["yes",true,null,10,31,1e3,0.5],"metadata":{"zeta":"1","alpha":"two"},"x-deep":{"zeta":[1,"two"],"alpha":null},"x-unknown":{"k":"v"},"x-alias":{"k":"v"}}`
	var got, wanted bytes.Buffer // with equal escapes
	if json.Compact(&got, raw.Result.Skill.FrontMatter) != nil {
		t.Fatalf("got %s", line)
	}
	json.HTMLEscape(&wanted, []byte(want))
	if text := strings.NewReplacer(`<`, `\u003c`, `>`, `\u003e`, `&`, `\u0026`).Replace(got.String()); text != wanted.String() {
		t.Errorf("got  %s\nwant %s", text, wanted.String())
	}
}

// The extension is declared with directoryRead, together with resources.
func TestSkillsExtensionIsDeclared(t *testing.T) {
	inEveryWay(t, startIdle(t, nil), func(t *testing.T, d *daemon, c *client) {
		caps := c.InitializeResult().Capabilities
		settings, _ := caps.Extensions[skillsExtension].(map[string]any)
		if len(settings) != 1 || settings["directoryRead"] != true {
			t.Errorf("extensions %v", caps.Extensions)
		}
		if caps.Resources == nil || !caps.Resources.ListChanged {
			t.Errorf("resources %+v", caps.Resources)
		}
	})
}

// skills/list and skills/get give the same complete entry, whose files can be read and have the
// digests and sizes of the entry.
func TestSkillEntries(t *testing.T) {
	d := startIdle(t, nil)
	d.write("demo/inner/SKILL.md", "---\nname: inner\ndescription: A skill in a skill.\n---\n\nInner.\n")
	for name, target := range map[string]string{"linked.md": "references/guide.md", "refs": "references", "references/up": "..", "out": "/etc/passwd"} {
		if err := os.Symlink(target, filepath.Join(d.dir, "skills/demo", name)); err != nil {
			t.Fatal(err)
		}
	}
	d.reload()
	inEveryWay(t, d, func(t *testing.T, d *daemon, c *client) {
		list := c.must(methodList, nil)
		if list["resultType"] != "complete" || list["cacheScope"] != "private" || list["ttlMs"] != float64(skillsTTL) || list["nextCursor"] != nil {
			t.Errorf("result %v", list)
		}
		entries, _ := c.listAll()
		// odd name breaks the grammar, hidden is hidden, and inner is a part of demo.
		if got := slices.Sorted(maps.Keys(entries)); len(got) != 1 || got[0] != "skill://demo/SKILL.md" {
			t.Errorf("listed: %v", got)
		}
		demo := entries["skill://demo/SKILL.md"]
		fm := demo["frontmatter"].(map[string]any)
		if fm["name"] != "demo" || fm["description"] != "A skill to try things with." || fm["allowed-tools"] != "Bash(echo:*), Bash(cat:*)" || len(fm) != 3 {
			t.Errorf("frontmatter %v", fm)
		}
		got := map[string]bool{}
		for _, e := range demo["resources"].([]any) {
			e := e.(map[string]any)
			uri := e["uri"].(string)
			if got[uri] || !strings.HasPrefix(uri, "skill://demo/") {
				t.Errorf("resource %s is twice there, or outside of the skill", uri)
			}
			got[uri] = true
			read := c.read(uri)
			data := []byte(read.Text)
			if read.Blob != nil {
				data = read.Blob
			}
			sum := sha256.Sum256(data)
			if e["digest"] != "sha256:"+hex.EncodeToString(sum[:]) || e["size"] != float64(len(data)) {
				t.Errorf("%s: entry %v, content of %d bytes with %x", uri, e, len(data), sum)
			}
		}
		want := []string{"skill://demo/inner/SKILL.md", "skill://demo/linked.md", "skill://demo/refs/guide.md"}
		for path := range skillFiles {
			if rest, ok := strings.CutPrefix(path, "demo/"); ok {
				want = append(want, "skill://demo/"+executor.EscapePath(rest))
			}
		}
		slices.Sort(want)
		if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, want) {
			t.Errorf("resources %v\nwant %v", names, want)
		}
		one := c.must(methodGet, map[string]any{"uri": "skill://demo/SKILL.md"})
		a, _ := json.Marshal(one["skill"])
		b, _ := json.Marshal(demo)
		if !bytes.Equal(a, b) || one["resultType"] != "complete" || one["cacheScope"] != "private" || one["ttlMs"] != float64(skillsTTL) || one["nextCursor"] != nil {
			t.Errorf("skills/get: %v\nskills/list has %s", one, b)
		}
	})
}

// The metadata has the scripts and the permitted commands, and says whether the packages are there.
func TestSkillMetadata(t *testing.T) {
	d := startIdle(t, nil)
	c := d.connect(t, "http", "")
	meta := c.must(methodGet, map[string]any{"uri": "skill://demo/SKILL.md"})["skill"].(map[string]any)["_meta"].(map[string]any)
	sk, err := d.skills.Resolve("demo")
	if err != nil {
		t.Fatal(err)
	}
	if meta[metaPrefix+"digest"] != sk.Digest || meta[metaPrefix+"prepared"] != true {
		t.Errorf("got %v", meta)
	}
	if got := fmt.Sprint(meta[metaPrefix+"commands"]); got != "[Bash(echo:*) Bash(cat:*)]" {
		t.Errorf("commands %s", got)
	}
	if got := fmt.Sprint(meta[metaPrefix+"scripts"]); !strings.Contains(got, "scripts/hello.py") || strings.Contains(got, "SKILL.md") {
		t.Errorf("scripts %s", got)
	}
	if len(meta) != 4 {
		t.Errorf("keys %v", meta)
	}
}

// A hidden skill is not listed, but skills/get answers for it.
func TestHiddenSkillsCanBeGot(t *testing.T) {
	c := startIdle(t, nil).connect(t, "lines", "")
	hidden := c.must(methodGet, map[string]any{"uri": "skill://hidden/SKILL.md"})["skill"].(map[string]any)
	if fm := hidden["frontmatter"].(map[string]any); fm["name"] != "hidden" || fm["disable-model-invocation"] != true {
		t.Errorf("got %v", hidden)
	}
}

// Skills that break the specification, or exceed the extension's limits, are in no listing.
// Everything else about them works.
func TestSkillsThatAreNotListed(t *testing.T) {
	d := startIdle(t, nil)
	for name, front := range map[string]string{
		"Upper": "name: Upper\ndescription: d", "two--hyphens": "name: two--hyphens\ndescription: d", "2024": "name: 2024\ndescription: d",
		"padded": "name: ' padded '\ndescription: d", "number": "name: number\ndescription: 7", "long": "name: long\ndescription: " + strings.Repeat("ä", 1025),
		"many": "name: many\ndescription: d", "large": "name: large\ndescription: d", "fits": "name: fits\ndescription: " + strings.Repeat("ä", 1024),
	} {
		d.write(name+"/SKILL.md", "---\n"+front+"\n---\n")
	}
	d.write("lower/skill.md", "---\nname: lower\ndescription: d\n---\n")
	for i := range skill.MaxListedFiles - 1 {
		d.write(fmt.Sprintf("fits/f/%d", i), "x")
		d.write(fmt.Sprintf("many/f/%d", i), "x")
	}
	d.write("many/f/one-more", "x")
	d.write("large/data", strings.Repeat("x", skill.MaxListedBytes))
	d.reload()
	c := d.connect(t, "http", "")
	listed, _ := c.listAll()
	if listed["skill://fits/SKILL.md"] == nil || len(listed["skill://fits/SKILL.md"]["resources"].([]any)) != skill.MaxListedFiles {
		t.Errorf("a skill at the limits is not listed: %v", slices.Sorted(maps.Keys(listed)))
	}
	for name, why := range map[string]string{
		"Upper": "lowercase", "two--hyphens": "single hyphens", "2024": "must be a text", "padded": "must be a text", "number": "description must be a text",
		"long": "1025 characters", "many": "more than 512 files", "large": "the maximum is 16777216", "odd name": "lowercase", "lower": "rename it to SKILL.md",
	} {
		uri := executor.SkillURI(name, "SKILL.md")
		if listed[uri] != nil {
			t.Errorf("%s is listed", uri)
		}
		_, err := c.ask(methodGet, map[string]any{"uri": uri})
		refused(t, err, reasonUnlisted, why)
		sk, err := d.skills.Resolve(name)
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := manifestOf(sk); !ok || c.read(executor.SkillURI(name, e.Path)).Text == "" {
			t.Errorf("%s cannot be read", name)
		}
	}
}

// A virtual environment has more files than an entry may have. Neither the entry nor the listing of
// the skill's directory has it. A folder with the name venv that is not a virtual environment is listed.
func TestVenvIsNotListed(t *testing.T) {
	d := startIdle(t, nil)
	for _, name := range []string{"venv", "plain"} {
		d.write(name+"/SKILL.md", "---\nname: "+name+"\ndescription: d\n---\n")
		d.write(name+"/scripts/a.py", "")
		d.write(name+"/venv/lib/x.py", "x")
	}
	d.write("venv/venv/pyvenv.cfg", "home = /usr/bin\nversion = 3.11.2\n")
	for i := range skill.MaxListedFiles {
		d.write(fmt.Sprintf("venv/venv/lib/%d.py", i), "x")
	}
	d.reload()
	c := d.connect(t, "http", "")
	listed, _ := c.listAll()
	for name, want := range map[string]string{"venv": "[SKILL.md scripts/a.py] [SKILL.md scripts]", "plain": "[SKILL.md scripts/a.py venv/lib/x.py] [SKILL.md scripts venv]"} {
		root := "skill://" + name
		var files, children []string
		for _, r := range listed[root+"/SKILL.md"]["resources"].([]any) {
			files = append(files, strings.TrimPrefix(r.(map[string]any)["uri"].(string), root+"/"))
		}
		for _, line := range c.listing(root) {
			uri, _, _ := strings.Cut(line, " ")
			children = append(children, strings.TrimPrefix(uri, root+"/"))
		}
		if got := fmt.Sprint(files, " ", children); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
	if got := c.read("skill://venv/venv/lib/x.py").Text; got != "x" {
		t.Errorf("a file of the venv: %q", got)
	}
}

// Listings come in pages that neither repeat nor lose an entry, also if skills change between two
// pages.
func TestSkillPages(t *testing.T) {
	d := startIdle(t, nil)
	for i := range 2*maxListedSkills + 1 {
		d.write(fmt.Sprintf("s%03d/SKILL.md", i), fmt.Sprintf("---\nname: s%03d\ndescription: d\n---\n", i))
	}
	d.reload()
	c := d.connect(t, "http", "")
	if listed, pages := c.listAll(); len(listed) != 2*maxListedSkills+2 || pages != 3 {
		t.Errorf("%d skills in %d pages", len(listed), pages)
	}
	first := c.must(methodList, nil)
	if n := len(first["skills"].([]any)); n != maxListedSkills {
		t.Errorf("%d entries in a page", n)
	}
	cursor := first["nextCursor"].(string)
	second := c.must(methodList, map[string]any{"cursor": cursor})["skills"].([]any)[0].(map[string]any)["uri"]
	if err := os.RemoveAll(filepath.Join(d.dir, "skills/s000")); err != nil {
		t.Fatal(err)
	}
	d.reload()
	if got := c.must(methodList, map[string]any{"cursor": cursor})["skills"].([]any)[0].(map[string]any)["uri"]; got != second {
		t.Errorf("after a change the page begins with %v, before with %v", got, second)
	}
	// Entries are bounded by their bytes, too. One that is larger than a page has its own.
	for i := range 3 {
		for k := range skill.MaxListedFiles - 1 {
			d.write(fmt.Sprintf("wide%d/%s/%s/%03d", i, strings.Repeat("d", 200), strings.Repeat("e", 200), k), "")
		}
		d.write(fmt.Sprintf("wide%d/SKILL.md", i), fmt.Sprintf("---\nname: wide%d\ndescription: d\n---\n", i))
	}
	d.reload()
	if _, pages := c.listAll(); pages != 5 {
		t.Errorf("%d pages", pages)
	}
	for _, cursor := range []string{"x", "!", cursorAfter(methodDirectory, "s001"), cursorAfter(methodList, ""), strings.Repeat("A", 9000)} {
		_, err := c.ask(methodList, map[string]any{"cursor": cursor})
		refused(t, err, reasonCursor, "begin again without a cursor")
	}
}

func TestSkillsThatAreNotServed(t *testing.T) {
	d := startIdle(t, nil)
	c := d.connect(t, "lines", "")
	for _, uri := range []string{
		"", "x", "skill://nope/SKILL.md", "skill://demo", "skill://demo/", "skill://demo/references/guide.md", "skill://demo/skill.md", "skill:///demo/SKILL.md",
		"skill://demo/SKILL.md?offset=0", "skill://d%65mo/SKILL.md", "https://demo/SKILL.md", "skill://demo/x/../SKILL.md", "skill://" + strings.Repeat("a", 5000) + "/SKILL.md",
	} {
		_, err := c.ask(methodGet, map[string]any{"uri": uri})
		refused(t, err, reasonNoSkill, "No skill is served at")
	}
	_, err := c.ask(methodGet, nil)
	refused(t, err, reasonNoSkill, "SKILL.md")
	_, err = c.ask(methodGet, map[string]any{"uri": "skill://demo/references/guide.md"})
	refused(t, err, reasonNoSkill, "skill://demo/SKILL.md")
	if got := d.logs.String(); strings.Contains(got, "level=ERROR") {
		t.Errorf("logged: %s", got)
	}
}

// A change of any file of a skill is notified, and the entry changes.
func TestSkillChangesAreNotified(t *testing.T) {
	for _, w := range ways {
		t.Run(w.transport+" "+w.version, func(t *testing.T) {
			d := startIdle(t, nil)
			c := d.connect(t, w.transport, w.version)
			before, _ := c.listAll()
			d.write("demo/references/new.md", "New.\n")
			d.reload()
			<-c.changed
			after, _ := c.listAll()
			old, now := before["skill://demo/SKILL.md"], after["skill://demo/SKILL.md"]
			if len(now["resources"].([]any)) != len(old["resources"].([]any))+1 || now["_meta"].(map[string]any)[metaPrefix+"digest"] == old["_meta"].(map[string]any)[metaPrefix+"digest"] {
				t.Errorf("before %v, after %v", old, now)
			}
		})
	}
}

// A whole file is held in the request memory until its answer is sent.
func TestWholeFilesAreHeld(t *testing.T) {
	var held, most, room atomic.Int64
	d := startIdle(t, func(c *Config) {
		c.Hold = func(_ *ingress.Conn, n int64) (func(), bool) {
			if n > room.Load() {
				return nil, false
			}
			held.Add(n)
			most.Store(max(most.Load(), n))
			return func() { held.Add(-n) }, true
		}
	})
	want := int64(len(skillFiles["demo/assets/big.txt"]))
	for _, transport := range []string{"http", "lines"} {
		room.Store(1 << 40)
		most.Store(0)
		c := d.connect(t, transport, "")
		c.read("skill://demo/assets/big.txt")
		if got := most.Load(); got != 2*want {
			t.Errorf("%s: held %d bytes at once, want %d", transport, got, 2*want)
		}
		room.Store(2*want - 1)
		_, err := c.ReadResource(context.Background(), &sdk.ReadResourceParams{URI: "skill://demo/assets/big.txt"})
		if err == nil || !strings.Contains(err.Error(), "request memory is full") && !strings.Contains(err.Error(), "Unavailable") {
			t.Errorf("%s: without room: %v", transport, err)
		}
		c.read("skill://demo/SKILL.md")
		c.read("skill://demo/assets/big.txt?offset=0")
		c.Close()
	}
	d.Stop(t.Context()) // returns when every answer is sent
	if n := held.Load(); n != 0 {
		t.Errorf("%d bytes are still held", n)
	}
}

// The resource of a SKILL.md is described by its frontmatter, without _meta.
func TestSkillManifestResource(t *testing.T) {
	d := startIdle(t, nil)
	d.write("rich/SKILL.md", "---\n"+richFrontMatter+"---\n\nRich.\n")
	d.reload()
	c := d.connect(t, "http", "")
	list, err := c.ListResources(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list.Resources, func(r *sdk.Resource) bool { return r.URI == "skill://rich/SKILL.md" })
	if i < 0 {
		t.Fatalf("got %v", list.Resources)
	}
	r := list.Resources[i]
	if r.Name != "rich" || r.MIMEType != "text/markdown" || r.Description != "Does \"things\" with <data> & more.\n" || len(r.Meta) != 0 {
		t.Errorf("got %+v", r)
	}
	if got := c.read(r.URI); got.MIMEType != "text/markdown" || len(got.Meta) != 0 {
		t.Errorf("read: %+v", got)
	}
}

// Keys of metadata that are reserved for MCP pass through and change nothing.
func TestReservedMetadataIsIgnored(t *testing.T) {
	d := startIdle(t, nil)
	d.write("claims/SKILL.md", "---\nname: claims\ndescription: d\nmetadata:\n  io.modelcontextprotocol/resources: dynamic\n---\n")
	d.reload()
	e := d.connect(t, "http", "").must(methodGet, map[string]any{"uri": "skill://claims/SKILL.md"})["skill"].(map[string]any)
	metadata := e["frontmatter"].(map[string]any)["metadata"].(map[string]any)
	if list, ok := e["resources"].([]any); !ok || len(list) != 1 || metadata["io.modelcontextprotocol/resources"] != "dynamic" {
		t.Errorf("got %v", e)
	}
}

// A read that fails for a reason of the daemon's is an internal error, explained by Explain.
func TestReadErrorsOfOurs(t *testing.T) {
	d := startIdle(t, nil)
	sk, err := d.skills.Resolve("demo")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(sk.Dir, "references/guide.md")); err != nil {
		t.Fatal(err)
	}
	_, err = d.connect(t, "lines", "").ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "skill://demo/references/guide.md"})
	if wire := (*jsonrpc.Error)(nil); !errors.As(err, &wire) || wire.Code != jsonrpc.CodeInternalError || !strings.Contains(wire.Message, "explained: ") {
		t.Errorf("got %v", err)
	}
}
