package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	skillrun "github.com/skillrun/skillrun/clients/go"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A newUser follows docs/tenants.md with two machines. Only the directories have other names.
type newUser struct {
	*networks
	dir    string            // /etc/skillrun, and what else the document names
	files  map[string]string // the document's files by their paths in dir
	shells []string          // the blocks of commands
}

var (
	documentFile  = regexp.MustCompile("(?s)`/etc/skillrun/([^`]+)`[^`]*\n\n```yaml\n(.*?)```")
	documentShell = regexp.MustCompile("(?s)```sh\n(.*?)```")
)

func readTenantsDocument(t *testing.T) *newUser {
	t.Helper()
	n := newNetworks(t)
	u := &newUser{networks: n, dir: newDir(t), files: map[string]string{}}
	skills, err := filepath.Abs("../../skills")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../docs/tenants.md")
	if err != nil {
		t.Fatal(err)
	}
	_, document, _ := strings.Cut(string(text), "\n### Three tenants\n")
	document, rest, _ := strings.Cut(document, "\n## Credentials\n")
	_, worked, _ := strings.Cut(rest, "\n## A worked example\n")
	worked, _, _ = strings.Cut(worked, "\n## Isolation\n")
	here := strings.NewReplacer("/etc/skillrun", u.dir, "/var/lib/skillrun", u.dir+"/state", "/usr/share/skillrun/skills", skills, "/srv", u.dir+"/srv")
	for _, m := range documentFile.FindAllStringSubmatch(document, -1) {
		u.files[m[1]] = here.Replace(m[2])
	}
	for _, m := range documentShell.FindAllStringSubmatch(worked, -1) {
		u.shells = append(u.shells, here.Replace(m[1]))
	}
	if len(u.files) != 4 || len(u.shells) != 2 {
		t.Fatalf("%d files and %d blocks of commands, want 4 and 2", len(u.files), len(u.shells))
	}
	return u
}

// write writes the files, and a skill of acme. It returns the configuration without the directories that
// every daemon under test gets.
func (u *newUser) write() (config string) {
	u.t.Helper()
	config = strings.Replace(u.files["skillrund.yaml"], "listen:\n", "listen:\n  unix: s.sock\n  mcp_unix: \"\"\n", 1)
	u.files["skillrund.yaml"] = "state_dir: state\nrun_dir: run\n" + manyIDs + config
	u.files["srv/acme/skills/secret/SKILL.md"] = "---\nname: secret\ndescription: A skill of acme.\n---\nText.\n"
	for path, text := range u.files {
		path = filepath.Join(u.dir, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			u.t.Fatal(err)
		}
	}
	return config
}

// output runs a command and returns its standard output.
func (u *newUser) output(cmd *exec.Cmd) string {
	u.t.Helper()
	cmd.Dir = u.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		u.t.Errorf("%v: %v\n%s", cmd.Args, err, out)
	}
	return string(out)
}

// A new user copies the files and the commands of docs/tenants.md, with the daemon on one machine and the
// agents of two tenants on another. Then each tenant uses the other clients, and sees its own skills and
// executions only.
func TestNewUserWithThreeTenants(t *testing.T) {
	t.Parallel()
	u := readTenantsDocument(t)
	config := u.write()
	path := "PATH=" + filepath.Dir(binary(t, "skillrund")) + ":" + filepath.Dir(grpcurl(t)) + ":" + os.Getenv("PATH")
	env := []string{path, "HOME=" + t.TempDir(), "XDG_CONFIG_HOME="}
	operator := exec.Command("/bin/bash", "-euo", "pipefail", "-c", u.shells[0])
	operator.Env = append(os.Environ(), env...)
	u.output(operator)

	d := launch(t, u.dir, config, "nsenter", "--net="+u.daemon, "--")
	d.dial("unix://" + u.dir + "/s.sock")
	d.waitServing()
	out := u.output(u.client(env, "/bin/bash", "-euo", "pipefail", "-c", u.shells[1]))
	for _, want := range []string{`"NDI`, "secret", "\n2\n", "\n5\n", `"principal": "token:ci"`} { // base64 of "42"
		if !strings.Contains(out, want) {
			t.Errorf("the document's commands print no %q", want)
		}
	}
	if strings.Contains(out, `"principal": "spiffe:`) {
		t.Error("globex sees an execution of acme")
	}
	if strings.Contains(out, "warning") {
		t.Error("the document's commands cause a warning")
	}
	if t.Failed() {
		t.Fatal(out)
	}
	refused := u.client(env, binary(t, "skillrun"), "--context", "globex", "run", "calculator", "-c", "print(1)")
	refused.Dir = u.dir
	if out, err := refused.CombinedOutput(); err == nil || !strings.Contains(string(out), "inline code is switched off") {
		t.Errorf("code of globex: %v\n%s", err, out)
	}
	acmes := d.token("create", "--tenant", "acme", "--name", "mcp", "--role", "invoke")
	globexs, err := os.ReadFile(filepath.Join(u.dir, "globex.token"))
	if err != nil {
		t.Fatal(err)
	}
	for _, who := range []*documentTenant{
		{newUser: u, credentials: skillrun.TLSFiles{Certificate: u.dir + "/agent.crt", Key: u.dir + "/agent.key"}, token: acmes,
			skills: []string{"calculator", "secret"}, principals: []string{"spiffe://example.org/acme/agent", "token:mcp"}},
		{newUser: u, tokenFile: u.dir + "/globex.token", token: strings.TrimSpace(string(globexs)),
			skills: []string{"calculator", "json-transform"}, principals: []string{"token:ci"}},
	} {
		t.Run("Go", who.byGo)
		t.Run("Python", who.byPython)
		t.Run("MCP", who.byMCP)
	}
}

// A documentTenant is a tenant of the document, with the skills that it may see.
type documentTenant struct {
	*newUser
	credentials        skillrun.TLSFiles
	tokenFile, token   string
	skills, principals []string
}

func (w *documentTenant) byGo(t *testing.T) {
	w.credentials.CA = w.dir + "/ca.crt"
	config, err := w.credentials.Config()
	if err != nil {
		t.Fatal(err)
	}
	config.ServerName = serverName
	options := []grpc.DialOption{skillrun.WithTLS(config), grpc.WithContextDialer(w.dial)}
	if w.tokenFile != "" {
		options = append(options, skillrun.WithTokenFile(w.tokenFile))
	}
	c, err := skillrun.Dial(serverIP+":7878", options...)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if out, err := c.Script("calculator", "scripts/calc.py", "6*7").Output(t.Context()); err != nil || string(out) != "42\n" {
		t.Errorf("got %q, %v", out, err)
	}
	list, err := c.Skills().ListSkills(t.Context(), &pb.ListSkillsRequest{})
	var names []string
	for _, s := range list.GetSkills() {
		names = append(names, s.Name)
	}
	if err != nil || !slices.Equal(names, w.skills) {
		t.Errorf("skills %v, %v; want %v", names, err, w.skills)
	}
	runs, err := c.Executions().ListExecutions(t.Context(), &pb.ListExecutionsRequest{})
	if err != nil || len(runs.Executions) == 0 {
		t.Errorf("got %v, %v", runs, err)
	}
	for _, e := range runs.GetExecutions() {
		if !slices.Contains(w.principals, e.Principal) {
			t.Errorf("it sees an execution of %s", e.Principal)
		}
	}
	for _, missing := range []string{"secret", "json-transform"} {
		if !slices.Contains(w.skills, missing) {
			_, err := c.Skills().GetSkill(t.Context(), &pb.GetSkillRequest{Skill: missing})
			wantReason(t, err, codes.NotFound, "SKILL_NOT_FOUND", "")
		}
	}
}

// pythonTenant prints the skills and the principals that a tenant sees, and a program's output.
const pythonTenant = `
import asyncio, json, sys
import skillrun, skillrun.aio
address, ca, certificate, key, token = sys.argv[1:]
options = dict(tls_ca=ca, token_file=token or None, tls_cert=certificate or None, tls_key=key or None)
with skillrun.connect(address, **options) as client:
    text = client.run("calculator", script="scripts/calc.py", args=["6*7"]).result().check().text
    print(json.dumps([[s.name for s in client.skills()], sorted({e.principal for e in client.executions()}), text]))
async def main():
    async with skillrun.aio.connect(address, **options) as client:
        text = (await (await client.run("calculator", script="scripts/calc.py", args=["6*7"])).result()).check().text
        print(json.dumps([[s.name async for s in client.skills()], sorted({e.principal async for e in client.executions()}), text]))
asyncio.run(main())
`

func (w *documentTenant) byPython(t *testing.T) {
	packages, err := filepath.Abs(pythonPackage)
	if err != nil {
		t.Fatal(err)
	}
	cmd := w.client([]string{"PYTHONPATH=" + packages}, debianPython, "-c", pythonTenant, serverName+":7878", w.dir+"/ca.crt", w.credentials.Certificate, w.credentials.Key, w.tokenFile)
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		t.Fatalf("%v\n%s", err, exit.Stderr)
	}
	want, err := json.Marshal([]any{w.skills, w.principals[:1], "42\n"}) // MCP comes later
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.ReplaceAll(strings.ReplaceAll(string(out), `", "`, `","`), "], ", "],"); got != string(want)+"\n"+string(want)+"\n" {
		t.Errorf("got %s, want %s twice", got, want)
	}
}

func (w *documentTenant) byMCP(t *testing.T) {
	node := nodeProgram(t)
	module, err := filepath.Abs(filepath.Join(mcpClients, clientModule(t, "tenant.mjs")))
	if err != nil {
		t.Fatal(err)
	}
	cmd := w.client([]string{"NODE_EXTRA_CA_CERTS=" + w.dir + "/ca.crt"}, node, module, "https://"+serverName+":7879/mcp", w.token)
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		t.Fatalf("%v\n%s", err, exit.Stderr)
	}
	want, err := json.Marshal(map[string]any{"skills": w.skills, "stdout": "42\n"})
	if err != nil {
		t.Fatal(err)
	}
	if strings.TrimSpace(string(out)) != string(want) {
		t.Errorf("got %s, want %s", out, want)
	}
}
