package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/skillrun/skillrun/sandbox"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// TestMutationOfPrewarmed does the same as TestMutation with prewarmed sandboxes: with sandboxes that
// only the zygote has made, and with sandboxes in which a child of a Python zygote waits.

// A zygoteMutation has the expected results with one layer of a prewarmed sandbox off.
type zygoteMutation struct {
	mutation
	// Posture has parts of the log line with which the daemon would refuse the waiting
	// processes. This refusal is off as well, because it is the first line of defence. Empty:
	// the daemon sees no difference.
	Posture []string `json:"posture"`
}

// zygoteMutations returns the mutations by kind ("zygote" or "forked") and by layer.
func zygoteMutations(t testing.TB) map[string]map[string]zygoteMutation {
	t.Helper()
	all := map[string]map[string]zygoteMutation{}
	decodeStrictly(t, "mutations_zygote.json", &all)
	return all
}

// looks has attacks and checks from outside for which the catalogue has no case. They have
// names like cases in mutations_zygote.json.
var looks = map[string]func(testing.TB, *running){
	"look-credentials": checkCredentials, "look-descriptors": checkDescriptors, "look-ids": checkIDs, "look-init": checkInit, "look-keyring": checkKeyring,
	"look-limits": checkLimits, "look-namespaces": checkNamespaces, "look-snapshot": checkSnapshot,
	"look-processors": checkProcessors, "look-umask": checkUmask, "look-zygotes": checkZygotes,
}

// checkInit checks from outside the status of init in a prewarmed sandbox.
func checkInit(t testing.TB, d *running) {
	id := d.hold(1, shell("hostile", "echo up; trap '' TERM; while :; do sleep 1; done"))[0]
	boxes := d.boxesOfExecution(id)
	if len(boxes) != 1 {
		t.Fatalf("cgroups of %s: %v, want one", id, boxes)
	}
	for _, b := range boxes {
		status := statusOf(b.init)
		for key, want := range map[string]string{
			"CapEff": "00000000000001e0", "CapPrm": "00000000000001e0", "CapBnd": "00000000000001e0", // KILL, SETGID, SETUID, SETPCAP
			"CapInh": "0000000000000000", "CapAmb": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2",
			"Seccomp_filters": moreFilters(statusOf(d.zygotePid()), 1),
		} {
			if status[key] != want {
				t.Errorf("%s of init: got %s, want %s", key, status[key], want)
			}
		}
		// If a process is dumpable, its files in /proc belong to its own user
		// (PR_SET_DUMPABLE, prctl(2)). init must not be dumpable.
		own, _, _ := strings.Cut(status["Uid"], "\t")
		info, err := os.Stat("/proc/" + b.init + "/environ")
		if err != nil {
			t.Error(err)
		} else if uid := info.Sys().(*syscall.Stat_t).Uid; fmt.Sprint(uid) == own {
			t.Error("init's files in /proc are its own user's")
		}
		if parent := status["PPid"]; parent != d.zygotePid() {
			t.Errorf("the parent of init of %v is %s, want the zygote", b, parent)
		}
	}
	d.cancel(id)
}

// moreFilters returns the number of a process's seccomp filters plus n.
func moreFilters(status map[string]string, n int) string {
	have, _ := strconv.Atoi(status["Seccomp_filters"])
	return strconv.Itoa(have + n)
}

// checkZygotes checks from outside the status of the zygote, which clones sandboxes, and of
// its Python zygotes.
func checkZygotes(t testing.TB, d *running) {
	d.run(code("hostile", "import os")) // makes the daemon start a Python zygote
	zygote := d.zygotePid()
	own := statusOf(zygote)
	daemon := statusOf(strconv.Itoa(d.cmd.Process.Pid))
	look := func(who string, status, want map[string]string) {
		for key, value := range want {
			if status[key] != value {
				t.Errorf("%s of %s: got %s, want %s", key, who, status[key], value)
			}
		}
	}
	look("the zygote", own, map[string]string{
		"CapEff": "00000000000000c0", "CapInh": "0000000000000000", "CapAmb": "0000000000000000", // SETGID, SETUID
		"NoNewPrivs": "1", "Seccomp": "2", "Seccomp_filters": moreFilters(daemon, 1),
	})
	for _, pid := range d.pythonZygotes() {
		look("a Python zygote", statusOf(pid), map[string]string{
			"CapEff": "0000000000200000", "CapPrm": "0000000000200000", "CapInh": "0000000000000000", "CapAmb": "0000000000000000", // SYS_ADMIN
			"NoNewPrivs": "1", "Seccomp": "2", "Seccomp_filters": moreFilters(daemon, 2),
		})
	}
}

// pythonZygotes returns the pids of the daemon's Python zygotes.
func (d *running) pythonZygotes() (pids []string) {
	zygote := d.zygotePid()
	uid := statusOf(zygote)["Uid"]
	for _, b := range boxesOf(d.instance()) {
		for _, pid := range b.pids {
			status := statusOf(pid)
			if b.name == zygoteBox && status["PPid"] == zygote && status["Uid"] == uid && strings.HasPrefix(status["Name"], "python") {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// checkKeyring checks that two executions share no keyring, if they can see any.
func checkKeyring(t testing.TB, d *running) {
	const session = "import ctypes\nprint(ctypes.CDLL(None).syscall(250, 0, ctypes.c_long(-3), 0))\n" // KEYCTL_GET_KEYRING_ID
	first := d.run(code("hostile", session)).stdout.String()
	if second := d.run(code("hostile", session)).stdout.String(); second == first && first != "-1\n" {
		t.Errorf("a keyring of two executions: %s", first)
	}
}

// checkProcessors checks that the kernel has the limit of processors.
func checkProcessors(t testing.TB, d *running) {
	req := shell("hostile", "echo up; trap '' TERM; while :; do sleep 1; done")
	req.Limits = &pb.ExecutionLimits{MilliCpus: 500}
	id := d.hold(1, req)[0]
	got := ""
	for _, b := range d.boxesOfExecution(id) {
		for _, path := range b.paths {
			for _, name := range []string{"cpu.max", "cpu.cfs_quota_us"} {
				if data, err := os.ReadFile(filepath.Join(path, name)); err == nil {
					got = strings.TrimSpace(string(data))
				}
			}
		}
	}
	if quota, _, _ := strings.Cut(got, " "); quota != "50000" {
		t.Errorf("processor time: got %q, want 50000 of 100000 us", got)
	}
	d.cancel(id)
}

// The checks below run Python, which is forked from a Python zygote or executed by init.

// checkLimits checks the limits that every sandbox has, independent of the request.
func checkLimits(t testing.TB, d *running) {
	out := strings.Join(strings.Fields(d.run(code("hostile", "import os\nprint(open('/proc/self/limits').read())")).stdout.String()), " ")
	for _, want := range []string{"Max locked memory 65536 65536", "Max msgqueue size 0 0", "Max pending signals 256 256", "Max file locks 1024 1024"} {
		if !strings.Contains(out, want) {
			t.Errorf("limits without %s: %s", want, out)
		}
	}
}

// checkSnapshot checks that an execution can't write to the snapshot that all executions of
// the skill read.
func checkSnapshot(t testing.TB, d *running) {
	const write = "import os\ntry: os.close(os.open('/skills/hostile/data/lock', os.O_WRONLY)); print('opened')\nexcept OSError as e: print(e.strerror)"
	if got := d.run(code("hostile", write)).stdout.String(); got != "Read-only file system\n" {
		t.Errorf("writing to the skill: %s", got)
	}
}

func checkUmask(t testing.TB, d *running) {
	if got := d.run(code("hostile", "import os\nprint('%04o' % os.umask(0))")).stdout.String(); got != "0077\n" {
		t.Errorf("umask %s", got)
	}
}

func checkIDs(t testing.TB, d *running) {
	r := d.run(code("hostile", "import os\nprint(*os.getresuid(), *os.getresgid(), *os.getgroups())"))
	if got := r.stdout.String(); got != "1000 1000 1000 1000 1000 1000\n" {
		t.Errorf("ids %s%s", got, r.stderr.String())
	}
}

// checkCredentials checks the same as the beginning of the case k-14-credentials.
func checkCredentials(t testing.TB, d *running) {
	r := d.run(code("hostile", "import os\nfor l in open('/proc/self/status'):\n  if l[:3] == 'Cap': print(*l.split())"))
	for line := range strings.Lines(r.stdout.String()) {
		if !strings.HasSuffix(line, ": 0000000000000000\n") {
			t.Errorf("%s", strings.Replace(line, ":", "", 1))
		}
	}
	if n := strings.Count(r.stdout.String(), "\n"); n != 5 {
		t.Errorf("%d sets of capabilities, want 5: %s", n, r.stderr.String())
	}
}

func checkDescriptors(t testing.TB, d *running) {
	r := d.run(code("hostile", "import os\nprint(*sorted(int(n) for n in os.listdir('/proc/self/fd')))"))
	if got := r.stdout.String(); got != "0 1 2 3\n" { // 3 is the descriptor of the listing itself
		t.Errorf("descriptors %s%s", got, r.stderr.String())
	}
}

// checkNamespaces checks that an execution shares no namespace with the zygote.
func checkNamespaces(t testing.TB, d *running) {
	r := d.run(code("hostile", "import os\nfor n in os.listdir('/proc/self/ns'): print(n, os.readlink('/proc/self/ns/' + n))"))
	pid, seen := d.zygotePid(), 0
	for line := range strings.Lines(r.stdout.String()) {
		name, link, _ := strings.Cut(strings.TrimSpace(line), " ")
		zygotes, err := os.Readlink("/proc/" + pid + "/ns/" + name)
		if err != nil {
			t.Error(err)
		}
		if link == zygotes {
			t.Errorf("%s namespace of the zygote's", name)
		}
		seen++
	}
	if seen < 8 {
		t.Errorf("%d namespaces: %v %s", seen, r.outcome, r.stderr.String())
	}
}

// cancel cancels an execution and waits for its end.
func (d *running) cancel(id string) {
	d.t.Helper()
	if _, err := d.runs.CancelExecution(d.t.Context(), &pb.CancelExecutionRequest{ExecutionId: id}); err != nil {
		d.t.Error(err)
	}
	d.attach(id, 0)
}

// prewarmedConfig returns a configuration with which the daemon serves although boundaries are
// missing.
func prewarmedConfig(pythonZygotes int) string {
	return "boundaries: {allow_missing: [" + strings.Join(sandbox.Lowerable(), ", ") + "]}\n" +
		"prepared: {sandboxes: 8, python_zygotes: " + strconv.Itoa(pythonZygotes) + "}\n"
}

func startFaultyZygote(t testing.TB, program, layer string, pythonZygotes int) *running {
	t.Helper()
	d := launchFaulty(t, program, layer, prewarmedConfig(pythonZygotes))
	d.waitServing()
	return d
}

func TestMutationOfPrewarmed(t *testing.T) {
	mutates(t)
	daemon := buildFaulty(t)
	cases := hostileCasesByID(t)
	all := zygoteMutations(t)
	every := map[string]bool{}
	for kind, layers := range all {
		for layer, m := range layers {
			for _, id := range m.cases() {
				if c, ok := cases[id]; (!ok || !c.inSandbox() || c.Advisory) && looks[id] == nil {
					t.Fatalf("mutations_zygote.json: %s: %s: %s is no case that fails in a sandbox", kind, layer, id)
				}
				every[id] = true
			}
		}
	}
	// Several layers run at once, but the cases of a layer one after the other: the start of
	// a daemon takes longer than most cases.
	places := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	run := func(name string, f func(t *testing.T)) {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			t.Run(name, f)
		})
	}
	// The same build passes with all layers on, so a failure below is caused by the layer.
	run("nothing", func(t *testing.T) {
		d := startFaultyZygote(t, daemon, "", 4)
		d.wantJudgedBefore(t, cases, mutation{Green: slices.Sorted(maps.Keys(every))}, false)
	})
	run("posture", func(t *testing.T) { wantPostureEnforced(t, daemon, cases) })
	for kind, layers := range all {
		for layer, m := range layers {
			run(kind+": "+layer, func(t *testing.T) { wantRed(t, daemon, cases, kind, layer, m) })
		}
	}
	wg.Wait()
}

func wantRed(t *testing.T, daemon string, cases map[string]hostileCase, kind, layer string, m zygoteMutation) {
	pythonZygotes := 0
	if kind == "forked" {
		pythonZygotes = 4
	}
	d := startFaultyZygote(t, daemon, kind+": "+layer, pythonZygotes)
	d.wantMissing(m.Daemon)
	d.wantJudgedBefore(t, cases, m.mutation, kind == "forked")
	words := m.Posture
	if m.Refused != "" {
		words = append(words, m.Refused)
	}
	for _, w := range words {
		until(t, "the daemon's log does not say "+strconv.Quote(w), func() bool {
			d.run(code("hostile", "import os"))
			return strings.Contains(d.log.String(), strings.ReplaceAll(w, `"`, `\"`))
		})
	}
	if log := d.log.String(); len(m.Posture) == 0 && strings.Contains(log, "a posture differs") {
		t.Error("the posture that was read back differs")
	} else if m.Refused == "" && (strings.Contains(log, "a sandbox could not be prewarmed") || strings.Contains(log, "the zygote could not make a sandbox")) {
		t.Error("no sandbox could be made without the layer")
	}
}

// wantPostureEnforced removes layers, but the daemon still checks the posture of waiting
// processes. It must use none whose posture differs, and log that. Programs then run in
// sandboxes that libcontainer makes, which have all layers.
func wantPostureEnforced(t *testing.T, daemon string, cases map[string]hostileCase) {
	for layer, w := range map[string]string{
		"zygote: network": "net namespace: got the zygote's", "zygote: bounding set": "CapBnd: got ", "forked: capabilities": "CapEff: got ",
	} {
		t.Run(layer, func(t *testing.T) {
			d := startFaultyZygote(t, daemon, layer+", read back", 4)
			until(t, "nothing in the log of what is refused", func() bool {
				d.wantJudgedBefore(t, cases, mutation{Green: []string{"look-namespaces"}}, false)
				return t.Failed() || d.logLine("posture: ", w) != ""
			})
			d.wantJudgedBefore(t, cases, mutation{Green: []string{"k-12-socket-families", "look-credentials"}}, false)
		})
	}
}

// wantJudgedBefore runs the cases of m, one after the other. If forked, it repeats a case that
// must fail until the case fails: until a child of a Python zygote waits, a case runs in a
// sandbox that has all layers.
func (d *running) wantJudgedBefore(t testing.TB, cases map[string]hostileCase, m mutation, forked bool) {
	t.Helper()
	for _, id := range m.cases() {
		words, red := m.Red[id]
		deadline := time.Now().Add(patience)
		v := d.judgedOne(t, cases, id)
		for forked && red && !v.Failed() && time.Now().Before(deadline) {
			v = d.judgedOne(t, cases, id)
		}
		switch {
		case !red && v.Failed():
			t.Errorf("%s fails:\n%s", id, tail(v.text(), 3000))
		case red && !v.Failed():
			t.Errorf("%s does not notice:\n%s", id, tail(v.text(), 3000))
		case red && !strings.Contains(v.text(), words):
			t.Errorf("%s fails, but not with %q:\n%s", id, words, tail(v.text(), 3000))
		}
	}
}

func (d *running) judgedOne(t testing.TB, cases map[string]hostileCase, id string) *verdict {
	return judged(t, func(t testing.TB) {
		if look, ok := looks[id]; ok {
			mine := *d
			mine.t = t
			look(t, &mine)
			return
		}
		runInSandbox(t, d, cases[id])
	})
}

// A Python zygote may end before its child can ask the kernel for a signal at its parent's end. Then the
// child lives on, and no process gets its wait status. No script may run in such a child: the daemon
// executes the script instead, and records the script's own end. No sandbox is prewarmed, so each script
// would get the child that was forked for it.
func TestMutationOrphans(t *testing.T) {
	mutates(t)
	d := launchFaulty(t, buildFaulty(t), "forked: orphans", "prepared: {sandboxes: 0, python_zygotes: 4}\n")
	d.waitServing()
	until(t, "no child lost its Python zygote", func() bool {
		r := d.run(code("hostile", "import sys\nprint('ran')\nsys.exit(3)"))
		r.wantStdout(t, "ran\n")
		r.wantExit(t, 3)
		return t.Failed() || d.logLine("ended before its child waited") != ""
	})
}
