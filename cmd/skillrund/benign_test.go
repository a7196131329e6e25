package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// The benign suite complements the hostile suite: the things that ordinary skills do must
// work in the default profile, with the default limits. A hardening that breaks one of
// these programs is wrong.

const benignDir = "testdata/benign"

// A benignProgram is one file of testdata/benign. No file has the name of a module that
// another one imports. The program prints "ok" as its last line and exits with 0 if
// everything worked.
type benignProgram struct {
	file string
	// needs has patterns of files of this machine. If one matches no file, the test of
	// the program is skipped with that reason.
	needs []string
	// artifacts are the paths of the artifacts. Nil: not checked.
	artifacts []string
}

const distPackages = "/usr/lib/python3/dist-packages/"

var benignPrograms = []benignProgram{
	{"use_numpy.py", []string{distPackages + "numpy"}, nil},
	{"use_pandas.py", []string{distPackages + "pandas"}, []string{"out/sums.csv"}},
	{"use_matplotlib.py", []string{distPackages + "matplotlib"}, []string{"plot.pdf", "plot.png", "plot.svg"}},
	{"use_threads.py", nil, nil},
	{"use_pools.py", nil, nil},
	{"use_asyncio.py", nil, nil},
	{"use_sqlite.py", nil, []string{"notes.db"}},
	{"use_subprocess.py", nil, nil},
	{"use_office.py", nil, nil},
	{"use_files.py", nil, []string{"a.zip", "b.txt"}},
	{"use_system.py", nil, nil},
	{"use_venv.py", []string{"/usr/lib/python3*/venv/__init__.py"}, nil},
	{"use_watches.py", nil, []string{"watched.py.txt"}},
	{"use_watches.js", []string{"/usr/bin/node"}, []string{"watched.txt"}},
	{"use_watches.sh", nil, []string{"watched.log"}},
	{"use_workers.js", []string{"/usr/bin/node"}, []string{"node.txt"}},
	{"use_gcc.sh", []string{"/usr/bin/gcc"}, nil},
	{"use_shim.sh", []string{"/usr/bin/gcc"}, nil},
	{"use_git.sh", []string{"/usr/bin/git"}, nil},
	{"use_tar.sh", []string{"/usr/bin/tar", "/usr/bin/gzip"}, []string{"all.tar.gz"}},
	{"use_shell.sh", nil, nil},
	{"use_perl.pl", []string{"/usr/bin/perl"}, nil},
	{"use_ruby.rb", []string{"/usr/bin/ruby"}, nil},
}

func TestBenign(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	files := map[string]string{}
	for _, p := range benignPrograms {
		data, err := os.ReadFile(filepath.Join(benignDir, p.file))
		if err != nil {
			t.Fatal(err)
		}
		files["scripts/"+p.file] = string(data)
	}
	listed, err := os.ReadDir(benignDir)
	if err != nil || len(listed) != len(benignPrograms) {
		t.Errorf("%d files in %s, %d are run; %v", len(listed), benignDir, len(benignPrograms), err)
	}
	writeSkill(t, dir, "benign", "", files)
	d := startDaemonIn(t, dir, "")
	var wg sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for _, p := range benignPrograms {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			t.Run(p.file, func(t *testing.T) { runBenign(t, d, p) })
		})
	}
	wg.Wait()
	d.wantNothingLeft()
}

func runBenign(t *testing.T, d *running, p benignProgram) {
	for _, pattern := range p.needs {
		if found, err := filepath.Glob(pattern); err != nil || len(found) == 0 {
			t.Skipf("this machine has no %s", pattern)
		}
	}
	mine := *d
	mine.t = t
	// It runs in /workspace, as when a model follows a skill's instructions.
	r := mine.run(wall(script("benign", "scripts/"+p.file), patience)) // the first run of some reads much from the disk
	r.wantExit(t, 0)
	if lines := strings.Split(strings.TrimSpace(r.stdout.String()), "\n"); lines[len(lines)-1] != "ok" {
		t.Errorf("stdout %q, want ok at its end; stderr %q", tail(r.stdout.String(), 1000), tail(r.stderr.String(), 2000))
	}
	if got := artifactPaths(r.outcome); p.artifacts != nil && !slices.Equal(got, p.artifacts) {
		t.Errorf("artifacts %v, want %v", got, p.artifacts)
	}
	if o := r.outcome; o.Stdout.GetTruncated() || len(o.ArtifactsRefused) > 0 && p.artifacts != nil {
		t.Errorf("got %v", o)
	}
}

func artifactPaths(o *pb.ExecutionOutcome) (paths []string) {
	for _, a := range o.Artifacts {
		paths = append(paths, a.Path)
	}
	return paths
}
