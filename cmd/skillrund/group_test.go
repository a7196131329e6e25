package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// A user of the socket's group needs no root, and another user is told what to do.
func TestSocketGroup(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "listen: {unix: s.sock, unix_group: '71234'}\n")
	for gid, want := range map[uint32]string{71234: "calculator", 71235: "permission denied (your user may not open the socket; join its group, by default with sudo usermod -aG skillrun $USER, and log in again)"} {
		list := exec.Command(binary(t, "skillrun"), "--address", "unix://"+d.dir+"/s.sock", "skills")
		list.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 71234, Gid: 71234, Groups: []uint32{gid}}}
		if gid != 71234 {
			list.SysProcAttr.Credential.Gid = gid
		}
		out, err := list.CombinedOutput()
		if (err == nil) != (gid == 71234) || !strings.Contains(string(out), want) {
			t.Errorf("group %d: %v\n%s\nwant %q", gid, err, out, want)
		}
	}
}

// The Python clients, too, tell a user without permission to open the socket what to do.
func TestSocketGroupPython(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "listen: {unix: s.sock, unix_group: '71234'}\n")
	// The user may not be able to read the sources.
	if err := os.CopyFS(d.dir+"/python/skillrun", os.DirFS(pythonPackage+"/skillrun")); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"threads": "print(len(list(skillrun.connect(a).skills())) > 0)",
		"asyncio": `
async def main():
    async with aio.connect(a) as c: print(len([s async for s in c.skills()]) > 0)
asyncio.run(main())`,
	} {
		for gid, want := range map[uint32]string{71234: "True", 71235: "your user may not open the socket; join its group, by default with sudo usermod -aG skillrun $USER, and log in again"} {
			list := exec.Command(debianPython, "-c", "import asyncio, sys, skillrun\nfrom skillrun import aio\na = sys.argv[1]\n"+text, "unix://"+d.dir+"/s.sock")
			list.Env = append(os.Environ(), "PYTHONPATH="+d.dir+"/python", "PYTHONDONTWRITEBYTECODE=1")
			list.Dir = "/"
			list.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 71234, Gid: gid, Groups: []uint32{gid}}}
			out, err := list.CombinedOutput()
			if (err == nil) != (gid == 71234) || !strings.Contains(string(out), want) {
				t.Errorf("%s, group %d: %v\n%s\nwant %q", name, gid, err, out, want)
			}
		}
	}
}

func TestSocketGroupOfTheConfiguration(t *testing.T) {
	for name, want := range map[string]int{"": -1, "0": 0, "71234": 71234, "root": 0} {
		var c config
		c.Listen.UnixGroup = name
		if gid, err := c.socketGroup(); err != nil || gid != want {
			t.Errorf("%q: got %d, %v; want %d", name, gid, err, want)
		}
	}
	path := writeConfig(t, "listen: {unix: s.sock, unix_group: no-such-group}\n")
	c, found, err := readConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	c.inspect(t.Context(), "", found.bad)
	if err := found.err(); err == nil || !strings.Contains(err.Error(), `line 1: listen.unix_group: "no-such-group" is not a group of this machine; run groupadd --system, or write a group that exists`) {
		t.Errorf("got %v", err)
	}
}
