package cgroup

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// The rules for devices hold in the group and in its children, in addition to a sandbox's
// other restrictions. To set them again changes nothing.
func TestUnifiedDevices(t *testing.T) {
	h := realGroup(t)
	tries := func() string {
		g := h.Group("sandbox")
		if err := os.MkdirAll(g.Dirs[""], 0o755); err != nil {
			t.Fatal(err)
		}
		dir, err := os.Open(g.Dirs[""])
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		cmd := exec.Command("sh", "-c", `for d in "null 1 3" "zero 1 5" "mem 1 1" "loop 7 0"; do set -- $d
			kind=c; [ $1 = loop ] && kind=b
			rm -f $1; mknod $1 $kind $2 $3 2>/dev/null && echo made $1
			[ -e $1 ] && head -c 1 $1 >/dev/null 2>&1 && echo read $1
		done; head -c 1 /dev/zero >/dev/null && echo read /dev/zero`)
		cmd.Dir = t.TempDir()
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd()), Pdeathsig: syscall.SIGKILL}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	if got := tries(); !strings.Contains(got, "made mem\n") || !strings.Contains(got, "made loop\n") {
		t.Fatalf("without rules: got %q; this machine makes no devices, and nothing would be shown", got)
	}
	for range 2 {
		if err := h.Group().LimitDevices(); err != nil {
			t.Fatal(err)
		}
		got := tries()
		if strings.Contains(got, " mem\n") || strings.Contains(got, " loop\n") || !strings.Contains(got, "read /dev/zero\n") {
			t.Errorf("with rules: got %q, want no more than a sandbox's devices", got)
		}
	}
}
