package mcp

import (
	"fmt"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/executor"
)

// listing returns the children of a directory as "name type".
func (c *client) listing(uri string) []string {
	c.t.Helper()
	var got []string
	for cursor := ""; ; {
		r := c.must(methodDirectory, map[string]any{"uri": uri, "cursor": cursor})
		if r["resultType"] != "complete" || r["resources"] == nil || r["ttlMs"] != float64(skillsTTL) || r["cacheScope"] != "private" {
			c.t.Errorf("%s: %v", uri, r)
		}
		for _, e := range r["resources"].([]any) {
			e := e.(map[string]any)
			got = append(got, fmt.Sprintf("%v %v %v", e["uri"], e["name"], e["mimeType"]))
		}
		if cursor, _ = r["nextCursor"].(string); cursor == "" {
			return got
		}
	}
}

// A directory is listed with its direct children, and its directories can be listed in turn.
func TestDirectories(t *testing.T) {
	inEveryWay(t, startIdle(t, nil), func(t *testing.T, d *daemon, c *client) {
		for uri, want := range map[string][]string{
			"skill://demo": {
				"skill://demo/SKILL.md demo text/markdown", "skill://demo/assets assets inode/directory",
				"skill://demo/references references inode/directory", "skill://demo/scripts scripts inode/directory",
			},
			"skill://demo/references": {"skill://demo/references/guide.md guide.md text/markdown"},
			"skill:///odd%20name":     {"skill:///odd%20name/SKILL.md odd name text/markdown"},
			"skill://hidden":          {"skill://hidden/SKILL.md hidden text/markdown"},
		} {
			if got := c.listing(uri); strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("%s: got\n%s\nwant\n%s", uri, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
		if got := strings.Join(c.listing("skill://demo/assets"), "\n"); !strings.Contains(got, "skill://demo/assets/"+executor.EscapePath(oddName)+" "+oddName+" text/plain") {
			t.Errorf("assets: %s", got)
		}
	})
}

// A large directory comes in pages, and an empty one is an empty list.
func TestDirectoryPages(t *testing.T) {
	d := startIdle(t, nil)
	for i := range 2*maxChildren + 1 {
		d.write(fmt.Sprintf("wide/data/%04d.txt", i), "x")
	}
	d.write("wide/SKILL.md", "---\nname: wide\ndescription: d\n---\n")
	d.write("wide/empty/__pycache__/x.pyc", "not part of a skill")
	d.reload()
	c := d.connect(t, "http", "")
	first := c.must(methodDirectory, map[string]any{"uri": "skill://wide/data"})
	if n := len(first["resources"].([]any)); n != maxChildren || first["nextCursor"] == nil {
		t.Errorf("%d children in a page, cursor %v", n, first["nextCursor"])
	}
	if got := c.listing("skill://wide/data"); len(got) != 2*maxChildren+1 {
		t.Errorf("%d children", len(got))
	}
	if got := c.listing("skill://wide/empty"); len(got) != 0 {
		t.Errorf("an empty directory has %v", got)
	}
	_, err := c.ask(methodDirectory, map[string]any{"uri": "skill://wide/data", "cursor": cursorAfter(methodList, "x")})
	refused(t, err, reasonCursor, "begin again without a cursor")
}

func TestDirectoriesThatAreNot(t *testing.T) {
	d := startIdle(t, nil)
	c := d.connect(t, "lines", "")
	for uri, reason := range map[string]string{
		"": reasonNoDirectory, "x": reasonNoDirectory, "skill://": reasonNoDirectory, "skill://demo/": reasonNoDirectory, "skill://demo/references/": reasonNoDirectory,
		"skill://demo/nope": reasonNoDirectory, "skill://demo?offset=0": reasonNoDirectory, "skill://demo/references?offset=0": reasonNoDirectory,
		"skill://demo/..": reasonNoDirectory, "skill://demo/references/..": reasonNoDirectory, "skill://demo/%2Fetc": reasonNoDirectory, "skill://demo/a%00b": reasonNoDirectory,
		"file:///etc": reasonNoDirectory, "skill://demo/" + strings.Repeat("a/", 4000) + "b": reasonNoDirectory,
		"skill://nope": reasonNoSkill, "skill://nope/scripts": reasonNoSkill, "skill://demo/SKILL.md": reasonNotDirectory, "skill://demo/SKILL.md/x": reasonNotDirectory,
	} {
		_, err := c.ask(methodDirectory, map[string]any{"uri": uri})
		refused(t, err, reason, "director")
	}
	_, err := c.ask(methodDirectory, nil)
	refused(t, err, reasonNoDirectory, "URI")
	if got := d.logs.String(); strings.Contains(got, "level=ERROR") {
		t.Errorf("logged: %s", got)
	}
}
