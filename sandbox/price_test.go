//go:build skillrun_faults

package sandbox

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/bench"
)

// The cost of each boundary: a sandbox with every layer and one without one layer take
// turns. make bench-boundaries runs it.

var (
	pairsFlag   = flag.Int("pairs", 10, "pairs of each layer's price")
	pricesFlag  = flag.String("prices", "", "write the prices into this `document`, between its marks")
	versionFlag = flag.String("version", "dev", "of what is measured")
)

// notPriced are faults without a price. Without some layers no sandbox can be made. Other
// faults replace a layer with something as costly, such as another limit or mount option.
// The rest are names for several faults at once.
var notPriced = []string{
	"pid namespace", "mnt namespace", "no new privileges", "nor a filter", "keyring and filter",
	"core dumps", "devices", "files of the host", "memory limit", "mount flags", "oom score", "process limit", "process view", "processors", "sizes", "snapshot", "umask",
}

// The largest sets of layers that a sandbox can be made without (docs/performance.md).
var (
	allDirect = []string{
		"user namespace", "network", "ipc namespace", "uts namespace", "cgroup namespace", "time namespace", "masks", "sysctls", "seccomp", "posture",
	}
	allPrewarmed = []string{
		"user namespace", "network", "ipc namespace", "uts namespace", "cgroup namespace", "time namespace", "cgroups", "masks", "read-only proc", "sysctls",
		"filters", "bounding set", "keyring", "posture",
	}
)

func TestPriceOfBoundaries(t *testing.T) {
	prices := bench.NewPrices(*versionFlag)
	prices.Lists = append(prices.Lists, priceDirect(t))
	prices.Lists = append(prices.Lists, pricePrewarmed(t)...)
	prices.End()
	var text bytes.Buffer
	if err := prices.Markdown(&text); err != nil {
		t.Fatal(err)
	}
	fmt.Println(text.String())
	if *pricesFlag == "" {
		return
	}
	document, err := os.ReadFile(*pricesFlag)
	if err != nil {
		t.Fatal(err)
	}
	written, err := prices.IntoDocument(string(document))
	if err != nil {
		t.Fatalf("%s: %v", *pricesFlag, err)
	}
	if err := os.WriteFile(*pricesFlag, []byte(written), 0o644); err != nil {
		t.Fatal(err)
	}
}

// openWeak opens a Host without the layers; "" is with all.
func openWeak(t *testing.T, prefix string, prewarmed int, layers ...string) *Host {
	t.Helper()
	name := strings.Join(layers, andLayer)
	if name != "" {
		name = prefix + name
	}
	t.Setenv(faultsVar, name)
	// On a disk, like the daemon's. t.TempDir may be elsewhere.
	dir, err := os.MkdirTemp("/var/tmp", "skillrun-price-")
	if err == nil {
		err = os.Chmod(dir, 0o711)
	}
	if err != nil {
		t.Fatal(err)
	}
	h, err := Open(t.Context(), Config{StateDir: filepath.Join(dir, "state"), RunDir: filepath.Join(dir, "run"), Prewarmed: prewarmed})
	if err != nil {
		os.RemoveAll(dir)
		t.Fatalf("without %q: %v", name, err)
	}
	if prewarmed > 0 && !h.pool.wait(t.Context()) {
		t.Fatalf("without %q: no zygote", name)
	}
	return h
}

func closeWeak(t *testing.T, h *Host) {
	t.Helper()
	if err := errors.Join(h.Close(), os.RemoveAll(filepath.Dir(h.config.StateDir))); err != nil {
		t.Error(err)
	}
}

// eachLayer calls f for each layer, for no layer, which shows the noise, and for all.
func eachLayer(all []string, f func(name string, layers ...string)) {
	f("nothing: the noise")
	for _, name := range all {
		if !slices.Contains(notPriced, name) {
			f(name, name)
		}
	}
}

func priceSpec(n int) Spec {
	return Spec{ID: fmt.Sprintf("p%d", n), Program: command("/usr/bin/true"), Env: testEnv, Limits: Limits{MilliCPUs: 2000}}
}

// priceDirect measures sandboxes that libcontainer makes at their Start.
func priceDirect(t *testing.T) bench.PriceList {
	list := bench.PriceList{Title: "A sandbox that libcontainer makes on request: running `true`, from the request to its end", Unit: "ms"}
	whole := openWeak(t, "", 0)
	defer closeWeak(t, whole)
	n := 0
	run := func(h *Host) float64 {
		n++
		begin := time.Now()
		p, err := h.Start(t.Context(), priceSpec(n), IO{})
		if err != nil {
			t.Fatal(err)
		}
		wantTrue(t, p)
		return milliseconds(time.Since(begin))
	}
	price := func(name string, layers ...string) {
		weak := openWeak(t, "", 0, layers...)
		defer closeWeak(t, weak)
		with, without := takeTurns(func() float64 { return run(whole) }, func() float64 { return run(weak) })
		list.Prices = append(list.Prices, bench.PriceOf(name, with, without))
	}
	eachLayer(slices.Sorted(maps.Keys(faultsByName)), price)
	price("ten of these at once", allDirect...)
	return list
}

// pricePrewarmed measures sandboxes that the zygote makes: the waiting time of a request, and
// the processor time of everything, including the making of the sandbox.
func pricePrewarmed(t *testing.T) []bench.PriceList {
	waits := bench.PriceList{Title: "A prewarmed sandbox: running `true`, from the request to its end", Unit: "ms"}
	takes := bench.PriceList{Title: "Processor time of a prewarmed sandbox that runs `true`, from its making to its removal", Unit: "ms"}
	whole := openWeak(t, faultZygote, 1)
	defer closeWeak(t, whole)
	n := 0
	price := func(name string, layers ...string) {
		weak := openWeak(t, faultZygote, 1, layers...)
		defer closeWeak(t, weak)
		var cpu [2][]float64
		sample := func(i int, h *Host) func() float64 {
			return func() float64 {
				n++
				waited, took := runPrewarmed(t, h, priceSpec(n))
				cpu[i] = append(cpu[i], took)
				return waited
			}
		}
		with, without := takeTurns(sample(0, whole), sample(1, weak))
		waits.Prices = append(waits.Prices, bench.PriceOf(name, with, without))
		takes.Prices = append(takes.Prices, bench.PriceOf(name, cpu[0][warmUp:], cpu[1][warmUp:]))
	}
	eachLayer(slices.Sorted(maps.Keys(zygoteFaults)), price)
	price("fourteen of these at once", allPrewarmed...)
	return []bench.PriceList{waits, takes}
}

// warmUp is how many samples at the beginning are dropped.
const warmUp = 2

// takeTurns takes samples of both in turns.
func takeTurns(with, without func() float64) (a, b []float64) {
	for range warmUp + *pairsFlag {
		a, b = append(a, with()), append(b, without())
	}
	return a[warmUp:], b[warmUp:]
}

// runPrewarmed prewarms a sandbox and then runs a program in it. It doesn't use the pool, which
// would make the next sandbox at the same time.
func runPrewarmed(t *testing.T, h *Host, s Spec) (waited, took float64) {
	t.Helper()
	before := processorTime(t, h)
	s = s.withDefaults()
	c, err := h.buildCloned(t.Context(), zygoteOf(h), nil, s)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := h.reserve(s.ID); err != nil {
		t.Fatal(err)
	}
	if err := c.assign(context.Background(), s, IO{}); err != nil {
		t.Fatal(err)
	}
	p := newProcess(c, IO{}, begin)
	if err := h.admit(s.ID, p); err != nil {
		t.Fatal(err)
	}
	go p.supervise()
	wantTrue(t, p)
	waited = milliseconds(time.Since(begin))
	<-c.destroyed
	return waited, milliseconds(processorTime(t, h) - before)
}

// wantTrue waits for the program. The program must succeed: a failed start would spoil the
// figures.
func wantTrue(t *testing.T, p *Process) {
	t.Helper()
	exit, err := p.Wait()
	if err != nil || exit.End != Exited || exit.Code != 0 {
		t.Fatalf("true ended as %+v, %v", exit, err)
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// processorTime returns the processor time of this process, the zygote and its sandboxes.
func processorTime(t *testing.T, h *Host) time.Duration {
	t.Helper()
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		t.Fatal(err)
	}
	g := h.cgroups.Group(h.groupName())
	took, err := g.Number("cpuacct", "cpuacct.usage")
	if g.Unified {
		var us uint64
		us, err = g.Value("cpu", "cpu.stat", "usage_usec")
		took = int64(us) * 1000
	}
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano() + took)
}
