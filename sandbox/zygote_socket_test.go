package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// zygotes starts a Host with both kinds of zygotes and returns their PIDs.
func zygotes(t *testing.T) (h *Host, zygote, python int) {
	t.Helper()
	h = openForkServer(t)
	s := pythonSpec([]string{"json"}, "-c", "pass")
	run(t, h, s, "") // asks for one
	waitForReady(t, h, s)
	return h, zygoteOf(h).PID(), pythonEntries(h)[s.pythonKey()].zygote.PID()
}

// TestGoldenZygotes compares the kernel's view of the zygotes, from outside, with
// testdata/posture: capabilities, filters, variables, descriptors, namespaces.
// go test -run TestGoldenZygotes -update.
func TestGoldenZygotes(t *testing.T) {
	h, zygote, python := zygotes(t)
	for name, pid := range map[string]int{"zygote": zygote, "zygote-python": python} {
		golden := filepath.Join("testdata", "posture", name+".golden")
		if *update {
			got, again := "", zygoteLines(t, h, pid)
			for got != again {
				got, again = again, zygoteLines(t, h, pid)
			}
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if err := eventually(func() error {
			if got := zygoteLines(t, h, pid); got != string(want) {
				return fmt.Errorf("%s:\n%s", name, difference(string(want), got))
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
}

func zygoteLines(t *testing.T, h *Host, pid int) string {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/", pid)
	read := func(name string) string {
		text, err := os.ReadFile(dir + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	link := func(name string) string {
		target, err := os.Readlink(dir + name)
		if err != nil {
			t.Fatal(err)
		}
		return target
	}
	var out, status strings.Builder
	statusLines(t, &status, read("status"))
	id := strconv.Itoa(int(h.ids.first))
	for line := range strings.Lines(status.String()) {
		// The depth of its PID namespace depends on where the test runs.
		if !strings.HasPrefix(line, "NSpid") && !strings.HasPrefix(line, "PPid") {
			out.WriteString(strings.ReplaceAll(line, id, "its own"))
		}
	}
	for _, name := range []string{"environ", "cmdline"} {
		fields := strings.Split(strings.TrimSuffix(read(name), "\x00"), "\x00")
		slices.Sort(fields)
		for _, f := range fields {
			fmt.Fprintf(&out, "%s: %s\n", name, f)
		}
	}
	fmt.Fprintf(&out, "cwd: %s\noom_score_adj: %s", link("cwd"), read("oom_score_adj"))
	fds, err := os.ReadDir(dir + "fd")
	if err != nil {
		t.Fatal(err)
	}
	numbers := []int{}
	for _, fd := range fds {
		n, err := strconv.Atoi(fd.Name())
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	seen := map[string]bool{}
	for _, n := range numbers {
		target, err := os.Readlink(fmt.Sprint(dir, "fd/", n))
		closes, cerr := closesOnExec(pid, n)
		if err != nil || cerr != nil {
			continue // closed just now
		}
		kind, _, _ := strings.Cut(target, "[")
		line := fmt.Sprintf("descriptor: %s, closes on exec: %v\n", kind, closes)
		if n < 4 {
			line = fmt.Sprintf("descriptor %d: %s, closes on exec: %v\n", n, kind, closes)
		}
		if !seen[line] { // a Python zygote has one for each child that waits
			out.WriteString(line)
		}
		seen[line] = true
	}
	names, err := os.ReadDir(dir + "ns")
	if err != nil {
		t.Fatal(err)
	}
	var links []string
	for _, n := range names {
		links = append(links, link("ns/"+n.Name()))
	}
	namespaceLines(t, &out, strings.Join(links, "\n"))
	var limits strings.Builder
	limitLines(&limits, read("limits"))
	for line := range strings.Lines(limits.String()) {
		if strings.Contains(line, "core file size") { // the others are the machine's
			out.WriteString(line)
		}
	}
	return out.String()
}

// difference lists the lines that are in only one of two texts.
func difference(was, is string) string {
	var b strings.Builder
	for line := range strings.Lines(was) {
		if !strings.Contains("\n"+is, "\n"+line) {
			b.WriteString("gone: " + line)
		}
	}
	for line := range strings.Lines(is) {
		if !strings.Contains("\n"+was, "\n"+line) {
			b.WriteString("now: " + line)
		}
	}
	return b.String()
}
