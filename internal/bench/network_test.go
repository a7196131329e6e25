package bench

import (
	"errors"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// testInternet skips the test on a machine that lacks a program or a device of the rows.
func testInternet(t *testing.T) *internet {
	t.Helper()
	if testing.Short() {
		t.Skip("makes network namespaces, which needs root: -short leaves it out")
	}
	if err := hasPython(); err != nil {
		t.Skip(err)
	}
	i, err := newInternet()
	if missing := notRun(""); errors.As(err, &missing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.close)
	return i
}

// The script does what each row asks for, without a sandbox.
func TestNetworkProgram(t *testing.T) {
	script := bareIn(testInternet(t).machine)
	for _, tt := range []struct {
		kind, size string
		want       int // numbers
	}{{"send", "1048576", 1}, {"receive", "1048576", 1}, {"connect", "5", 5}, {"refuse", "5", 5}, {"many", "20", 1}, {"closing", "5", 1}} {
		got, err := script(tt.kind, tt.size)
		if err != nil || len(got) != tt.want || slices.Min(got) <= 0 {
			t.Errorf("%s: got %v, %v, want %d positive numbers", tt.kind, got, err, tt.want)
		}
	}
	if got, err := script("nothing", "1"); err == nil {
		t.Errorf("an unknown kind: got %v, want an error", got)
	}
}

// No packet of the benchmark can leave its namespaces.
func TestInternetIsClosed(t *testing.T) {
	i := testInternet(t)
	if err := i.servers.run(exec.Command("ip", "route", "get", "192.0.2.1")); err == nil {
		t.Error("the servers have a way out")
	}
}

// Each peer carries the script, and nothing of it stays.
func TestAttachers(t *testing.T) {
	i := testInternet(t)
	for _, p := range attachers {
		t.Run(p.name, func(t *testing.T) {
			if _, err := exec.LookPath(p.name); err != nil {
				t.Skip(p.name, "is not installed")
			}
			n, end, err := attached(&run{dir: t.TempDir()}, i.machine, p.attach)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := bareIn(n)("connect", "3"); err != nil || len(got) != 3 {
				t.Errorf("got %v, %v, want three times", got, err)
			}
			if err := end(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A peer that fails again and again is left out of later turns. One that fails sometimes has a figure and the number of
// failures. An error of the sandbox or of the bare script ends the row.
func TestTurns(t *testing.T) {
	r := &run{Config: Config{Say: func(string, ...any) {}}, ctx: t.Context()}
	failed := errors.New("failed")
	calls := 0
	good := func(...string) ([]float64, error) { return []float64{1, 2}, nil }
	bad := func(...string) ([]float64, error) { calls++; return nil, failed }
	all := []*carrier{{name: "skillrun", run: good}, {name: "bare", run: good}, {name: "peer", run: bad}}
	samples, err := r.turns(3, all, "connect", "2")
	if err != nil || len(samples[0]) != 6 || len(samples[1]) != 6 || samples[2] != nil || calls != peerTries || !errors.Is(all[2].broken, failed) {
		t.Errorf("got %v, %v, after %d calls of the peer: %v", samples, err, calls, all[2].broken)
	}
	all[2].run = good
	if again, err := r.turns(3, all, "connect", "2"); err != nil || len(again[2]) != 6 || all[2].broken != nil {
		t.Errorf("a peer that works again: got %v, %v, %v", again[2], err, all[2].broken)
	}
	calls = 0
	all[2].run = func(...string) ([]float64, error) {
		if calls++; calls%2 == 1 {
			return nil, failed
		}
		return good()
	}
	sometimes := Row{Unit: "ms"}
	samples, err = r.turns(3, all, "connect", "2")
	sometimes.setCarriers(all, samples, func(int) float64 { return 7 })
	if err != nil || len(samples[2]) != 6 || sometimes.peerText("peer") != "7 ms (4 failed runs were repeated)" {
		t.Errorf("a peer that fails in every second run: got %v, %v, %q", samples, err, sometimes.peerText("peer"))
	}
	all[2].run, all[2].broken = nil, failed
	if again, err := r.turns(3, all, "connect", "2"); err != nil || again[2] != nil || all[2].broken != failed {
		t.Errorf("a peer that is not attached: got %v, %v, %v", again[2], err, all[2].broken)
	}
	all[0].run = bad
	if _, err := r.turns(3, all, "connect", "2"); !errors.Is(err, failed) {
		t.Errorf("got %v, want the sandbox's error", err)
	}
	var row Row
	row.setCarriers(all, samples, func(int) float64 { return 7 })
	if got := row.Peers["peer"]; got.Broken == "" || got.Value != 0 {
		t.Errorf("got %+v, want a broken peer", got)
	}
}

// A slow peer has a figure of the turns that it took. The sandbox takes all turns, however slow it is.
func TestTurnsOfASlowPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &run{Config: Config{Say: func(string, ...any) {}}, ctx: t.Context()}
		taking := func(d time.Duration) func(...string) ([]float64, error) {
			return func(...string) ([]float64, error) { time.Sleep(d); return []float64{1}, nil }
		}
		all := []*carrier{{run: taking(time.Minute)}, {run: taking(0)}, {run: taking(20 * time.Second)}, {run: taking(time.Hour)}}
		for again := range 2 { // the time of earlier turns does not count
			samples, err := r.turns(10, all, "send", "1")
			if err != nil || len(samples[0]) != 10 || len(samples[1]) != 10 || len(samples[2]) != 2 || len(samples[3]) != 1 {
				t.Errorf("round %d: got %v, %v, want 10, 10, 2 and 1 samples", again, samples, err)
			}
		}
	})
}

func TestNumbersOfAScript(t *testing.T) {
	if got, err := numbers([]byte("12\n3.5\n")); err != nil || !slices.Equal(got, []float64{12, 3.5}) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, out := range []string{"", "\n", "12\nx\n"} {
		if got, err := numbers([]byte(out)); err == nil {
			t.Errorf("%q: got %v, want an error", out, got)
		}
	}
}

// The script that holds connections says so, and keeps them.
func TestHoldProgram(t *testing.T) {
	i := testInternet(t)
	cmd := exec.Command("bash", "-c", holdProgram, "hold.sh", "3")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := i.machine.do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Signal(syscall.SIGKILL)
		cmd.Wait() // it reports the signal
	}()
	h := &holder{opened: make(chan struct{})}
	b := make([]byte, 16)
	n, err := out.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	h.Write(b[:n])
	select {
	case <-h.opened:
	default:
		t.Errorf("got %q, want open", b[:n])
	}
}
