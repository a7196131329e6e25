package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

func TestSources(t *testing.T) {
	t.Parallel()
	d := startShared(t)
	d.addSkill("sources", `allowed-tools: "Bash(python:*), Bash(printf:*), Bash(cat:*), Bash(sort:*), Bash(false)"`, map[string]string{
		"data/1.txt":          "1",
		"data/2.txt":          "2",
		"scripts/args.py":     "import sys; print(sys.argv[1:], sys.argv[0])",
		"scripts/up.PY":       "print('up')",
		"scripts/hi.sh":       "echo sh $1",
		"scripts/hi.bash":     "echo bash $1",
		"scripts/hi.js":       "console.log('js', process.argv[2])",
		"scripts/hi.rb":       "puts 'rb ' + ARGV[0]",
		"scripts/hi.pl":       "print \"pl $ARGV[0]\\n\"",
		"scripts/shebang":     "#!/usr/bin/env python3\nprint('shebang')",
		"scripts/absolute":    "#!/bin/bash\necho absolute",
		"scripts/mod.py":      "print('module')",
		"scripts/__init__.py": "",
	})
	for _, tt := range []struct {
		name   string
		req    *pb.ExecuteRequest
		stdout string
	}{
		{"argv is never a shell's", script("sources", "scripts/args.py", "a b", "$(id)", "", "*", "ü"), "['a b', '$(id)', '', '*', 'ü'] /workspace/scripts/args.py\n"},
		{"extension in capitals", script("sources", "scripts/up.PY"), "up\n"},
		{"sh", script("sources", "scripts/hi.sh", "x"), "sh x\n"},
		{"bash", script("sources", "scripts/hi.bash", "x"), "bash x\n"},
		{"node", script("sources", "scripts/hi.js", "x"), "js x\n"},
		{"ruby", script("sources", "scripts/hi.rb", "x"), "rb x\n"},
		{"perl", script("sources", "scripts/hi.pl", "x"), "pl x\n"},
		{"shebang", script("sources", "scripts/shebang"), "shebang\n"},
		{"absolute shebang", script("sources", "scripts/absolute"), "absolute\n"},
		{"code with args", withArgs(code("sources", "import sys; print(sys.argv)"), "a", "b c"), "['-c', 'a', 'b c']\n"},
		{"bash code", shell("sources", "echo $#"), "0\n"},
		{"node code", &pb.ExecuteRequest{Skill: "sources", Source: &pb.ExecuteRequest_Code{Code: &pb.InlineCode{Text: "console.log(1+1)", Language: "node"}}}, "2\n"},
		{"command", command("sources", "printf '%s|' a 'b c'"), "a|b c|"},
		{"command with python and a path of the workspace", command("sources", "python scripts/args.py in.csv"), "['in.csv'] scripts/args.py\n"},
		{"command with {baseDir}", command("sources", "python {baseDir}/scripts/args.py in.csv"), "['in.csv'] /skills/sources/scripts/args.py\n"},
		{"command with a module", command("sources", "python -m scripts.mod"), "module\n"},
		{"pipeline and redirect", command("sources", "printf 'b\\na\\n' | sort > out.txt && cat out.txt || printf never"), "a\nb\n"},
		{"condition", command("sources", "false && printf no ; printf yes"), "yes"},
		{"pattern of file names", command("sources", "cat data/*.txt"), "12"},
		{"here-document", command("sources", "cat <<'EOF'\n$HOME stays\nEOF"), "$HOME stays\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d.t = t
			r := d.run(tt.req)
			r.wantExit(t, 0)
			r.wantStdout(t, tt.stdout)
		})
	}
}

func withArgs(req *pb.ExecuteRequest, args ...string) *pb.ExecuteRequest {
	req.Args = args
	return req
}

func TestStdin(t *testing.T) {
	t.Parallel()
	d := startShared(t)
	const echo = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())"
	t.Run("none is empty", func(t *testing.T) {
		d.t = t
		r := d.run(code("calculator", echo))
		r.wantExit(t, 0)
		r.wantStdout(t, "")
	})
	t.Run("bytes", func(t *testing.T) {
		d.t = t
		req := code("calculator", echo)
		req.Stdin = &pb.ExecuteRequest_StdinBytes{StdinBytes: []byte("\x00\xff\r\n")}
		d.run(req).wantStdout(t, "\x00\xff\r\n")
	})
	t.Run("JSON as Python prints it", func(t *testing.T) {
		d.t = t
		req := code("calculator", echo)
		req.Stdin = &pb.ExecuteRequest_JsonArguments{JsonArguments: `{"b":[1,2.0],"a":"ü"}`}
		d.run(req).wantStdout(t, `{"b": [1, 2.0], "a": "ü"}`)
	})
	t.Run("five megabytes that nobody reads", func(t *testing.T) {
		d.t = t
		req := code("calculator", "print('ok')")
		req.Stdin = &pb.ExecuteRequest_StdinBytes{StdinBytes: bytes.Repeat([]byte("y"), 5_000_000)}
		r := d.run(req)
		r.wantExit(t, 0)
		r.wantStdout(t, "ok\n")
	})
	t.Run("ten megabytes of arguments", func(t *testing.T) {
		d.t = t
		req := code("calculator", "import sys; print(len(sys.stdin.buffer.read()))")
		req.Stdin = &pb.ExecuteRequest_JsonArguments{JsonArguments: `{"x":"` + strings.Repeat("y", 10_000_000-len(`{"x": ""}`)) + `"}`}
		d.run(req).wantStdout(t, "10000000\n")
	})
}

// The test sends each line only after the program's answer to the last one. So input arrives
// and output comes back while the program runs.
func TestInteractive(t *testing.T) {
	t.Parallel()
	d := startShared(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := d.runs.ExecuteInteractive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	send := func(m *pb.ExecuteInteractiveRequest) {
		t.Helper()
		if err := s.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Start{Start: code("calculator",
		"import signal, sys\nsignal.signal(10, lambda *a: print('signal'))\nprint('0')\nfor line in sys.stdin: print(int(line) + 1)\nprint('end')")}})
	var text []byte
	r, err := collect(t, s, 0, func(e *pb.ExecutionEvent) {
		text = append(text, e.GetOutput().GetData()...)
		line, rest, whole := bytes.Cut(text, []byte("\n"))
		if !whole {
			return
		}
		text = rest
		switch string(line) {
		case "0", "1", "2":
			send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Stdin{Stdin: append(line, '\n')}})
		case "3":
			send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Signal{Signal: &pb.SendSignal{Signal: "SIGUSR1"}}})
		case "signal":
			send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_CloseStdin{CloseStdin: &pb.CloseStdin{}}})
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	r.wantExit(t, 0)
	r.wantStdout(t, "0\n1\n2\n3\nsignal\nend\n")
}

func TestStreamedFiles(t *testing.T) {
	t.Parallel()
	d := startShared(t)
	content := bytes.Repeat([]byte("0123456789abcdef"), 3<<20/16) // several messages
	sum := sha256.Sum256(content)
	start := code("calculator", "import hashlib; print(hashlib.sha256(open('sub/big.bin', 'rb').read()).hexdigest())")
	start.Files = []*pb.InputFile{{Path: "sub/big.bin", Source: &pb.InputFile_Streamed{Streamed: &pb.StreamedFile{SizeBytes: uint64(len(content)), Sha256: hex.EncodeToString(sum[:])}}}}

	upload := func(t *testing.T, start *pb.ExecuteRequest, chunks ...*pb.FileChunk) (*result, error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		s, err := d.runs.ExecuteInteractive(ctx)
		if err != nil {
			t.Fatal(err)
		}
		messages := []*pb.ExecuteInteractiveRequest{{Message: &pb.ExecuteInteractiveRequest_Start{Start: start}}}
		for _, c := range chunks {
			messages = append(messages, &pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_FileChunk{FileChunk: c}})
		}
		for _, m := range messages {
			if err := s.Send(m); err != nil && !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
		}
		if err := s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		return collect(t, s, 0, nil)
	}
	piece := func(offset, end int) *pb.FileChunk {
		return &pb.FileChunk{Path: "sub/big.bin", OffsetBytes: uint64(offset), Data: content[offset:end]}
	}
	const mib = 1 << 20
	t.Run("whole", func(t *testing.T) {
		r, err := upload(t, start, piece(0, mib), piece(mib, 2*mib), piece(2*mib, 3*mib))
		if err != nil {
			t.Fatal(err)
		}
		r.wantStdout(t, hex.EncodeToString(sum[:])+"\n")
	})
	t.Run("corrupt", func(t *testing.T) {
		bad := piece(2*mib, 3*mib)
		bad.Data = bytes.ToUpper(bad.Data)
		_, err := upload(t, start, piece(0, mib), piece(mib, 2*mib), bad)
		wantStatus(t, err, "DataLoss", "FILE_DIGEST_MISMATCH")
	})
	t.Run("cut short", func(t *testing.T) {
		_, err := upload(t, start, piece(0, mib))
		wantStatus(t, err, "InvalidArgument", "INVALID_REQUEST")
	})
	t.Run("with a gap", func(t *testing.T) {
		_, err := upload(t, start, piece(0, mib), piece(2*mib, 3*mib))
		wantStatus(t, err, "InvalidArgument", "INVALID_REQUEST")
	})
	t.Run("not announced", func(t *testing.T) {
		_, err := upload(t, start, &pb.FileChunk{Path: "other", Data: []byte("x")})
		wantStatus(t, err, "InvalidArgument", "INVALID_REQUEST")
	})
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	d := startShared(t)
	d.addSkill("env", "version: 1.2.3\nallowed-tools: Bash(env)", nil)
	d.addSkill("env-metadata", "metadata: {version: 4.5.6}", nil)
	d.addSkill("env-none", "", nil)

	req := code("env", "import os\nfor n in sorted(os.environ): print(n + '=' + os.environ[n])")
	req.Env = map[string]string{"MY_NAME": "a b", "LANG": "de_DE.UTF-8"}
	req.SecretEnv = map[string]string{"API_KEY": "hunter2-secret"}
	r := d.run(req)
	r.wantExit(t, 0)
	for _, want := range []string{
		"SKILL_NAME=env", "SKILL_VERSION=1.2.3", "SKILL_BASE_DIR=/skills/env", "SKILL_DIR=/skills/env", "SCRIPTS_DIR=/skills/env/scripts",
		"SKILLKIT_VERSION=0.3.0", "HOME=/home/skill", "USER=skill", "TMPDIR=/tmp", "PYTHONDONTWRITEBYTECODE=1", "MY_NAME=a b", "LANG=de_DE.UTF-8", "API_KEY=hunter2-secret",
	} {
		if !strings.Contains("\n"+r.stdout.String(), "\n"+want+"\n") {
			t.Errorf("no %s in\n%s", want, r.stdout.String())
		}
	}
	if strings.Contains(r.stdout.String(), "DAEMON_SECRET") || strings.Contains(r.stdout.String(), "_LIBCONTAINER") {
		t.Errorf("the daemon's environment shows:\n%s", r.stdout.String())
	}
	if strings.Contains(d.log.String(), "hunter2") {
		t.Error("the daemon logged a secret")
	}
	for skill, want := range map[string]string{"env-metadata": "4.5.6\n", "env-none": "0.0.0\n"} {
		d.run(code(skill, "import os; print(os.environ['SKILL_VERSION'])")).wantStdout(t, want)
	}
}

// Real scripts read files, write files next to their own, and look for their home directory.
func TestWorkspaceIsACopyOnWriteView(t *testing.T) {
	t.Parallel()
	d := startShared(t)
	d.addSkill("writer", "", map[string]string{
		"data/model.txt": "original\n",
		"scripts/write.py": `
import getpass, os, pathlib, shutil, sys, tempfile
open('output.txt', 'w').write('Result: 42')
open('data/model.txt', 'a').write('more\n')
print(open('data/model.txt').read(), end='')
print(open('/skills/writer/data/model.txt').read(), end='')
print(open('in/people.csv').read(), end='')
os.chmod('scripts/write.py', 0o700); os.rename('scripts/old.txt', 'scripts/new.txt'); shutil.rmtree('gone')
print(pathlib.Path.home(), getpass.getuser(), os.getcwd(), os.getuid())
tempfile.NamedTemporaryFile().write(b'x')
try: open('/skills/writer/x', 'w')
except OSError as e: print(e.strerror)
os.symlink('/etc/passwd', 'link'); os.mkfifo('pipe')
`,
		"scripts/old.txt": "old", "gone/a": "a",
	})
	req := script("writer", "scripts/write.py")
	req.Files = []*pb.InputFile{
		{Path: "in/people.csv", Source: &pb.InputFile_Content{Content: []byte("name,age\n")}},
		{Path: "run.sh", Source: &pb.InputFile_Content{Content: []byte("#!/bin/sh\necho x\n")}, Executable: true},
	}
	r := d.run(req)
	r.wantExit(t, 0)
	r.wantStdout(t, "original\nmore\noriginal\nname,age\n/home/skill skill /workspace 1000\nRead-only file system\n")
	var got []string
	for _, a := range r.outcome.Artifacts {
		got = append(got, a.Path)
	}
	if want := "data/model.txt output.txt scripts/new.txt"; strings.Join(got, " ") != want && strings.Join(got, " ") != want+" scripts/write.py" {
		t.Errorf("artifacts %v, want %s", got, want)
	}
	if refused := strings.Join(r.outcome.ArtifactsRefused, "; "); !strings.Contains(refused, "link") || !strings.Contains(refused, "pipe") {
		t.Errorf("refused %q, want the link and the pipe", refused)
	}
	// The next execution starts from the same snapshot.
	d.run(shell("writer", "cat data/model.txt; ls output.txt; ls /workspace")).wantStdout(t, "original\nSKILL.md\ndata\ngone\nscripts\n")
}
