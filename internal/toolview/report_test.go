package toolview

import (
	"strconv"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/workspace"
)

// For every way in which a program can end, the text says whether an exception ended it,
// and which one.
func TestContractRunPythonExceptions(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil, skillText{name: "demo", files: map[string]string{
		"scripts/fails.py":  "import sys\n\ndef f():\n    raise KeyError('k')\n\nf()\n",
		"scripts/broken.py": "x = 1\ny = )\n",
		"scripts/main.py":   "import __main__, inspect, pickle, sys\nclass A: pass\nprint(__main__.A is A, pickle.loads(pickle.dumps(A)) is A, sys.argv, __file__, __spec__, sorted(k for k in globals() if k[:2] != '__'))\nprint(inspect.getsource(A))",
	}})
	const head = "Traceback (most recent call last):\n"
	at := func(line int, source string) string {
		return "  File \"<string>\", line " + strconv.Itoa(line) + ", in <module>\n    " + source + "\n"
	}
	for _, tt := range []struct {
		name string
		call PythonCall
		want string // a text that ends in "..." is only the beginning
		has  string // part of the text after that
	}{
		{"a group", PythonCall{Code: "import asyncio\nasync def f(): raise ValueError('inner')\nasync def main():\n    async with asyncio.TaskGroup() as g: g.create_task(f())\nasyncio.run(main())"},
			"Error: unhandled errors in a TaskGroup (1 sub-exception)\n  + Exception Group " + head + "...", "ValueError: inner"},
		{"a group that was caused", PythonCall{Code: "try: 1/0\nexcept Exception as e: raise ExceptionGroup('many', [KeyError(1)]) from e"},
			"Error: many (1 sub-exception)\n...", "ZeroDivisionError: division by zero"},
		{"after half a line", PythonCall{Code: "import sys\nsys.stderr.write('50%')\n1/0"},
			"Error: division by zero\n" + head + at(3, "1/0\n    ~^~") + "ZeroDivisionError: division by zero\nStdout:\n\nStderr:\n50%", ""},
		{"with another program's traceback in its message", PythonCall{Code: "raise RuntimeError('child:\\n" + strings.ReplaceAll(head, "\n", "\\n") + "  File \"x\", line 1\\nKeyError: 1')"},
			"Error: child:\n" + head + "  File \"x\", line 1\nKeyError: 1\n" + head + "...", ""},
		{"exit after a caught exception's traceback", PythonCall{Code: "import sys, traceback\ntry: 1/0\nexcept Exception: traceback.print_exc()\nsys.exit(1)"},
			"Error: Script exited with code 1.\nStdout:\n\nStderr:\n" + head + "...", "ZeroDivisionError: division by zero\n"},
		{"a forged traceback", PythonCall{Code: "import sys\nsys.stderr.write('" + strings.ReplaceAll(head, "\n", "\\n") + "E: fake\\n')\nsys.exit(1)"},
			"Error: Script exited with code 1.\nStdout:\n\nStderr:\n" + head + "E: fake\n", ""},
		{"without frames", PythonCall{Code: "import sys\nsys.tracebacklimit = 0\n1/0"},
			"Error: division by zero\n...", "ZeroDivisionError: division by zero"},
		{"of the base", PythonCall{Code: "class Stop(BaseException): pass\nraise Stop('halt')"}, "Error: halt\n" + head + at(2, "raise Stop('halt')") + "Stop: halt\n", ""},
		{"interrupted", PythonCall{Code: "raise KeyboardInterrupt"}, "Error: KeyboardInterrupt\n" + head + "...", ""},
		{"that can't be printed", PythonCall{Code: "class E(Exception):\n    def __str__(self): 1/0\nraise E"}, "Error: E\n" + head + "...", ""},
		{"half a surrogate pair", PythonCall{Code: "raise ValueError('\\ud800')"}, "Error: \\ud800\n" + head + "...", ""},
		{"recursion", PythonCall{Code: "def f(): f()\nf()"}, "Error: maximum recursion depth exceeded\n" + head + "...", "[Previous line repeated"},
		{"a chain", PythonCall{Code: "try: 1/0\nexcept Exception: raise ValueError('b')"},
			"Error: b\n" + head + "...", "During handling of the above exception"},
		{"with stderr closed", PythonCall{Code: "import os\nos.close(2)\n1/0"}, "Error: division by zero\n" + head + at(3, "1/0\n    ~^~") + "ZeroDivisionError: division by zero\n", ""},
		{"with every other descriptor closed", PythonCall{Code: "import os\nos.closerange(3, 100)\nf = [open('a.txt', 'w') for _ in range(5)]\n1/0"}, "Error: division by zero\n" + head + "...", ""},
		{"with sys.stderr replaced", PythonCall{Code: "import io, sys\nsys.stderr = io.StringIO()\n1/0"}, "Error: division by zero\n" + head + "...", ""},
		{"with built-in names replaced", PythonCall{Code: "str = type = len = BaseException = SystemExit = None\n1/0"}, "Error: division by zero\n" + head + "...", ""},
		{"with modules of the same names", PythonCall{Code: "1/0", Inputs: Inputs{Files: []workspace.Input{{Path: "traceback.py", Content: []byte("1/0")}, {Path: "textwrap.py", Content: []byte("1/0")}}}},
			"Error: division by zero\n" + head + "...", ""},
		{"with a hook", PythonCall{Code: "import sys\nsys.excepthook = lambda t, e, tb: print('mine', e)\n1/0"}, "Error: division by zero\n" + head + "...", "Stdout:\nmine division by zero\n"},
		{"with output after it", PythonCall{Code: "import atexit, sys\natexit.register(lambda: print('late', file=sys.stderr))\n1/0"},
			"Error: division by zero\n" + head + at(3, "1/0\n    ~^~") + "ZeroDivisionError: division by zero\nStdout:\n\nStderr:\nlate\n", ""},
		{"of a child that was forked", PythonCall{Code: "import os, warnings\nif os.fork() == 0: raise ValueError('child')\nos.wait()\nprint('parent')"}, "Stdout:\nparent\n\nStderr:\n" + head + "...", "ValueError: child\n"},
		{"of a thread", PythonCall{Code: "import threading\nt = threading.Thread(target=lambda: 1/0)\nt.start()\nt.join()"}, "Stdout:\n\nStderr:\nException in thread ...", ""},
		{"no exception, ended at once", PythonCall{Code: "import os\nos._exit(1)"}, "Error: Script exited with code 1.", ""},
		{"large stderr", PythonCall{Code: "import sys\nsys.stderr.write('x' * 1000)\n1/0", KeepBytes: 200}, "Error: division by zero\n" + head + "...", "\n[It printed more than 200 bytes. "},
		{"more on stderr than is kept", PythonCall{Code: "import sys\nsys.stderr.write('x' * (11 << 20))\n1/0", KeepBytes: 200},
			"Error: Script exited with code 1.\nStdout:\n\nStderr:\n" + strings.Repeat("x", 200) + "\n[It printed more than 200 bytes. ...", ""},
		{"of a script", PythonCall{Skill: "demo", ScriptPath: "scripts/fails.py"},
			"Error: 'k'\n" + head + "  File \"/workspace/scripts/fails.py\", line 6, in <module>\n    f()\n    ~^^\n  File \"/workspace/scripts/fails.py\", line 4, in f\n    raise KeyError('k')\nKeyError: 'k'\n", ""},
		{"of a file of the request", PythonCall{ScriptPath: "j.py", Inputs: Inputs{Files: []workspace.Input{{Path: "j.py", Content: []byte("1/0\n")}}}},
			"Error: division by zero\n" + head + "  File \"/workspace/j.py\", line 1, in <module>\n    1/0\n    ~^~\nZeroDivisionError: division by zero\n", ""},
		{"a script that is no Python", PythonCall{Skill: "demo", ScriptPath: "scripts/broken.py"},
			"Error: unmatched ')'\n  File \"/workspace/scripts/broken.py\", line 2\n    y = )\n        ^\nSyntaxError: unmatched ')'\n", ""},
		{"exit by an exception's name", PythonCall{Code: "raise SystemExit"}, "Stdout:\n\nStderr:\n", ""},
		{"__main__ of a script", PythonCall{Skill: "demo", ScriptPath: "scripts/main.py"},
			"Stdout:\nTrue True ['/workspace/scripts/main.py'] /workspace/scripts/main.py None ['A', 'inspect', 'pickle', 'sys']\nclass A: pass\n\n\nStderr:\n", ""},
		{"__main__ of code", PythonCall{Code: "import inspect, sys\ndef f(): return 1\nprint(__name__, sys.argv, sys.path[0] == '', sorted(globals()))\nprint(inspect.getsource(f))"},
			"Stdout:\n__main__ ['-c'] True ['__builtins__', '__doc__', '__loader__', '__name__', '__package__', '__spec__', 'f', 'inspect', 'sys']\ndef f(): return 1\n\n\nStderr:\n", ""},
		{"processes", PythonCall{Code: "import multiprocessing as m\nif __name__ == '__main__':\n    with m.get_context('spawn').Pool(1) as p: print(p.map(abs, [-1]))"}, "Stdout:\n[1]\n\nStderr:\n", ""},
		{"code that is indented", PythonCall{Code: "\n    x = 1\n    print(x)\n"}, "Stdout:\n1\n\nStderr:\n", ""},
		{"as long as can be", PythonCall{Code: "print(1)" + strings.Repeat("#", 131071-8)}, "Stdout:\n1\n\nStderr:\n", ""},
		{"longer", PythonCall{Code: "print(1)" + strings.Repeat("#", 131071-7)}, "Error: code: 131072 bytes, at most 131071: put it into a script or an input file", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := b.RunPython(t.Context(), b.who, tt.call, nil)
			if err != nil {
				t.Fatal(err)
			}
			want, open := strings.CutSuffix(tt.want, "...")
			if r.Text != tt.want && !(open && strings.HasPrefix(r.Text, want)) || !strings.Contains(r.Text, tt.has) || strings.Contains(r.Text, "[exception ") {
				t.Errorf("got\n%s\nwant\n%s\nwith %q", r.Text, tt.want, tt.has)
			}
		})
	}
}

func TestCutReport(t *testing.T) {
	t.Parallel()
	r := runner{token: "exception T"}
	for _, tt := range []struct{ stderr, left, traceback, message string }{
		{"tb\n[exception T 3 6d]\n", "", "tb\n", "m"},
		{"a\ntb\n[exception T 3 6d]\nb\n", "a\nb\n", "tb\n", "m"},
		{"[exception T 0 61]\ntb\n[exception T 3 6d]\n", "[exception T 0 61]\n", "tb\n", "m"},
		{"tb\n[exception U 3 6d]\n", "tb\n[exception U 3 6d]\n", "", ""},
		{"tb\n[exception T 4 6d]\n", "tb\n[exception T 4 6d]\n", "", ""},
		{"tb\n[exception T -1 6d]\n", "tb\n[exception T -1 6d]\n", "", ""},
		{"tb\n[exception T 3 6]\n", "tb\n[exception T 3 6]\n", "", ""},
		{"tb\n[exception T 3 6d", "tb\n[exception T 3 6d", "", ""},
		{"", "", "", ""},
	} {
		left, e, ok := r.cut([]byte(tt.stderr))
		if string(left) != tt.left || string(e.traceback) != tt.traceback || e.message != tt.message || ok != (tt.message != "") {
			t.Errorf("%q: got %q, %q, %q, %t", tt.stderr, left, e.traceback, e.message, ok)
		}
	}
}

func FuzzCutReport(f *testing.F) {
	f.Add([]byte("a\ntb\n[exception T 3 6d]\nb\n"))
	f.Fuzz(func(t *testing.T, stderr []byte) {
		left, e, ok := runner{token: "exception T"}.cut(stderr)
		if !ok && string(left) != string(stderr) || ok && len(left)+len(e.traceback) >= len(stderr) {
			t.Errorf("got %q, %+v, %t", left, e, ok)
		}
	})
}
