package toolview

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/session"
	"github.com/skillrun/skillrun/internal/skill/skilltest"
)

// A sessionResult has the fields of results about sessions.
type sessionResult struct {
	Session struct {
		ID      string
		Version int
		Changes []struct {
			Path, Change, URI string
			SizeBytes         int64 `json:"size_bytes"`
		}
		NotKept string `json:"not_kept"`
	}
	Warnings []string
}

// talk makes the calls of toolCall share a conversation.
func (b *bench) talk() *Conversation {
	b.conversation = &Conversation{}
	return b.conversation
}

// inSession calls a tool and returns what its result says about the session.
func (b *bench) inSession(name, arguments string) (r Result, s sessionResult) {
	b.t.Helper()
	r = b.toolCall(name, arguments)
	if r.Structured != nil && name != "write_file" && name != "list_files" {
		if err := json.Unmarshal(r.Structured, &s); err != nil {
			b.t.Fatalf("%s: %v", r.Structured, err)
		}
	}
	return r, s
}

// files returns the paths of list_files.
func (b *bench) files(arguments string) (paths []string) {
	b.t.Helper()
	var page filePage
	if err := json.Unmarshal(b.toolCall("list_files", arguments).Structured, &page); err != nil {
		b.t.Fatal(err)
	}
	for _, f := range page.Files {
		paths = append(paths, f.Path)
	}
	return paths
}

var sessionSkills = []skillText{
	{name: "upper", frontMatter: "allowed-tools: Bash(cat:*), Bash(rm:*)", files: map[string]string{
		"scripts/upper.py": "import sys\nopen(sys.argv[2], 'w').write(open(sys.argv[1]).read().upper())\nopen('notes.md', 'w').write('changed')\n",
		"notes.md":         "of the skill",
	}},
	{name: "count", files: map[string]string{"scripts/count.py": "import sys\nopen('n.txt', 'w').write(str(len(open(sys.argv[1]).read())))\n"}},
}

// All tools of a conversation work on the same files, and list their changes.
func TestConversationSharesFiles(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil, append(sessionSkills, skillText{name: "env"}.withVenv(t))...)
	b.talk()
	if got := b.files(`{}`); got != nil || b.conversation.id != "" {
		t.Errorf("before anything was written: %q", got)
	}
	if r := b.toolCall("read_file", `{"path": "a.csv"}`); !r.IsError {
		t.Errorf("read_file: %s", r.Content)
	}
	b.toolCall("write_file", `{"path": "/workspace/in/a.csv", "text": "x,ä"}`)
	id := b.conversation.id

	r, s := b.inSession("run_skill_script", `{"skill": "upper", "script_path": "scripts/upper.py", "args": ["in/a.csv", "big é.csv"]}`)
	if c := s.Session.Changes; r.IsError || s.Session.ID != id || s.Session.Version != 2 || len(c) != 1 || c[0].Path != "big é.csv" ||
		c[0].Change != "added" || c[0].SizeBytes != 4 || c[0].URI != "session://"+id+"/big%20%C3%A9.csv" {
		t.Errorf("script: %s", r.Content)
	}
	r, s = b.inSession("run_skill_script", `{"skill": "count", "script_path": "scripts/count.py", "args": ["big é.csv"]}`)
	if r.IsError || s.Session.Version != 3 {
		t.Errorf("another skill: %s", r.Content)
	}
	r, s = b.inSession("bash", `{"skill": "upper", "command": "rm n.txt"}`)
	if c := s.Session.Changes; r.IsError || len(c) != 1 || c[0].Path != "n.txt" || c[0].Change != "deleted" || c[0].URI != "" {
		t.Errorf("command: %s", r.Content)
	}
	r, s = b.inSession("run_python_script", `{"skill_name": "env", "script": "open('in/a.csv', 'a').write('!')"}`)
	if c := s.Session.Changes; r.IsError || len(c) != 1 || c[0].Change != "changed" {
		t.Errorf("code in a venv: %s", r.Content)
	}
	b.toolCall("write_file", `{"path": "run.py", "text": "import os; print(sorted(os.listdir('.'))); open('out.bin', 'wb').write(b'\\0\\xff')"}`)
	r = b.toolCall("RunPython", `{"scriptPath": "run.py"}`)
	if want := fmt.Sprintf("\n[Session %s, version 7]\n[Session: added out.bin, 2 bytes: session://%[1]s/out.bin]", id); r.IsError ||
		!strings.Contains(r.Content, "'big é.csv', 'in', 'run.py'") || !strings.HasSuffix(r.Content, want) {
		t.Errorf("RunPython: %s", r.Content)
	}
	// A program that fails leaves nothing.
	r, s = b.inSession("run_python_script", `{"skill_name": "env", "script": "open('lost', 'w').write('x'); 1/0"}`)
	if !r.IsError || s.Session.Version != 7 || s.Session.Changes != nil || s.Session.NotKept != "the program did not succeed" {
		t.Errorf("a failure: %s", r.Content)
	}
	if got, want := b.files(`{}`), []string{"big é.csv", "in/a.csv", "out.bin", "run.py"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if r := b.toolCall("read_file", `{"path": "in/a.csv"}`); r.Content != "x,ä!" {
		t.Errorf("read_file: %s", r.Content)
	}
	// The same files by their URIs, in a call without the session.
	r = b.toolCall("RunPython", `{"session": "none", "code": "print(open('x').read())", "files": [{"path": "x", "uri": "session://`+id+`/big%20%C3%A9.csv"}]}`)
	if r.IsError || !strings.Contains(r.Content, "X,Ä") || r.Session != nil {
		t.Errorf("by its URI: %s", r.Content)
	}
	// Without the conversation a call has a session only if it names it.
	b.conversation = nil
	if r := b.toolCall("RunPython", `{"code": "import os; print(os.listdir('.'))"}`); strings.Contains(r.Content, "run.py") || r.Session != nil {
		t.Errorf("without a session: %s", r.Content)
	}
	if r := b.toolCall("RunPython", `{"session": "`+id+`", "scriptPath": "run.py"}`); r.IsError {
		t.Errorf("by its id: %s", r.Content)
	}
}

// A call can name a session, or ask for a new one or for none. Another tenant's does not exist.
func TestCallNamesItsSession(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil, sessionSkills...)
	write := func(arguments string) (out struct{ Session, URI string }) {
		t.Helper()
		r := b.toolCall("write_file", arguments)
		if r.IsError {
			t.Fatal(r.Content)
		}
		if err := json.Unmarshal(r.Structured, &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	alone := write(`{"path": "a", "text": "1"}`) // without a conversation
	b.talk()
	own := write(`{"path": "b", "base64": "AP8="}`)
	other := write(`{"path": "c", "text": "", "session": "new"}`)
	if write(`{"path": "d", "text": "2", "session": "` + alone.Session + `"}`); alone.Session == own.Session || own.Session == other.Session || b.conversation.id != own.Session {
		t.Errorf("%v, %v, %v", alone, own, other)
	}
	if got := b.files(`{"session": "` + alone.Session + `"}`); !slices.Equal(got, []string{"a", "d"}) {
		t.Errorf("got %q", got)
	}
	if r := b.toolCall("read_file", `{"path": "b", "encoding": "base64"}`); string(r.Structured) != `{"path": "b", "base64": "AP8=", "size": 2}` {
		t.Errorf("got %s", r.Structured)
	}
	if r := b.toolCall("read_file", `{"path": "b"}`); !r.IsError || !strings.Contains(r.Content, "encoding base64") {
		t.Errorf("got %s", r.Content)
	}
	theirs, err := b.x.CreateSession(t.Context(), permission.Principal{Tenant: "other", Name: "x"}, session.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ tool, arguments, want string }{
		{"write_file", `{"path": "x", "text": "", "session": "` + theirs.ID + `"}`, `there is no session "` + theirs.ID + `"`},
		{"read_file", `{"path": "x", "session": "` + theirs.ID + `"}`, "there is no session"},
		{"list_files", `{"session": "` + theirs.ID + `"}`, "there is no session"},
		{"RunPython", `{"code": "1", "session": "` + theirs.ID + `"}`, "there is no session"},
		{"RunPython", `{"code": "1", "files": [{"path": "x", "uri": "session://` + theirs.ID + `/x"}]}`, "not found"},
		{"list_files", `{"session": "new"}`, `there is no session "new"`},
		{"write_file", `{"path": "x", "text": "", "session": "none"}`, `there is no session "none"`},
		{"write_file", `{"path": "../x", "text": ""}`, `path "../x": has the component ".."`},
		{"write_file", `{"path": "b/x", "text": ""}`, `"b" is a file of the session`},
		{"read_file", `{"path": "b", "offset": 3}`, "b has 2 bytes; offset 3 is past its end"},
		{"read_file", `{"path": "none"}`, `There is no file "none" in the session ` + own.Session},
	} {
		if r := b.toolCall(tt.tool, tt.arguments); !r.IsError || !strings.Contains(r.Content, tt.want) {
			t.Errorf("%s %s: %s, want %s", tt.tool, tt.arguments, r.Content, tt.want)
		}
	}
	for _, tt := range []struct{ tool, arguments, want string }{
		{"write_file", `{"path": "x"}`, "write_file: give exactly one of text and base64"},
		{"write_file", `{"path": "x", "text": "", "base64": ""}`, "write_file: give exactly one of text and base64"},
		{"write_file", `{"path": "x", "base64": "?"}`, "write_file: base64: is not valid"},
		{"write_file", `{"path": "x", "text": "` + strings.Repeat("é", MaxInlineBytes/2+1) + `"}`, "write_file: the file has 8388610 bytes; at most 8388608 are allowed"},
		{"read_file", `{"path": "x", "encoding": "hex"}`, "read_file: encoding: must be text or base64"},
	} {
		_, err := b.Call(t.Context(), ToolCall{Who: b.who, Tool: tt.tool, Arguments: json.RawMessage(tt.arguments), Conversation: b.conversation})
		if !is[*ArgumentsError](err) || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %s", tt.tool, err, tt.want)
		}
	}
}

// Long files and long lists come in parts, which together are the whole.
func TestSessionFilesInParts(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.talk()
	whole := strings.Repeat("ä€", 30)
	b.toolCall("write_file", `{"path": "long.txt", "text": "`+whole+`"}`)
	for _, encoding := range []string{"text", "base64"} {
		var got []byte
		for offset := int64(0); ; {
			r := b.toolCall("read_file", fmt.Sprintf(`{"path": "long.txt", "limit": 7, "offset": %d, "encoding": %q}`, offset, encoding))
			var part struct {
				Text   string
				Base64 []byte
				Next   int64 `json:"next_offset"`
			}
			if err := json.Unmarshal(r.Structured, &part); err != nil || r.IsError {
				t.Fatalf("%s, %v", r.Content, err)
			}
			got = append(append(got, part.Text...), part.Base64...)
			if offset = part.Next; offset == 0 {
				break
			}
		}
		if string(got) != whole {
			t.Errorf("%s: got %q", encoding, got)
		}
	}
	code := "for i in range(250): open('f%03d' % i, 'w').close()\nopen(b'x\\xff', 'w').close()\nopen('y', 'w').close()"
	if r := b.toolCall("RunPython", string(dumps(map[string]string{"code": code}))); r.IsError || len(r.Session.Changes) != 100 || r.Session.LeftOut != 152 ||
		!strings.Contains(r.Content, "\n[Session: 152 more files changed.]") {
		t.Errorf("%+v: %s", r.Session, r.Content)
	}
	var all []string
	for cursor, more := "", true; more; {
		var page filePage
		r := b.toolCall("list_files", string(dumps(map[string]any{"cursor": cursor, "limit": 99})))
		if err := json.Unmarshal(r.Structured, &page); err != nil {
			t.Fatal(err)
		}
		for _, f := range page.Files {
			all = append(all, f.URI)
		}
		if len(all)+page.LeftOut != 253 || len(page.Files) > 99 {
			t.Fatalf("%d files, %d left out", len(all), page.LeftOut)
		}
		cursor, more = page.Next, page.Next != ""
	}
	if len(slices.Compact(all)) != 253 || !strings.HasSuffix(all[251], "/x%FF") {
		t.Errorf("%d files: %q", len(all), all)
	}
}

// If the tenant may have no more sessions, programs run without one and say so. A session that is gone is
// replaced by a new one.
func TestConversationWithoutRoom(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var mu sync.Mutex
	clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	b := newBench(t, func(c *executor.Config) {
		store, err := session.Open(session.Config{
			Dir: filepath.Join(c.StagingDir+"-bounded", "sessions"), Owner: session.Owner(skilltest.Owner()), Now: clock,
			Rules: func(string) session.Rules { return session.Rules{Sessions: 1} },
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		c.Sessions = store
	})
	first := b.talk()
	b.toolCall("write_file", `{"path": "a", "text": "1"}`)
	b.talk()
	r := b.toolCall("RunPython", `{"code": "open('b', 'w').write('2')"}`)
	if r.IsError || r.Session != nil || len(r.Warnings) != 1 || !strings.Contains(r.Content, "[Warning: the next call will not find its files: the tenant has 1 sessions") {
		t.Errorf("over the quota: %s", r.Content)
	}
	if r := b.toolCall("write_file", `{"path": "a", "text": "1"}`); !r.IsError || !strings.Contains(r.Content, "may have no more") {
		t.Errorf("over the quota: %s", r.Content)
	}
	// Nothing was written in it.
	b.EndConversation(b.who, b.conversation)
	b.conversation = first
	mu.Lock()
	now = now.Add(2 * time.Hour) // longer than SessionIdle
	mu.Unlock()
	if _, err := b.x.Sessions.Sweep(); err != nil {
		t.Fatal(err)
	}
	old := first.id
	r = b.toolCall("RunPython", `{"code": "1"}`)
	if r.IsError || len(r.Warnings) != 1 || !strings.HasPrefix(r.Warnings[0], "the session "+old+" and its files are gone") || first.id == old {
		t.Errorf("after the expiry: %s", r.Content)
	}
	// It is empty, so it goes with its conversation. One with a file stays.
	b.EndConversation(b.who, first)
	if n, _ := b.x.Sessions.Usage(b.who.Tenant); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
	b.talk()
	b.toolCall("write_file", `{"path": "a", "text": "1"}`)
	b.EndConversation(b.who, b.conversation)
	if n, _ := b.x.Sessions.Usage(b.who.Tenant); n != 1 {
		t.Errorf("%d sessions are left, want 1", n)
	}
}

// A view without SessionIdle, and a daemon without sessions, run tools without sessions.
func TestConversationsWithoutSessions(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.sessionIdle = 0
	b.talk()
	if r := b.toolCall("RunPython", `{"code": "1"}`); r.IsError || r.Session != nil || r.Warnings != nil {
		t.Errorf("got %+v", r)
	}
	b.sessionIdle = time.Hour
	none := newBench(t, func(c *executor.Config) { c.Sessions = nil })
	none.talk()
	none.sessionIdle = 0
	if r := none.toolCall("RunPython", `{"code": "1"}`); r.IsError {
		t.Errorf("got %+v", r)
	}
	if r := none.toolCall("write_file", `{"path": "a", "text": ""}`); !r.IsError || r.Content != "this daemon has no sessions" {
		t.Errorf("got %+v", r)
	}
}

// Calls of one conversation that come at the same time run one after the other, and none is refused.
func TestConversationQueues(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	f := b.talk()
	b.toolCall("write_file", `{"path": "n", "text": ""}`)
	call := func(ctx context.Context, tool, arguments string, sink Sink) (Result, error) {
		return b.Call(ctx, ToolCall{Who: b.who, Tool: tool, Arguments: json.RawMessage(arguments), Sink: sink, Conversation: f})
	}
	const calls = 6
	var all sync.WaitGroup
	for i := range calls {
		all.Go(func() {
			if i%2 == 0 {
				if r, err := call(t.Context(), "write_file", fmt.Sprintf(`{"path": "w%d", "text": "%[1]d"}`, i), nil); err != nil || r.IsError {
					t.Errorf("write %d: %s, %v", i, r.Content, err)
				}
				return
			}
			if r, err := call(t.Context(), "RunPython", `{"code": "n = open('n').read()\nopen('n', 'w').write(n + 'x')"}`, nil); err != nil || r.IsError {
				t.Errorf("call %d: %s, %v", i, r.Content, err)
			}
		})
	}
	all.Wait()
	if r := b.toolCall("read_file", `{"path": "n"}`); r.Content != strings.Repeat("x", calls/2) {
		t.Errorf("got %q: a call has not seen the one before it", r.Content)
	}
	// A caller that goes away while it waits is not served.
	running, waiting := make(chan struct{}), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	first, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		var once sync.Once
		_, err := call(first, "RunPython", `{"code": "import time\nprint('on', flush=True)\ntime.sleep(3600)", "args": []}`, func(executor.Output) error {
			once.Do(func() { close(running) })
			return nil
		})
		ended <- err
	}()
	<-running
	go func() {
		_, err := call(ctx, "write_file", `{"path": "late", "text": ""}`, nil)
		waiting <- err
	}()
	cancel()
	if err := <-waiting; !errors.Is(err, context.Canceled) {
		t.Errorf("the waiting call: %v", err)
	}
	stop()
	if err := <-ended; err == nil {
		t.Error("the first call was not cancelled")
	}
}

// A conversation goes on with the files of an earlier one that has its name, if the tenant is the same.
func TestNamedConversations(t *testing.T) {
	t.Parallel()
	b := newIdleBench(t, nil)
	begin := func(name string) { b.conversation = NamedConversation(name) }
	begin("one")
	b.toolCall("write_file", `{"path": "a", "text": "1"}`)
	b.toolCall("write_file", `{"path": "n", "text": "1", "session": "new"}`)
	id := b.conversation.id
	begin("one")
	if got := b.files(`{}`); !slices.Equal(got, []string{"a"}) {
		t.Errorf("the same name: got %q", got)
	}
	begin("one")
	b.toolCall("write_file", `{"path": "b", "text": "2"}`)
	if got := b.files(`{}`); !slices.Equal(got, []string{"a", "b"}) || b.conversation.id != id {
		t.Errorf("the same name: got %q in %s, want a and b in %s", got, b.conversation.id, id)
	}
	for _, name := range []string{"two", ""} {
		begin(name)
		if got := b.files(`{}`); got != nil {
			t.Errorf("the name %q: got %q", name, got)
		}
	}
	b.who.Tenant = "other"
	begin("one")
	if got := b.files(`{}`); got != nil {
		t.Errorf("another tenant: got %q", got)
	}
	// The end of a conversation removes a session that an earlier one has left empty.
	b.who.Tenant = "default"
	if _, err := b.createSession(t.Context(), b.who, "three"); err != nil {
		t.Fatal(err)
	}
	before, _ := b.x.Sessions.Usage(b.who.Tenant)
	b.EndConversation(b.who, NamedConversation("one"))
	b.EndConversation(b.who, NamedConversation("three"))
	if n, _ := b.x.Sessions.Usage(b.who.Tenant); n != before-1 {
		t.Errorf("%d sessions, want %d", n, before-1)
	}
}
