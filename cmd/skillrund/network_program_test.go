package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A daemon with a network does not start without the helpers' program, or with the one of another release. Without a
// network, it needs none.
func TestNetworkProgramIsChecked(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	copyPrograms(t, map[string]string{filepath.Join(bin, "skillrund"): binary(t, "skillrund")})
	own := []string{"/bin/sh", "-c", "exec " + bin + `/skillrund "$@"`}
	refuses := func(want string) {
		t.Helper()
		d := launch(t, dir, "network: {allow: [public]}\n", own...)
		if err := d.wait(); err == nil || !strings.Contains(d.log.String(), want) {
			t.Errorf("ended with %v, want %s in\n%s", err, want, tail(d.log.String(), 2000))
		}
	}
	helper := filepath.Join(bin, "skillrun-network")
	refuses("network: a network needs the program skillrun-network in the directory of skillrund: stat " + helper + ": no such file or directory")
	writeProgram(t, helper, "#!/bin/sh\necho skillrun-network of another release\n")
	refuses(fmt.Sprintf(`%s is "skillrun-network of another release", want "skillrun-network `, helper))

	d := launch(t, dir, "", own...)
	d.dial("unix://" + dir + "/s.sock")
	d.waitServing()
}
