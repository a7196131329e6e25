package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// busyWork reads an endless stream, which keeps the helper busy. In that time it makes one connection, and more after
// the test says so.
const busyWork = `
import socket, threading, urllib.request
def drain():
    s = socket.create_connection(("` + webAddress + `", 9001))
    while s.recv(1 << 16): pass
threading.Thread(target=drain, daemon=True).start()
def fetch():
    text = urllib.request.urlopen("http://` + webAddress + `/").read()
    assert text == b"hello, ` + webAddress + `\n", text
fetch()
control = socket.create_connection(("` + webAddress + `", 9000))
control.sendall(b"x")
assert control.recv(1) == b"y"
for _ in range(5): fetch()
print("worked")
`

// starveProcessor gives the cgroup of a process a twentieth of a processor.
func starveProcessor(t *testing.T, pid int) {
	t.Helper()
	group := helperGroup(t, pid, "cpu")
	var err error
	if unified() {
		err = os.WriteFile(filepath.Join(group, "cpu.max"), []byte("5000 100000"), 0)
	} else {
		err = os.WriteFile(filepath.Join(group, "cpu.cfs_quota_us"), []byte("5000"), 0)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A network helper that gets hardly any processor time is slow, and nothing breaks: connections come and go, the data is
// whole, and the daemon does not take the helper for dead. The other tenant's network works at the same time.
func TestStarvedNetworkHelper(t *testing.T) {
	t.Parallel()
	dir := newTenantsDir(t)
	for _, name := range []string{"acme", "globex"} {
		if err := os.WriteFile(filepath.Join(dir, "tenants", name+".yaml"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	writeSkill(t, dir, "online", "network_access: true", nil)
	internet, machine := newNamespace(t), newNamespace(t)
	connect(t, machine, daemonAddress+"/24", internet, webAddress+"/24")
	serveWeb(t, internet)
	var control, stream net.Listener
	internet.do(t, func() (err error) {
		if control, err = net.Listen("tcp", webAddress+":9000"); err == nil {
			stream, err = net.Listen("tcp", webAddress+":9001")
		}
		return err
	})
	defer control.Close()
	defer stream.Close()
	go func() {
		for {
			c, err := stream.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				block := make([]byte, 64<<10)
				for err == nil {
					_, err = c.Write(block)
				}
			}()
		}
	}()
	d := launchIn(t, dir, withTokens+`tenants_dir: tenants
network: {allow: ["`+webAddress+`:80,9000,9001"]}
`, machine)
	acme, globex := d.asTenant(t.Context(), "acme", "invoke"), d.asTenant(t.Context(), "globex", "invoke")
	run := func(tenant context.Context, program string) (*result, error) {
		s, err := d.runs.Execute(tenant, wall(code("online", program), patience))
		if err != nil {
			return nil, err
		}
		return collect(t, s, 0, nil)
	}
	if _, err := run(acme, "print()"); err != nil { // starts the helper
		t.Fatal(err)
	}
	helper := d.networkHelpers()
	if len(helper) != 1 {
		t.Fatalf("helpers: %v", helper)
	}
	pid, err := strconv.Atoi(helper[0])
	if err != nil {
		t.Fatal(err)
	}
	starveProcessor(t, pid)

	ended := make(chan string, 1)
	go func() {
		r, err := run(acme, busyWork)
		control.Close() // ends Accept, if the program did not come
		if err != nil {
			ended <- fmt.Sprint(err)
			return
		}
		ended <- fmt.Sprintf("%s %q %q", r.outcome.GetEnd(), r.stdout.String(), r.stderr.String())
	}()
	c, err := control.Accept()
	if err != nil {
		t.Fatalf("the starved tenant's program did not come: %s", <-ended)
	}
	defer c.Close()
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	r, err := run(globex, `import urllib.request; print(urllib.request.urlopen("http://`+webAddress+`/").read().decode(), end="")`)
	if err != nil {
		t.Fatal(err)
	}
	r.wantStdout(t, "hello, "+webAddress+"\n")
	if _, err := io.WriteString(c, "y"); err != nil {
		t.Error(err)
	}
	if got, want := <-ended, fmt.Sprintf("%s %q %q", pb.ExecutionEnd_EXECUTION_END_EXITED, "worked\n", ""); got != want {
		t.Errorf("the starved tenant: got %s, want %s", got, want)
	}
	if after := d.networkHelpers(); len(after) != 2 || after[0] != helper[0] && after[1] != helper[0] {
		t.Errorf("helpers: %v, then %v", helper, after)
	}
}
