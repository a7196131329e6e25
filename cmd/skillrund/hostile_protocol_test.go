package main

import (
	"bufio"
	"errors"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// protocols maps the protocols of the catalogue, which need several executions, to functions.
var protocols = map[string]func(testing.TB, *running, hostileCase){
	// The daemon has a single tenant, so both runs belong to it.
	"sequential: run twice, same tenant then other tenant": runTwice,
	"sequential: run twice":                                runTwice,
	"sequential: run twice as two tenants":                 runTwice,

	"concurrent: start A, then B 0.5 s later: B must not see A's locks":                                                            runBesideOne,
	"concurrent: two runs; host side: the two host uid ranges are disjoint, both >= 65536, and not reused before cleanup finished": idsAreApart,
	"concurrent: start A, then B and host programs: A must not see what they open":                                                 runWatched,
	"run two at once plus a host-side connect to 127.0.0.1:18080":                                                                  runTwoListeners,
}

func runTwice(t testing.TB, d *running, c hostileCase) {
	for range 2 {
		newTrial(t, d, c).run()
	}
}

// runBesideOne runs a second execution while the first one waits at its end for a line.
func runBesideOne(t testing.TB, d *running, c hostileCase) {
	first, release := startHeld(t, d, c)
	second := newTrial(t, d, c)
	second.run()
	release()
	newTrialOf(t, d, c, first()).judge()
}

// runWatched is runBesideOne, but the host and the daemon also open the watched files.
func runWatched(t testing.TB, d *running, c hostileCase) {
	first, release := startHeld(t, d, c)
	newTrial(t, d, c).run()
	for _, path := range []string{"/", "/usr", "/usr/bin", "/usr/bin/env", "/etc", "/etc/passwd", "/etc/services", "/dev/null"} {
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) { // a small machine has no /etc/services
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		_, _ = f.Read(make([]byte, 1)) // fails for directories, which does not matter
		f.Close()
	}
	if out, err := exec.Command("/usr/bin/python3", "-c", "import ctypes").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s, err := d.skills.ReadSkillFile(t.Context(), &pb.ReadSkillFileRequest{Skill: "hostile", Path: "data/lock"})
	if err == nil {
		_, err = s.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	release()
	newTrialOf(t, d, c, first()).judge()
}

// startHeld starts a case that prints "held" and then waits for a line. release sends the
// line; wait returns the result.
func startHeld(t testing.TB, d *running, c hostileCase) (wait func() *result, release func()) {
	t.Helper()
	s, err := d.runs.ExecuteInteractive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Start{Start: c.request()}}); err != nil {
		t.Fatal(err)
	}
	held, over, ended := make(chan struct{}), make(chan struct{}), make(chan *result, 1)
	go func() {
		seen := ""
		r, err := collect(t, s, 0, func(e *pb.ExecutionEvent) {
			if before := strings.Contains(seen, "held"); !before {
				if seen += string(e.GetOutput().GetData()); strings.Contains(seen, "held") {
					close(held)
				}
			}
		})
		if err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
		close(over)
		ended <- r
	}()
	t.Cleanup(func() { <-over }) // the collecting goroutine must end before the test does
	select {
	case <-held:
	case r := <-ended:
		t.Fatalf("ended before it held anything: %v %s", r.outcome, r.stderr.String())
	}
	return func() *result { return <-ended }, func() {
		if err := s.Send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Stdin{Stdin: []byte("go\n")}}); err != nil {
			t.Error(err)
		}
	}
}

func newTrialOf(t testing.TB, d *running, c hostileCase, r *result) *trial {
	tr := newTrial(t, d, c)
	tr.r, tr.id = r, r.id
	return tr
}

// idsAreApart runs A and B at the same time and a third execution after A: no two of them
// that live at the same time have an id in common.
func idsAreApart(t testing.TB, d *running, c hostileCase) {
	held := c
	held.Code += "\nprint('held', flush=True); input()\n"
	waitA, releaseA := startHeld(t, d, held)
	waitB, releaseB := startHeld(t, d, held)
	releaseA()
	a := waitA()
	// The third execution may not get ids of B, which still runs. It may get ids of A
	// after nothing of A is left.
	newTrialOf(t, d, c, a).judge()
	third := newTrial(t, d, c)
	third.run()
	releaseB()
	b := waitB()
	newTrialOf(t, d, c, b).judge()
	ids := map[string]map[int]bool{}
	for name, r := range map[string]*result{"A": a, "B": b, "third": third.r} {
		ids[name] = map[int]bool{}
		for _, n := range hostIDs(t, r) {
			// A prewarmed sandbox reports its ids in the zygote's user namespace, in which the
			// zygote has the first two. idsAreNobodys checks the ids on the machine.
			if n < 2 {
				t.Errorf("%s has the id %d, which is its zygote's or an account's", name, n)
			}
			ids[name][n] = true
		}
		if len(ids[name]) != 2 {
			t.Errorf("%s has the ids %v, want two", name, ids[name])
		}
	}
	for n := range ids["B"] {
		if ids["A"][n] || ids["third"][n] {
			t.Errorf("host id %d is of two that live at once: %v", n, ids)
		}
	}
}

// hostIDs reads the id maps that the case prints. Here all sandboxes are prewarmed, or none
// is, so the ids are comparable.
func hostIDs(t testing.TB, r *result) []int {
	t.Helper()
	var ids []int
	scanner := bufio.NewScanner(strings.NewReader(r.stdout.String()))
	for scanner.Scan() {
		fields := strings.FieldsFunc(scanner.Text(), func(r rune) bool { return strings.ContainsRune(" [],'", r) })
		if len(fields) < 7 || fields[0] != "INFO" {
			continue
		}
		for i := 1; i+2 < len(fields); i += 3 {
			n, err := strconv.Atoi(fields[i+1])
			if err != nil {
				t.Fatalf("%q: %v", scanner.Text(), err)
			}
			ids = append(ids, n)
		}
	}
	if len(ids) != 4 {
		t.Fatalf("maps %v in %q, want two each for uids and gids", ids, r.stdout.String())
	}
	return ids
}

// runTwoListeners runs two executions that listen on the same port, and tries the port from
// outside at the same time.
func runTwoListeners(t testing.TB, d *running, c hostileCase) {
	// Another program of this machine may listen on the catalogue's port.
	port := freePort(t)
	held := c
	held.Code = strings.ReplaceAll(c.Code, "18080", port)
	held.Code = strings.Replace(held.Code, "s.settimeout(2)", "print('held', flush=True); input(); s.settimeout(0.2)", 1)
	if !strings.Contains(held.Code, port) || !strings.Contains(held.Code, "held") {
		t.Fatal("the case has no port, or no place to hold it at")
	}
	waitA, releaseA := startHeld(t, d, held)
	waitB, releaseB := startHeld(t, d, held)
	if conn, err := net.Dial("tcp", "127.0.0.1:"+port); err == nil {
		conn.Close()
		t.Error("the machine's own loopback reaches a sandbox")
	}
	// A third sandbox tries the port on every loopback address. All addresses are its own.
	probe := newTrial(t, d, c)
	probe.c.Code = "import socket\nfor h in ('127.0.0.1', '::1', '127.0.0.2', '0.0.0.0'):\n    try: socket.create_connection((h, " + port + "), 1); print('FAIL', h)\n    except OSError as e: print('PASS', h, e)\n"
	probe.run()
	releaseA()
	releaseB()
	newTrialOf(t, d, c, waitA()).judge()
	newTrialOf(t, d, c, waitB()).judge()
}

// freePort returns a TCP port on which nothing listens. It lies below the range from which
// the kernel takes the ports of clients, ip_local_port_range in ip(7).
func freePort(t testing.TB) string {
	t.Helper()
	for range 100 {
		port := strconv.Itoa(20_000 + rand.IntN(10_000))
		if l, err := net.Listen("tcp", ":"+port); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no free port among 100")
	return ""
}
