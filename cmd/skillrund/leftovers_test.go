package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// mess leaves files that are hard to remove.
const mess = `
import os, socket
os.chdir('/workspace')
def put(path, text='x'):
    with open(path, 'w') as f: f.write(text)
for name in [b'new\nline', b'\xff\xfe', b'n' * 255, b'-rf', b' ', b'*', b'\\', b'...', b'\x1b[31m', '\u202e'.encode()]:
    os.mkdir(name); put(os.path.join(name, name))
os.link('-rf/-rf', 'hard'); os.link('hard', 'hard2')
os.mkfifo('fifo'); os.mkfifo('-rf/fifo')
socket.socket(socket.AF_UNIX).bind("socket")
for i, target in enumerate(['/', '/etc', '/etc/passwd', '..', '../../..', '/proc/self/root', '/proc/1/root', '.', 'loop5', 'nothing']):
    os.symlink(target, 'loop%d' % i)
os.symlink('/var/tmp', '-rf/out'); os.symlink('MARK', 'mark'); os.symlink('MARK', '-rf/mark')
os.mkdir('deep'); os.chdir('deep')
for _ in range(4096): os.mkdir('d' * 3); os.chdir('d' * 3)
put('bottom')
os.chdir('/workspace')
os.mkdir('many')
for i in range(3000): open('many/%d' % i, 'w').close()
for name in ['locked', 'locked/in', 'locked/in/side']:
    os.mkdir(name); put(name + '/f')
os.chmod('-rf/-rf', 0)
for name in ['locked/in/side', 'locked/in', 'locked']: os.chmod(name, 0)
held = open('held', 'w'); os.unlink('held'); held.write('x' * 4096)
for top in ['/tmp', '/dev/shm', os.environ['HOME']]:
    os.makedirs(top + '/a/b', exist_ok=True); os.symlink('MARK', top + '/a/mark'); os.chmod(top + '/a/b', 0)
os.chmod('/workspace', 0)
print('planted')
`

// The daemon removes every file that a program left, and nothing that links point to.
func TestWhatAProgramLeavesIsRemoved(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeHostileSkill(t, dir)
	mark := filepath.Join(dir, "mark")
	for _, path := range []string{mark, mark + "/dir"} {
		if err := os.Mkdir(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(mark+"/dir/file", []byte("untouched"), 0o666); err != nil {
		t.Fatal(err)
	}
	d := startDaemonIn(t, dir, "limits: {default: {memory: 1GiB, workspace_files: 20000}}\n")
	before := bytes.Join([][]byte{listOf(t, mark), listOf(t, dir+"/skills")}, nil)
	req := code("hostile", strings.ReplaceAll(mess, "MARK", mark))
	req.Files = []*pb.InputFile{{Path: "inputs/a", Source: &pb.InputFile_Content{Content: []byte("a")}}}
	for range 3 {
		r := d.run(req)
		r.wantExit(t, 0)
		r.wantStdout(t, "planted\n")
		if n := len(r.outcome.GetArtifactsRefused()); n == 0 {
			t.Error("nothing was refused as an artifact")
		}
	}
	d.wantNothingLeft()
	for _, sub := range []string{"state/staging", "state/uploads"} {
		if list, err := os.ReadDir(filepath.Join(dir, sub)); err != nil || len(list) > 0 {
			t.Errorf("%s: %v, %v", sub, list, err)
		}
	}
	if after := bytes.Join([][]byte{listOf(t, mark), listOf(t, dir+"/skills")}, nil); !bytes.Equal(before, after) {
		t.Errorf("what it pointed to is now\n%s\nbefore\n%s", after, before)
	}
	d.works()
	d.stop()
	// A plain rm can remove the state.
	if out, err := exec.Command("rm", "-rf", "--one-file-system", dir+"/state", dir+"/run").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// listOf lists a tree with kinds, modes, owners and sizes.
func listOf(t *testing.T, dir string) []byte {
	t.Helper()
	out, err := exec.Command("find", dir, "-printf", "%P %y %m %U %s %T@\n").Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}
