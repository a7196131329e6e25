package mcp

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skillrun/skillrun/internal/ingress/identity"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/toolview"
)

// endingTools tells of the ends of conversations.
type endingTools struct {
	*toolview.View
	ended chan permission.Principal
}

func (e endingTools) EndConversation(who permission.Principal, f *toolview.Conversation) {
	e.View.EndConversation(who, f)
	e.ended <- who
}

// startFiles starts a daemon whose conversations have sessions of files.
func startFiles(t *testing.T, edit func(*Config)) (*daemon, chan permission.Principal) {
	t.Helper()
	ended := make(chan permission.Principal, 100)
	d := startDaemon(t, func(c *Config) {
		c.Tools = endingTools{toolview.New(toolview.Config{Executor: c.Executor, Skills: c.Skills, SessionIdle: time.Hour, Log: c.Log}), ended}
		if edit != nil {
			edit(c)
		}
	})
	return d, ended
}

// usage returns the number of alice's sessions.
func (d *daemon) usage() int {
	n, _ := d.x.Sessions.Usage(alice.Tenant)
	return n
}

// What one call of a conversation writes is there in the next, in every version and transport. Where
// requests stand alone, the client names the session. Results link to the files of the session.
func TestConversationsHaveFiles(t *testing.T) {
	d, _ := startFiles(t, nil)
	for _, w := range ways {
		t.Run(w.transport+" "+w.version, func(t *testing.T) {
			before := d.usage()
			c := d.connect(t, w.transport, w.version)
			if r := c.call("list_files", nil); r.IsError || d.usage() != before {
				t.Errorf("list_files has made a session: %s", r.text)
			}
			alone := w.transport == "http" && w.version == ""
			made := c.call("write_file", map[string]any{"path": "in.csv", "text": "a,b\n"})
			id, _ := made.structured["session"].(string)
			uri := "session://" + id + "/out.csv"
			arguments := map[string]any{"skill": "demo", "command": "cat in.csv in.csv > out.csv"}
			if r := c.call("bash", arguments); r.IsError != alone {
				t.Errorf("without the id: %s", r.text)
			}
			if alone {
				arguments["session"] = id
				c.call("bash", arguments)
			}
			if got := c.read(uri); got.Text != "a,b\na,b\n" || got.MIMEType != "text/csv" {
				t.Errorf("%s: %+v", uri, got)
			}
			arguments["command"] = "echo 1 > out.csv"
			r := c.call("bash", arguments)
			if link := r.links["out.csv"]; r.IsError || (link == nil) != (w.version != "" && w.version < linkVersion) || link != nil && (link.URI != uri || *link.Size != 2) ||
				link == nil && !strings.Contains(r.text, "\n"+uri+" (out.csv)\n") {
				t.Errorf("links: %v, %s", r.links, r.text)
			}
			if got := c.read(uri + "?offset=1"); got.Text != "\n" {
				t.Errorf("the end of it: %+v", got)
			}
			if d.usage() != before+1 {
				t.Errorf("%d sessions, want %d", d.usage(), before+1)
			}
		})
	}
}

// Calls without files make no session that stays. A session with files stays after its conversation, and
// its id is enough to go on in another one.
func TestConversationsEnd(t *testing.T) {
	d, ended := startFiles(t, nil)
	for _, w := range []struct{ transport, version string }{{"http", "2025-11-25"}, {"lines", ""}} {
		before := d.usage()
		c := d.connect(t, w.transport, w.version)
		if r := c.call("bash", map[string]any{"skill": "demo", "command": "echo 1"}); r.IsError || d.usage() != before+1 {
			t.Fatalf("%d sessions: %s", d.usage(), r.text)
		}
		c.Close()
		if who := <-ended; who != alice || d.usage() != before {
			t.Errorf("%s: %d sessions after the end, want %d", w.transport, d.usage(), before)
		}
		c = d.connect(t, w.transport, w.version)
		id, _ := c.call("write_file", map[string]any{"path": "a.txt", "text": "kept"}).structured["session"].(string)
		c.Close()
		<-ended
		c = d.connect(t, w.transport, w.version)
		if r := c.call("read_file", map[string]any{"path": "a.txt"}); !r.IsError {
			t.Errorf("another conversation has the file: %s", r.text)
		}
		if r := c.call("read_file", map[string]any{"path": "a.txt", "session": id}); r.text != "kept" {
			t.Errorf("by its id: %s", r.text)
		}
	}
}

// For another tenant neither a session nor its files exist. A reader reads files and writes none.
func TestFilesOfOthers(t *testing.T) {
	d, _ := startFiles(t, func(c *Config) {
		identify := c.Identify
		c.Identify = func(from identity.Credentials) (identity.Identity, error) {
			who, err := identify(from)
			if who.Name == "reader" {
				who.Role = identity.Read
			}
			return who, err
		}
	})
	made := d.connect(t, "lines", "").call("write_file", map[string]any{"path": "a.txt", "text": "mine"})
	id, _ := made.structured["session"].(string)
	uri, _ := made.structured["uri"].(string)
	if made.links["a.txt"] == nil || made.links["a.txt"].URI != uri {
		t.Errorf("links: %v", made.links)
	}

	d.mine = d.socket(principal("other", "alice"))
	c := d.connect(t, "lines", "")
	_, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri})
	var wire *jsonrpc.Error
	if !errors.As(err, &wire) || !strings.Contains(err.Error(), "Resource not found") {
		t.Errorf("got %v", err)
	}
	for tool, arguments := range map[string]map[string]any{
		"read_file": {"path": "a.txt"}, "list_files": {}, "write_file": {"path": "b", "text": ""}, "bash": {"skill": "demo", "command": "cat a.txt"},
	} {
		arguments["session"] = id
		if r := c.call(tool, arguments); !r.IsError || !strings.Contains(r.text, "there is no session") {
			t.Errorf("%s: %s", tool, r.text)
		}
	}

	d.mine = d.socket(principal("default", "reader"))
	c = d.connect(t, "lines", "")
	if got := c.read(uri); got.Text != "mine" {
		t.Errorf("got %+v", got)
	}
	if r := c.call("list_files", map[string]any{"session": id}); r.IsError || !strings.Contains(r.text, "a.txt") {
		t.Errorf("list_files: %s", r.text)
	}
	_, err = c.CallTool(t.Context(), &sdk.CallToolParams{Name: "write_file", Arguments: json.RawMessage(`{"path": "a.txt", "text": "", "session": "` + id + `"}`)})
	if wire = nil; !errors.As(err, &wire) || wire.Code != codeDenied {
		t.Errorf("write_file by a reader: %v", err)
	}
	for _, uri := range []string{"session://" + id, "session://" + id + "/none", "session://x/a.txt", "session://" + id + "/a.txt?offset=x"} {
		if _, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri}); !errors.As(err, &wire) {
			t.Errorf("%s: %v", uri, err)
		}
	}
}
