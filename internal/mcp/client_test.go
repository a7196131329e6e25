package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skillrun/skillrun/internal/executor"
)

// ways are the combinations of transport and protocol version that agents use.
var ways = []struct{ transport, version string }{
	{"http", ""}, {"http", "2025-11-25"}, {"http", "2025-06-18"}, {"http", "2025-03-26"}, {"http", "2024-11-05"},
	{"lines", ""}, {"lines", "2025-11-25"}, {"lines", "2025-06-18"}, {"lines", "2025-03-26"}, {"lines", "2024-11-05"},
}

// inEveryWay runs a test with each of them, on one daemon.
func inEveryWay(t *testing.T, d *daemon, test func(t *testing.T, d *daemon, c *client)) {
	for _, w := range ways {
		t.Run(w.transport+" "+w.version, func(t *testing.T) {
			test(t, d, d.connect(t, w.transport, w.version))
		})
	}
}

func TestToolsAreListed(t *testing.T) {
	inEveryWay(t, startIdle(t, nil), func(t *testing.T, d *daemon, c *client) {
		init := c.InitializeResult()
		if !strings.Contains(init.Instructions, "activate_skill") || init.ServerInfo != nil && init.ServerInfo.Name != "skillrun" {
			t.Errorf("initialize: %+v", init)
		}
		list, err := c.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		byName := map[string]*sdk.Tool{}
		for _, tool := range list.Tools {
			byName[tool.Name] = tool
		}
		for name, readOnly := range map[string]bool{
			"list_skills": true, "activate_skill": true, "read_skill_file": true,
			"run_python_script": false, "run_skill_script": false, "bash": false, "check_command": true, "RunPython": false,
			"write_file": false, "read_file": true, "list_files": true,
		} {
			tool := byName[name]
			if tool == nil {
				t.Errorf("no tool %s", name)
				continue
			}
			if in, ok := tool.InputSchema.(map[string]any); !ok || in["type"] != "object" {
				t.Errorf("%s: input schema %v", name, tool.InputSchema)
			}
			if (tool.OutputSchema == nil) != (name == "RunPython") {
				t.Errorf("%s: output schema %v", name, tool.OutputSchema)
			}
			a := tool.Annotations
			if a == nil || a.ReadOnlyHint != readOnly || a.DestructiveHint == nil || *a.DestructiveHint || a.OpenWorldHint == nil || *a.OpenWorldHint {
				t.Errorf("%s: annotations %+v", name, a)
			}
			if tool.Title == "" || tool.Description == "" {
				t.Errorf("%s: title %q, description %q", name, tool.Title, tool.Description)
			}
		}
	})
}

// With a network, tools that run a program may reach the world; others cannot.
func TestOpenWorld(t *testing.T) {
	d := startIdle(t, func(c *Config) { c.OpenWorld = true })
	list, err := d.connect(t, "http", "").ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range list.Tools {
		if open := *tool.Annotations.OpenWorldHint; open == (tool.Annotations.ReadOnlyHint || tool.Name == "write_file") {
			t.Errorf("%s: openWorldHint %v", tool.Name, open)
		}
	}
}

func TestCallsAndTheirResults(t *testing.T) {
	inEveryWay(t, startDaemon(t, nil), func(t *testing.T, d *daemon, c *client) {
		r := c.call("run_skill_script", map[string]any{"skill": "demo", "script_path": "scripts/hello.py", "arguments": map[string]any{"name": "Ada"}})
		if r.IsError || r.structured["stdout"] != "hello Ada\n" || r.structured["exit_code"] != 0.0 {
			t.Errorf("got %+v", r.structured)
		}
		var text map[string]any
		if err := json.Unmarshal([]byte(r.text), &text); err != nil || text["stdout"] != "hello Ada\n" {
			t.Errorf("the text is not the structured content: %s", r.text)
		}
	})
}

// A failure that a model can act on is a result with isError. Only an invalid call is a
// protocol error.
func TestFailuresAreResults(t *testing.T) {
	d := startDaemon(t, nil)
	c := d.connect(t, "http", "")
	type args = map[string]any
	for _, tt := range []struct {
		name, tool string
		arguments  any
		want       string // part of the text
	}{
		{"a program that fails", "run_skill_script", args{"skill": "demo", "script_path": "scripts/fail.py"}, `"exit_code": 3`},
		{"a command that is not allowed", "bash", args{"skill": "demo", "command": "rm -rf /"}, "not allowed"},
		{"a skill that is not there", "activate_skill", args{"skill": "nope"}, "no skill"},
		{"a script that is not there", "run_skill_script", args{"skill": "demo", "script_path": "scripts/nope.py"}, "nope.py"},
		{"a missing argument", "bash", args{"skill": "demo"}, "command"},
		{"an argument too many", "bash", args{"skill": "demo", "command": "echo", "shell": true}, "shell"},
		{"an argument of another type", "bash", args{"skill": 1, "command": "echo"}, "skill"},
		{"no arguments", "bash", nil, "skill"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := c.call(tt.tool, tt.arguments)
			if !r.IsError || !strings.Contains(r.text, tt.want) {
				t.Errorf("isError %v, text %q; want isError and %q", r.IsError, r.text, tt.want)
			}
		})
	}
	r := c.call("run_skill_script", args{"skill": "demo", "script_path": "scripts/fail.py"})
	if r.structured["stderr"] != "broken\n" || r.structured["stdout"] != "so far so good\n" || r.structured["success"] != false {
		t.Errorf("the failed program's structured content: %v", r.structured)
	}
	_, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "nope", Arguments: args{}})
	if wire := (*jsonrpc.Error)(nil); !errors.As(err, &wire) || wire.Code != jsonrpc.CodeInvalidParams {
		t.Errorf("an unknown tool: %v; want a protocol error", err)
	}
}

func TestArtifactsAreResources(t *testing.T) {
	inEveryWay(t, startDaemon(t, nil), func(t *testing.T, d *daemon, c *client) {
		r := c.call("run_skill_script", map[string]any{"skill": "demo", "script_path": "scripts/leave.py"})
		if r.IsError {
			t.Fatal(r.text)
		}
		prefix := "execution://" + d.newest() + "/artifacts/"
		if c.InitializeResult().ProtocolVersion < linkVersion {
			// Clients of this version do not know links.
			if len(r.links) > 0 || !strings.Contains(r.text, prefix+"out/table.csv (out/table.csv)") {
				t.Errorf("links %v, text %q", r.links, r.text)
			}
			return
		}
		link := r.links["out/table.csv"]
		if link == nil || link.URI != prefix+"out/table.csv" || link.MIMEType != "text/csv" || *link.Size != 8 {
			t.Fatalf("got %+v", link)
		}
		if got := c.read(link.URI); got.Text != "a,b\n1,2\n" || got.MIMEType != "text/csv" {
			t.Errorf("got %+v", got)
		}
		if got := c.read(r.links["out/"+oddName].URI); got.Text != "strange" {
			t.Errorf("a name with special characters: %+v", got)
		}
		if got := c.read(r.links["out/\uFFFD.bin"].URI); string(got.Blob) != "\x00\x01" || got.Text != "" || got.MIMEType != "application/octet-stream" {
			t.Errorf("a name that is not UTF-8: %+v", got)
		}
	})
}

// A long output does not flood a model's context: the result has its beginning and end, and
// a resource has all of it.
func TestLongOutputIsCut(t *testing.T) {
	inEveryWay(t, startDaemon(t, nil), func(t *testing.T, d *daemon, c *client) {
		r := c.call("run_skill_script", map[string]any{"skill": "demo", "script_path": "scripts/big.py"})
		stdout, _ := r.structured["stdout"].(string)
		if len(stdout) < maxText || len(stdout) > maxText+200 {
			t.Errorf("%d bytes of stdout, want about %d", len(stdout), maxText)
		}
		uri := "execution://" + d.newest() + "/stdout"
		for _, want := range []string{"000000000000000\n", "000000000011999\n", "bytes left out; they are in the resource " + uri + " ...]"} {
			if !strings.Contains(stdout, want) {
				t.Errorf("stdout has no %q", want)
			}
		}
		if r.structured["stderr"] != "short\n" || r.structured["exit_code"] != 0.0 {
			t.Errorf("stderr %q, exit code %v", r.structured["stderr"], r.structured["exit_code"])
		}
		if len(r.text) > 2*maxText {
			t.Errorf("%d bytes of text", len(r.text))
		}
		whole := c.read(uri)
		if len(whole.Text) != 12000*16 || whole.MIMEType != "text/plain" {
			t.Errorf("the resource has %d bytes of %s", len(whole.Text), whole.MIMEType)
		}
		if c.InitializeResult().ProtocolVersion >= linkVersion && (r.links["stdout"] == nil || r.links["stdout"].URI != uri || r.links["stderr"] != nil) {
			t.Errorf("links %v", r.links)
		}
		if got := c.read("execution://" + d.newest() + "/stderr?offset=2"); got.Text != "ort\n" {
			t.Errorf("stderr from 2: %q", got.Text)
		}
	})
}

func TestSkillsAreResources(t *testing.T) {
	inEveryWay(t, startIdle(t, nil), func(t *testing.T, d *daemon, c *client) {
		list, err := c.ListResources(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]*sdk.Resource{}
		for _, r := range list.Resources {
			got[r.URI] = r
		}
		demo := got["skill://demo/SKILL.md"]
		if demo == nil || demo.Name != "demo" || demo.MIMEType != "text/markdown" || demo.Description != "A skill to try things with." ||
			demo.Size != int64(len(skillFiles["demo/SKILL.md"])) {
			t.Errorf("demo: %+v", demo)
		}
		if got["skill:///odd%20name/SKILL.md"] == nil || len(got) != 2 {
			t.Errorf("got %v, want demo and odd name", got)
		}
		templates, err := c.ListResourceTemplates(t.Context(), nil)
		if err != nil || len(templates.ResourceTemplates) != 4 {
			t.Errorf("templates: %+v, %v", templates, err)
		}
		for uri, want := range map[string]sdk.ResourceContents{
			"skill://demo/SKILL.md":                               {Text: skillFiles["demo/SKILL.md"], MIMEType: "text/markdown"},
			"skill:///demo/SKILL.md":                              {Text: skillFiles["demo/SKILL.md"], MIMEType: "text/markdown"},
			"skill://hidden/SKILL.md":                             {Text: skillFiles["hidden/SKILL.md"], MIMEType: "text/markdown"},
			"skill:///odd%20name/SKILL.md":                        {Text: skillFiles["odd name/SKILL.md"], MIMEType: "text/markdown"},
			"skill://demo/references/guide.md":                    {Text: "# Guide\n\nNaïve.\n", MIMEType: "text/markdown"},
			"skill://demo/assets/logo.png":                        {Blob: []byte(skillFiles["demo/assets/logo.png"]), MIMEType: "image/png"},
			"skill://demo/scripts/hello.py":                       {Text: skillFiles["demo/scripts/hello.py"], MIMEType: "text/x-python"},
			"skill://demo/assets/" + executor.EscapePath(oddName): {Text: "odd\n", MIMEType: "text/plain"},
			"skill://demo/references/../references/guide.md":      {Text: "# Guide\n\nNaïve.\n", MIMEType: "text/markdown"},
		} {
			got := c.read(uri)
			if got.URI != uri || got.Text != want.Text || string(got.Blob) != string(want.Blob) || got.MIMEType != want.MIMEType {
				t.Errorf("%s: got %.200q, %q, %s", uri, got.Text, got.Blob, got.MIMEType)
			}
		}
	})
}

// A large resource comes in pieces if the client asks for one, or if it is larger than the files
// that a host must accept.
func TestResourcesInPieces(t *testing.T) {
	d := startIdle(t, nil)
	c := d.connect(t, "http", "")
	want := skillFiles["demo/assets/big.txt"]
	var got strings.Builder
	pieces := 0
	for uri := "skill://demo/assets/big.txt?offset=0"; uri != ""; pieces++ {
		r := c.read(uri)
		if len(r.Text) > maxPiece {
			t.Fatalf("%s: %d bytes", uri, len(r.Text))
		}
		got.WriteString(r.Text)
		uri, _ = r.Meta["next"].(string)
	}
	if got.String() != want || pieces != 3 {
		t.Errorf("%d bytes in %d pieces, want %d in 3", got.Len(), pieces, len(want))
	}
	if whole := c.read("skill://demo/assets/big.txt"); whole.Text != want || whole.Meta["next"] != nil {
		t.Errorf("%d bytes at once, next %v; want all %d", len(whole.Text), whole.Meta["next"], len(want))
	}
	d.write("huge/SKILL.md", "---\nname: huge\ndescription: Too large for a host.\n---\n")
	d.write("huge/data.bin", strings.Repeat("\x00", maxWhole+1))
	d.reload()
	first := c.read("skill://huge/data.bin")
	if len(first.Blob) != maxPiece || first.Meta["next"] != fmt.Sprintf("skill://huge/data.bin?offset=%d", maxPiece) {
		t.Errorf("a larger file: %d bytes, next %v", len(first.Blob), first.Meta["next"])
	}
}

func TestResourcesThatAreNot(t *testing.T) {
	d := startDaemon(t, nil)
	c := d.connect(t, "lines", "2025-11-25")
	c.call("run_skill_script", map[string]any{"skill": "demo", "script_path": "scripts/leave.py"})
	id := d.newest()
	for _, uri := range []string{
		"skill://nope/SKILL.md", "skill://demo/nope.md", "skill://demo", "skill://demo/", "skill://", "skill:///", "nope://demo/SKILL.md", "", "x",
		"skill://demo/../hidden/SKILL.md", "skill://demo/..%2Fhidden/SKILL.md", "skill://demo/%2Fetc%2Fpasswd", "skill://demo/scripts", "skill://demo/a%00b",
		"skill://demo/%zz", "skill://demo/SKILL.md?offset=-1", "skill://demo/SKILL.md?offset=x", "skill://demo/SKILL.md?x=1", "skill://demo/SKILL.md?offset=99999",
		"skill://demo@sha256:00/SKILL.md", "skill://..%2F/SKILL.md",
		"execution://nope/stdout", "execution://" + id, "execution://" + id + "/", "execution://" + id + "/stdin", "execution://" + id + "/artifacts/",
		"execution://" + id + "/artifacts/nope", "execution://" + id + "/artifacts/../stdout", "execution://" + id + "/stdout?offset=1",
		"execution://" + id + "/artifacts/out/table.csv?offset=9", "execution://" + strings.Repeat("x", 5000) + "/stdout",
	} {
		r, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri})
		if wire := (*jsonrpc.Error)(nil); !errors.As(err, &wire) || wire.Code != jsonrpc.CodeInvalidParams {
			t.Errorf("%.100s: got %+v, %v; want invalid params", uri, r, err)
		}
	}
	if got := d.logs.String(); strings.Contains(got, "level=ERROR") {
		t.Errorf("logged: %s", got)
	}
}

// An execution's id gives another tenant no access.
func TestExecutionsBelongToTheirTenant(t *testing.T) {
	d := startDaemon(t, nil)
	c := d.connect(t, "http", "")
	c.call("run_skill_script", map[string]any{"skill": "demo", "script_path": "scripts/leave.py"})
	uri := "execution://" + d.newest() + "/artifacts/out/table.csv"
	c.read(uri)
	d.mine = d.socket(principal("other", "alice"))
	for _, w := range ways {
		stranger := d.connect(t, w.transport, w.version)
		for _, uri := range []string{uri, "execution://" + d.newest() + "/stdout"} {
			if r, err := stranger.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri}); err == nil {
				t.Errorf("%v: another tenant reads %s: %+v", w, uri, r)
			}
		}
	}
}

func TestListChanges(t *testing.T) {
	for _, w := range ways {
		t.Run(w.transport+" "+w.version, func(t *testing.T) {
			d := startIdle(t, nil)
			c := d.connect(t, w.transport, w.version)
			uris := func() string {
				list, err := c.ListResources(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				var all []string
				for _, r := range list.Resources {
					all = append(all, fmt.Sprintf("%s=%s", r.URI, r.Description))
				}
				return strings.Join(all, " ")
			}
			if got := uris(); strings.Contains(got, "new") {
				t.Fatal(got)
			}
			for _, step := range []struct{ description, want string }{
				{"first", "skill://new/SKILL.md=first"}, {"second", "skill://new/SKILL.md=second"},
			} {
				d.write("new/SKILL.md", "---\nname: new\ndescription: "+step.description+"\n---\n\nNew.\n")
				d.reload()
				<-c.changed
				if got := uris(); !strings.Contains(got, step.want) {
					t.Errorf("got %s, want %s", got, step.want)
				}
			}
			d.write("new/SKILL.md", "---\nname: new\ndescription: x\ndisable-model-invocation: true\n---\n\nNew.\n")
			d.reload()
			<-c.changed
			if got := uris(); strings.Contains(got, "new") {
				t.Errorf("a skill that is hidden now is listed: %s", got)
			}
		})
	}
}

// Output arrives while the program runs, and the progress value is the number of bytes.
func TestProgress(t *testing.T) {
	inEveryWay(t, startDaemon(t, nil), func(t *testing.T, d *daemon, c *client) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		params := &sdk.CallToolParams{
			Meta: sdk.Meta{}, Name: "run_skill_script",
			Arguments: map[string]any{"skill": "demo", "script_path": "scripts/wait.py", "timeout": 600},
		}
		params.SetProgressToken("token")
		ended := make(chan error, 1)
		go func() {
			_, err := c.CallTool(ctx, params)
			ended <- err
		}()
		p := <-c.progress
		if p.Message != "started\n" || p.Progress != 8 || p.ProgressToken != "token" {
			t.Errorf("got %+v", p)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the call: %v", err)
		}
		if got := d.outcome(d.newest()); got.End != executor.Cancelled {
			t.Errorf("the execution: %+v", got)
		}
	})
}

func TestNoProgressUnlessAskedFor(t *testing.T) {
	d := startDaemon(t, nil)
	c := d.connect(t, "http", "2025-11-25")
	c.call("run_skill_script", map[string]any{"skill": "demo", "script_path": "scripts/hello.py"})
	select {
	case p := <-c.progress:
		t.Errorf("got %+v", p)
	default:
	}
}
