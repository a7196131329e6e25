package mcp

import (
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// A skill of a root with a namespace is served at skill://NAMESPACE/NAME. Its name is the last segment,
// and may be the name of another skill, too.
func TestSkillsOfANamespace(t *testing.T) {
	d := startIdle(t, nil)
	for _, name := range []string{"demo", "guide"} {
		d.write("../team/"+name+"/SKILL.md", "---\nname: "+name+"\ndescription: Of a team.\n---\n\nText.\n")
		d.write("../team/"+name+"/references/a.md", "A\n")
	}
	d.reload()
	inEveryWay(t, d, func(t *testing.T, d *daemon, c *client) {
		entries, _ := c.listAll()
		for uri, description := range map[string]string{
			"skill://demo/SKILL.md": "A skill to try things with.", "skill://team/demo/SKILL.md": "Of a team.", "skill://team/guide/SKILL.md": "Of a team.",
		} {
			if e := entries[uri]; e == nil || e["frontmatter"].(map[string]any)["description"] != description {
				t.Errorf("%s: %v", uri, e)
			}
		}
		entry := c.must(methodGet, map[string]any{"uri": "skill://team/guide/SKILL.md"})["skill"].(map[string]any)
		for i, want := range []string{"skill://team/guide/SKILL.md", "skill://team/guide/references/a.md"} {
			if got := entry["resources"].([]any)[i].(map[string]any)["uri"]; got != want {
				t.Errorf("file %d is at %v, want %s", i, got, want)
			}
		}
		got := strings.Join(c.listing("skill://team/guide"), "\n") + "\n" + strings.Join(c.listing("skill://team/guide/references"), "\n")
		if want := "skill://team/guide/SKILL.md guide text/markdown\nskill://team/guide/references references inode/directory\nskill://team/guide/references/a.md a.md text/markdown"; got != want {
			t.Errorf("directories: %s", got)
		}
		// A tool takes the name that list_skills shows, and the name alone.
		for _, uri := range []string{"skill://team/guide/references/a.md", "skill://guide/references/a.md"} {
			r, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri})
			if err != nil || r.Contents[0].Text != "A\n" {
				t.Errorf("%s: %v, %v", uri, r, err)
			}
		}
		// A skill has one identity.
		_, err := c.ask(methodGet, map[string]any{"uri": "skill://guide/SKILL.md"})
		refused(t, err, reasonNoSkill, "the skill team/guide is at skill://team/guide/SKILL.md")
		_, err = c.ask(methodDirectory, map[string]any{"uri": "skill://team"})
		refused(t, err, reasonNoDirectory, "No directory")
		_, err = c.ask(methodGet, map[string]any{"uri": "skill://team/nope/SKILL.md"})
		refused(t, err, reasonNoSkill, "skill not found")
	})
}

// A name that several skills have is an error that names them.
func TestNameOfSeveralSkills(t *testing.T) {
	d := startIdle(t, nil)
	d.write("../team/guide/SKILL.md", "---\nname: guide\ndescription: d\n---\n")
	d.write("../crew/guide/SKILL.md", "---\nname: guide\ndescription: d\n---\n")
	d.reload()
	c := d.connect(t, "http", "")
	for _, call := range []struct{ method, uri string }{{methodGet, "skill://guide/SKILL.md"}, {methodDirectory, "skill://guide"}} {
		_, err := c.ask(call.method, map[string]any{"uri": call.uri})
		refused(t, err, reasonNoSkill, "use one of crew/guide, team/guide")
	}
	if _, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "skill://guide/SKILL.md"}); err == nil || !strings.Contains(err.Error(), "use one of crew/guide, team/guide") {
		t.Errorf("resources/read: %v", err)
	}
	r, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "activate_skill", Arguments: map[string]any{"skill": "guide"}})
	if err != nil || !strings.Contains(r.Content[0].(*sdk.TextContent).Text, "use one of crew/guide, team/guide") {
		t.Errorf("activate_skill: %v, %v", r, err)
	}
}
