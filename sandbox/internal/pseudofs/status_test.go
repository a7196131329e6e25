package pseudofs

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestStatus(t *testing.T) {
	status, err := ReadStatus("self")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := status.Of("Pid"), strconv.Itoa(os.Getpid()); got != want {
		t.Errorf("Pid: got %q, want %q", got, want)
	}
	if value, known := status.Value("Nothing"); known || value != "" || status.Of("Nothing") != "" {
		t.Errorf("a key that is not there: got %q, %v", value, known)
	}
	if own, err := OwnFilters(); err != nil || own != 0 && strconv.Itoa(own) != status.Of("Seccomp_filters") {
		t.Errorf("own filters: got %d, %v, want %q", own, err, status.Of("Seccomp_filters"))
	}
	if _, err := ReadStatus("0"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no process: got %v", err)
	}
}

// The error of Compare names each difference, in one line. A kernel without Seccomp_filters has
// no difference there.
func TestStatusCompare(t *testing.T) {
	status := Status("Name:\tx\nUid:\t1\t1\t1\t1\nCapEff:\t0000\nThreads:\t1\n")
	if err := status.Compare([][2]string{{"Uid", "1\t1\t1\t1"}, {"Threads", "1"}, {"Seccomp_filters", "2"}}); err != nil {
		t.Errorf("got %v, want no difference", err)
	}
	err := status.Compare([][2]string{{"Uid", "2"}, {"Threads", "1"}, {"NoNewPrivs", "1"}})
	if want := `Uid: got "1\t1\t1\t1", want "2"; NoNewPrivs: got "", want "1"`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	one := errors.New("one")
	if err := (Differences{}).And(nil).And(one).OrNil(); !errors.Is(err, one) {
		t.Errorf("got %v, want %v in it", err, one)
	}
}

func TestPIDOf(t *testing.T) {
	cmd := exec.Command("/bin/cat")
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if got, err := PIDOf(fd); err != nil || got != cmd.Process.Pid {
		t.Errorf("got %d, %v, want %d", got, err, cmd.Process.Pid)
	}
	stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if got, err := PIDOf(fd); err == nil || !strings.Contains(err.Error(), "process is gone") {
		t.Errorf("a process that has ended: got %d, %v", got, err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if got, err := PIDOf(int(null.Fd())); err == nil || !strings.Contains(err.Error(), "no pid") {
		t.Errorf("no pidfd: got %d, %v", got, err)
	}
	if got, err := PIDOf(1 << 20); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no descriptor: got %d, %v", got, err)
	}
}
