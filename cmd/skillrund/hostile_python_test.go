package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// These cases attack what executions of Python scripts share: the Python zygotes from which they are
// forked. The parent of a forked process is outside of the sandbox, so its getppid returns 0. All
// children of one Python zygote, and of no other, have the same hash of a text.

// startPythons starts a daemon whose sandboxes have the machine's Python. It skips the test if that
// lacks a module.
func startPythons(t *testing.T, modules ...string) *running {
	t.Helper()
	for _, module := range modules {
		if out, err := exec.Command("/usr/bin/python3", "-c", "import importlib.util, sys; sys.exit(not importlib.util.find_spec('"+module+"'))").CombinedOutput(); err != nil {
			t.Skipf("the machine's Python has no %s: %v %s", module, err, out)
		}
	}
	return startForAll(t, "python: system\nprepared: {sandboxes: 4, python_zygotes: 2}\n")
}

// as returns d with the requests of another user.
func (d *running) as(uid int) *running {
	other := *d
	other.runs = asUser(d.dir+"/s.sock", uid).executions(d.t.(*testing.T))
	return &other
}

// untilForked runs a program that imports a module until a Python zygote forks it that has imported
// the module. It returns the hash that identifies that zygote, and the rest of the program's output.
func (d *running) untilForked(module, program string) (zygote, rest string) {
	d.t.Helper()
	text := fmt.Sprintf("import os, sys\nhas = '%s' in sys.modules\nimport %s\nprint(os.getppid() == 0 and has, hash('x'))\n%s", module, module, program)
	until(d.t, "no Python zygote with "+module, func() bool {
		r := d.run(code("hostile", text))
		r.wantExit(d.t, 0)
		first, more, _ := strings.Cut(r.stdout.String(), "\n")
		forked, hash, _ := strings.Cut(first, " ")
		zygote, rest = hash, more
		return forked == "True"
	})
	return zygote, rest
}

// deepInput sends an input file in 1,500 nested directories. The script searches its workspace for
// modules, so the child of a Python zygote must look through the workspace first.
func deepInput(t *testing.T, _ *running, _ hostileCase) {
	d := startPythons(t)
	request := code("hostile", "import os, sys; sys.path.insert(0, 'lib'); print(os.getppid(), os.path.isdir('a'))")
	until(t, "it is never forked", func() bool { return d.run(request).stdout.String() == "0 False\n" })
	request.Files = []*pb.InputFile{{Path: strings.Repeat("a/", 1500) + "x", Source: &pb.InputFile_Content{Content: []byte("x")}}}
	until(t, "no child of a Python zygote gets it", func() bool {
		r := d.run(request)
		r.wantExit(t, 0)
		return t.Failed() || r.stdout.String() == "0 True\n"
	})
}

// pythonHog asks for three kinds of Python zygotes, while there is room for two. The zygote of another
// caller stays. A zygote with sqlite3 never replaces one without it by one with the modules of both.
func pythonHog(t *testing.T, _ *running, _ hostileCase) {
	d := startPythons(t, "unittest")
	victim, hog := d.as(nobody), d.as(nobody-1)
	before, _ := victim.untilForked("unittest", "")
	for _, kind := range []string{"asyncio", "sqlite3", "xml"} {
		hog.untilForked(kind, "")
	}
	if after, _ := victim.untilForked("unittest", ""); after != before {
		t.Error("another Python zygote serves the caller: the hog's requests ended the first one")
	}
}

// randomState compares what two children of one Python zygote draw from sympy.
func randomState(t *testing.T, _ *running, _ hostileCase) {
	d := startPythons(t, "sympy")
	const draw = "import sympy.core.random\nprint('rng', sympy.core.random.rng.random()); print('Dummy', sympy.Dummy().dummy_index)"
	zygote, first := d.untilForked("sympy", draw)
	again, second := d.untilForked("sympy", draw)
	if again != zygote {
		t.Fatalf("two Python zygotes served the script: nothing was compared")
	}
	if strings.Count(first, "\n") != 2 {
		t.Fatalf("printed %q, want two lines", first)
	}
	for line := range strings.Lines(first) {
		if strings.Contains(second, line) {
			t.Errorf("two executions drew the same %s", line)
		}
	}
}

// bytesInZygotes puts a text into everything that a request has, and searches the zygotes for it.
// sandbox.TestNoByteReachesAZygote does the same with each part of a Spec.
func bytesInZygotes(t *testing.T, _ *running, _ hostileCase) {
	const mark = "m4rk0fat3nant"
	dir := newDir(t)
	writeSkill(t, dir, mark, "allowed-tools: Bash", map[string]string{mark + "/" + mark + ".py": "", "sitecustomize.py": "print('" + mark + "')", mark + ".pth": "import " + mark})
	d := startDaemonIn(t, dir, "python: system\nprepared: {sandboxes: 4, python_zygotes: 2}\n")
	request := func() *pb.ExecuteRequest {
		req := code(mark, "import os, csv\nprint(os.getppid(), '"+mark+"', flush=True)\ninput()")
		req.Args, req.WorkingDirectory, req.Labels = []string{mark}, mark, map[string]string{mark: mark}
		req.Env, req.SecretEnv = map[string]string{"A" + mark: mark}, map[string]string{"B" + mark: mark}
		req.Files = []*pb.InputFile{{Path: mark + "/csv_" + mark + ".txt", Source: &pb.InputFile_Content{Content: []byte(mark)}}}
		return req
	}
	until(t, "it is never forked", func() bool {
		s, err := d.runs.ExecuteInteractive(t.Context())
		if err == nil {
			err = s.Send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Start{Start: request()}})
		}
		if err != nil {
			t.Fatal(err)
		}
		seen := ""
		r, err := collect(t, s, 0, func(e *pb.ExecutionEvent) {
			if seen += string(e.GetOutput().GetData()); !strings.HasSuffix(seen, "\n") || e.GetOutput() == nil {
				return
			}
			d.searchZygotes(t, e.ExecutionId, mark)
			if err := s.Send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Stdin{Stdin: []byte(mark + "\n")}}); err != nil {
				t.Error(err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		r.wantExit(t, 0)
		return t.Failed() || r.stdout.String() == "0 "+mark+"\n"
	})
}

// searchZygotes searches the zygotes' processes for a text that a running execution has.
func (d *running) searchZygotes(t *testing.T, id, text string) {
	found := false
	for _, b := range d.boxesOfExecution(id) {
		for _, pid := range b.pids {
			found = found || processHas(t, pid, text)
		}
	}
	if !found {
		t.Error("the script does not have the text: the search finds nothing")
	}
	for _, pid := range append(d.pythonZygotes(), d.zygotePid()) {
		if processHas(t, pid, text) {
			t.Errorf("the zygote %s has a text of a request", statusOf(pid)["Name"])
		}
	}
}

// processHas reports whether a text is in the command line, the environment, the names of mapped
// files or the writable memory of a process. A process that ends has nothing.
func processHas(t *testing.T, pid, text string) bool {
	t.Helper()
	has := false
	for _, name := range []string{"cmdline", "environ", "maps"} {
		data, err := os.ReadFile("/proc/" + pid + "/" + name)
		if err != nil {
			t.Logf("%s: %v", pid, err)
		}
		has = has || strings.Contains(string(data), text)
	}
	maps, _ := os.ReadFile("/proc/" + pid + "/maps")
	mem, err := os.Open("/proc/" + pid + "/mem")
	if err != nil {
		return has
	}
	defer mem.Close()
	for line := range strings.Lines(string(maps)) { // BEGIN-END RIGHTS ..., proc_pid_maps(5)
		fields := strings.Fields(line)
		from, to, _ := strings.Cut(fields[0], "-")
		begin, _ := strconv.ParseInt(from, 16, 64) // fails for [vsyscall], which is not writable
		end, _ := strconv.ParseInt(to, 16, 64)
		if fields[1][1] != 'w' {
			continue
		}
		b := make([]byte, end-begin)
		n, _ := mem.ReadAt(b, begin) // up to a page that is not there yet
		has = has || strings.Contains(string(b[:n]), text)
	}
	return has
}
