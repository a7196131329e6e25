package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// local runs the client with exactly these arguments.
func local(t *testing.T, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), args, strings.NewReader(""), &stdout, &stderr)
	return result{code, stdout.String(), stderr.String()}
}

// contexts gives the test a file of contexts, which does not exist yet.
func contexts(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "conf", "contexts.yaml")
	t.Setenv(contextFileVariable, path)
	return path
}

func TestContextCommands(t *testing.T) {
	path := contexts(t)
	dir := filepath.Dir(filepath.Dir(path))
	t.Chdir(dir)
	for _, test := range []struct {
		args []string
		want result
	}{
		{[]string{"context", "list"}, result{0, "  NAME  ADDRESS  CREDENTIAL\n", ""}},
		{[]string{"context", "set", "prod", "--address", "skillrun.example.org:7878", "--tls-ca", "ca.crt", "--", "vault", "read", "-field=token"}, result{}},
		{[]string{"context", "set", "local", "--address", "/run/x.sock"}, result{}},
		{[]string{"context", "use", "prod"}, result{}},
		{[]string{"context", "list"}, result{0, "   NAME   ADDRESS                    CREDENTIAL\n   local  /run/x.sock                -\n*  prod   skillrun.example.org:7878  token command\n", ""}},
		{[]string{"context", "show"}, result{0, "prod:\n    address: skillrun.example.org:7878\n    tls_ca: " + dir + "/ca.crt\n    token_command: [vault, read, -field=token]\n", ""}},
		{[]string{"context", "show", "local", "--json"}, result{0, `{"name":"local","current":false,"address":"/run/x.sock"}` + "\n", ""}},
		{[]string{"context", "set", "prod", "--token-variable", "CI_TOKEN", "--tls-ca", ""}, result{}},
		{[]string{"context", "show", "prod"}, result{0, "prod:\n    address: skillrun.example.org:7878\n    token_variable: CI_TOKEN\n", ""}},
		{[]string{"context", "delete", "prod"}, result{0, "", "skillrun: prod was the current context; now there is none\n"}},
		{[]string{"context", "show"}, result{125, "", "skillrun: no context is used; 'skillrun context use NAME' chooses one\n"}},
		{[]string{"context", "use", "prod"}, result{125, "", "skillrun: no context \"prod\" in " + path + "; 'skillrun context list' shows those there are\n"}},
		{[]string{"ps", "--context", "prod"}, result{125, "", "skillrun: no context \"prod\" in " + path + "; 'skillrun context list' shows those there are\n"}},
	} {
		got := local(t, test.args...)
		// The empty table has a header with another width.
		if strings.ReplaceAll(got.stdout, " ", "") != strings.ReplaceAll(test.want.stdout, " ", "") || got.code != test.want.code || got.stderr != test.want.stderr {
			t.Errorf("%v: got %+v, want %+v", test.args, got, test.want)
		}
	}
	for p, mode := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700 | os.ModeDir} {
		if info, err := os.Stat(p); err != nil || info.Mode() != mode {
			t.Errorf("%s: got %v, %v; want mode %v", p, info.Mode(), err, mode)
		}
	}
}

func TestContextMistakes(t *testing.T) {
	path := contexts(t)
	for want, args := range map[string][]string{
		`can't be the name of a context`:                              {"set", "a b"},
		`a token has one source`:                                      {"set", "a", "--token-file", "x", "--", "y"},
		`-- needs the command that prints a token`:                    {"set", "a", "--"},
		`address "host": want unix:///path or host:port`:              {"set", "a", "--address", "host"},
		`--tls-cert and --tls-key go together`:                        {"set", "a", "--tls-cert", "x"},
		`give one NAME; a command that prints a token comes after --`: {"set", "a", "vault"},
	} {
		if got := local(t, append([]string{"context"}, args...)...); got.code != 125 || !strings.Contains(got.stderr, want) {
			t.Errorf("%v: got %+v, want %q", args, got, want)
		}
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a mistake made the file")
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"contexts:\n  a: {adress: x}\n":                        "contexts.yaml: line 2: contexts: a: adress: unknown key; the keys here are address, mcp_address,",
		"context: {}\n":                                        "line 1: context: unknown key; the keys here are current, contexts\n",
		"contexts:\n  a:\n    tls: maybe\n":                    `line 3: contexts: a: tls: "maybe" is not true or false`,
		"contexts: {a: {token_command: vault}}\n":              `line 1: contexts: a: token_command: "vault" is not a list of texts`,
		"contexts: {a: {address: [x]}}\n":                      `line 1: contexts: a: address: "" is not a text`,
		"contexts: [a]\n":                                      "line 1: contexts: want keys with their values",
		"contexts: {a: x}\n":                                   "line 1: contexts: a: want keys with their values",
		"- a\n":                                                "line 1: want keys with their values",
		"current: a\ncurrent: b\n":                             "line 2: current: the key is on line 1 already",
		"contexts:\n  a:\n\taddress: x\n":                      "contexts.yaml: line 3: found",
		"contexts:\n  a: {address: x\ncurrent: a\n":            "contexts.yaml: line 2: did not find expected",
		"contexts: {}\n---\ncontexts: {}\n":                    "line 2: more than one document",
		"contexts: {\n":                                        "contexts.yaml: line 1: did not find",
		"contexts:\n  a:\n":                                    "context a is empty",
		"contexts:\n  \"a b\": {address: x}\n":                 "can't be the name of a context",
		"contexts:\n  a: {token_file: x, token_variable: y}\n": "give one of token_file, token_command and token_variable",
		"current: gone\n":                                      `no context "gone"`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := local(t, "ps"); got.code != 125 || !strings.Contains(got.stderr, want) {
			t.Errorf("%q: got %+v, want %q", text, got, want)
		}
	}
	// A person who removed all contexts in an editor may have left the key.
	if err := os.WriteFile(path, []byte("current:\ncontexts:\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := local(t, "context", "set", "a", "--address", "unix:///x"); got.code != 0 {
		t.Errorf("set after an empty contexts: %+v", got)
	}
	if err := os.WriteFile(path, []byte("contexts:\n  a: {address: unix:///x, token_variable: NO}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := local(t, "ps", "--context", "a"); !strings.Contains(got.stderr, "the context takes its token from $NO, which is not set") {
		t.Errorf("got %+v", got)
	}
	if err := os.Chmod(path, 0o620); err != nil {
		t.Fatal(err)
	}
	if got := local(t, "ps"); !strings.Contains(got.stderr, "other users may write to it; after a look at its commands: chmod go-w "+path) {
		t.Errorf("got %+v", got)
	}
}

// Which address and which token a command uses.
func TestContextIsUsed(t *testing.T) {
	contexts(t)
	var tokens []string
	ask := func() *fake {
		f := answers("ListExecutions", func(*pb.ListExecutionsRequest) (*pb.ListExecutionsResponse, error) {
			return &pb.ListExecutionsResponse{}, nil
		})
		f.seen = func(ctx context.Context) {
			md, _ := metadata.FromIncomingContext(ctx)
			tokens = append(tokens, strings.Join(md.Get("authorization"), ","))
		}
		f.serve(t, "unix")
		return f
	}
	first, second := ask(), ask()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"set", "one", "--address", first.address, "--token-file", file},
		{"set", "two", "--address", second.address, "--", "printf", "from-%s", "command"},
		{"set", "three", "--address", second.address, "--token-variable", "SOME_TOKEN"},
		{"use", "one"},
	} {
		if got := local(t, append([]string{"context"}, args...)...); got.code != 0 {
			t.Fatalf("%v: %+v", args, got)
		}
	}
	t.Setenv("SOME_TOKEN", "from-variable")
	for _, test := range []struct {
		env  map[string]string
		args []string
		to   *fake
		want string
	}{
		{nil, nil, first, "Bearer from-file"},
		{nil, []string{"--context", "two"}, second, "Bearer from-command"},
		{nil, []string{"--context", "three"}, second, "Bearer from-variable"},
		{nil, []string{"--context", "two", "--token-file", file}, second, "Bearer from-file"},
		{nil, []string{"--context", "two", "--address", first.address}, first, "Bearer from-command"},
		{nil, []string{"--address", second.address}, second, ""}, // not the credentials of another daemon
		{nil, []string{"--context", "", "--address", second.address}, second, ""},
		{map[string]string{contextVariable: "two"}, nil, second, "Bearer from-command"},
		{map[string]string{contextVariable: "two"}, []string{"--context", "one"}, first, "Bearer from-file"},
		{map[string]string{contextVariable: "two"}, []string{"--address", first.address}, first, ""},
		{map[string]string{addressVariable: second.address}, nil, second, ""},
		{map[string]string{addressVariable: second.address, contextVariable: "one"}, nil, first, "Bearer from-file"},
		{map[string]string{"SKILLRUN_TOKEN_FILE": "/nonexistent"}, nil, first, "Bearer from-file"},
	} {
		for name, value := range test.env {
			t.Setenv(name, value)
		}
		tokens = nil
		before := len(test.to.asked)
		got := local(t, append(test.args, "ps")...)
		if got.code != 0 || len(test.to.asked) != before+1 || len(tokens) != 1 || tokens[0] != test.want {
			t.Errorf("%v %v: got %+v with %q; want %q", test.env, test.args, got, tokens, test.want)
		}
		for name := range test.env {
			os.Unsetenv(name)
		}
	}
	// The bridge has a separate address.
	os.Unsetenv("SOME_TOKEN")
	for want, args := range map[string][]string{
		"no MCP endpoint at unix:///nonexistent":                                      {"mcp", "--mcp-address", "unix:///nonexistent"},
		"the context takes its token from $SOME_TOKEN, which is not set":              {"--context", "three", "mcp", "--mcp-address", "unix:///nonexistent"},
		"the context has no address for MCP: skillrun context set NAME --mcp-address": {"--context", "far", "mcp"},
	} {
		local(t, "context", "set", "far", "--address", "192.0.2.1:7")
		local(t, "context", "use", "three")
		if got := local(t, args...); got.code != 125 || !strings.Contains(got.stderr, want) {
			t.Errorf("%v: got %+v, want %q", args, got, want)
		}
	}
	local(t, "context", "delete", "far")
	local(t, "context", "use", "one")
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := local(t, "ps"); got.code != 0 || got.stderr != "skillrun: warning: other users may read the token in "+file+"; chmod 600 "+file+"\n" {
		t.Errorf("got %+v, want a warning", got)
	}
	var listed struct {
		Name    string
		Current bool
	}
	if got := local(t, "context", "list", "--json"); json.Unmarshal([]byte(strings.SplitN(got.stdout, "\n", 2)[0]), &listed) != nil || listed.Name != "one" || !listed.Current {
		t.Errorf("got %+v", got)
	}
	if got := local(t, "__complete", "--context", "t"); !strings.Contains(got.stdout, "three\t") || !strings.Contains(got.stdout, "two\t") {
		t.Errorf("completion: got %+v", got)
	}
}
