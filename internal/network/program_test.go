package network

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Helpers are of the program that was opened, also if its file is replaced. A program that something wrote into
// is not executed.
func TestProgramChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), Program)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// cp writes the copy: a child that has just been forked would keep a file of this process open for writing.
	if out, err := exec.Command("/usr/bin/cp", self, path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	program, err := OpenProgram(path)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	m := newManager(t, func(c *Config) { c.Program = program })
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/false"), 0o755); err != nil {
		t.Fatal(err)
	}
	p := m.process(t, "a")
	p.kill()
	<-p.dead
	if out, err := exec.Command("/usr/bin/cp", "/bin/false", path+".old").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := m.startedFor("b"); err == nil || !strings.Contains(err.Error(), "was written to after the daemon had opened it") {
		t.Errorf("got %v", err)
	}
}

func TestNameServers(t *testing.T) {
	const text = "# nameserver 20.0.0.1\n; nameserver 20.0.0.2\nsearch example.com\nnameserver 20.0.0.3 # the first\n\tnameserver\t20.0.0.4\r\n" +
		"nameserver fe80::1%eth0\nnameserver ::1\nnameserver nonsense\nnameserver\nnameserver 20.0.0.5"
	var want []netip.AddrPort
	for _, a := range []string{"20.0.0.3", "20.0.0.4", "fe80::1%eth0", "::1", "20.0.0.5"} {
		want = append(want, netip.AddrPortFrom(netip.MustParseAddr(a), 53))
	}
	if got := nameServers(text); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
