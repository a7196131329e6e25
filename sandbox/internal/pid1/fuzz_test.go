package pid1

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/runc/libcontainer/configs"

	"github.com/skillrun/skillrun/sandbox/internal/seccomp"
	"golang.org/x/sys/unix"
)

// maxHarnessInput is MAX_INPUT of testdata/harness/main.c.
const maxHarnessInput = 1 << 16

// A harness is a process that runs the C code of init, of the zygote of sandboxes and of
// the commands that they start, with AddressSanitizer and UBSan. testdata/harness/fake.c
// answers their system calls from the input.
type harness struct {
	cmd    *exec.Cmd
	in     *os.File
	out    *os.File
	input  *os.File // the current input, for the report of a crash
	stderr *os.File
}

// Each process of a fuzz test has one harness.
var startedHarness = sync.OnceValues(startHarness)

func startHarness() (*harness, error) {
	dir, err := os.MkdirTemp("", "skillrun-harness-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "harness")
	if err := compileHarness(dir, program); err != nil {
		return nil, err
	}
	// A search runs many variants of an input, a run of the corpus only a few.
	variants := "8"
	if flag.Lookup("test.fuzz").Value.String() != "" {
		variants = "64"
	}
	h := &harness{cmd: exec.Command(program, variants)}
	h.cmd.Env = []string{"ASAN_OPTIONS=detect_leaks=0:abort_on_error=1", "UBSAN_OPTIONS=print_stacktrace=1"}
	var files [2]*os.File
	for i := range files {
		fd, err := unix.MemfdCreate("harness", unix.MFD_CLOEXEC)
		if err != nil {
			return nil, err
		}
		files[i] = os.NewFile(uintptr(fd), "harness")
	}
	h.input, h.stderr = files[0], files[1]
	if err := h.input.Truncate(4 + maxHarnessInput); err != nil {
		return nil, err
	}
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirIn.Close()
	defer theirOut.Close()
	h.in, h.out = in, out
	h.cmd.Stdin, h.cmd.Stdout, h.cmd.Stderr, h.cmd.ExtraFiles = theirIn, theirOut, h.stderr, []*os.File{h.input}
	return h, h.cmd.Start() // it ends when this process ends, because it reads a pipe of this process
}

// compileHarness compiles the released C sources with this package's flags, except those
// that the sanitizers replace.
func compileHarness(dir, program string) error {
	flags := strings.Fields("-std=gnu11 -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer")
	const own = "testdata/harness/"
	var all sync.WaitGroup
	var objects []string
	results := map[string]chan error{}
	compile := func(source string, more ...string) {
		object := filepath.Join(dir, strings.ReplaceAll(source, "/", "_")+".o")
		objects = append(objects, object)
		done := make(chan error, 1)
		results[source] = done
		all.Go(func() {
			args := append(append(append([]string{}, flags...), more...), "-c", "-o", object, source)
			if text, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
				done <- fmt.Errorf("gcc %s: %w\n%s", source, err, text)
			}
			close(done)
		})
	}
	for _, source := range []string{own + "init.c", own + "zygote.c", "wire.c", "confine.c", "init_program.c", "init_glob.c", "init_child.c", "init_cloned.c"} {
		compile(source, "-fsanitize-coverage=trace-pc", "-include", own+"fake.h")
	}
	compile(own + "fake.c")
	compile(own + "main.c")
	all.Wait()
	for _, done := range results {
		if err := <-done; err != nil {
			return err
		}
	}
	text, err := exec.Command("gcc", append(append(append([]string{}, flags...), "-o", program), objects...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("gcc: %w\n%s", err, text)
	}
	return nil
}

// Which program runs.
const (
	harnessInit   = 0
	harnessZygote = 1
)

// run sends the harness one input: choices has one byte for the result of each system call,
// and text holds the bytes that the program's peers send. It returns how far the program
// came (harness.h).
func (h *harness) run(t *testing.T, which byte, choices, text []byte) byte {
	const head = 4
	if len(choices) > 1<<12 || head+len(choices)+len(text) > maxHarnessInput {
		return 0
	}
	input := append([]byte{which, byte(len(choices)), byte(len(choices) >> 8), 0}, choices...)
	input = append(input, text...)
	b := append(binary.LittleEndian.AppendUint32(nil, uint32(len(input))), input...)
	_, err := h.in.Write(b)
	answer := make([]byte, 1)
	if err == nil {
		_, err = h.out.Read(answer)
	}
	if err == nil {
		return answer[0]
	}
	_ = h.cmd.Wait()
	said, _ := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d", h.stderr.Fd()))
	ran := make([]byte, 4+maxHarnessInput)
	_, _ = h.input.ReadAt(ran, 0)
	ran = ran[4 : 4+min(int(binary.LittleEndian.Uint32(ran)), maxHarnessInput)]
	t.Fatalf("the C code ended by %v\n%s\nby input %x", h.cmd.ProcessState, said, ran)
	return 0
}

func fuzzHarness(f *testing.F, which byte) {
	h, err := startedHarness()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, choices, text []byte) { h.run(t, which, choices, text) })
}

// oneInstruction is a filter that allows every call.
var oneInstruction = []byte{6, 0, 0, 0, 0, 0, 0xff, 0x7f}

// harnessProgram returns the payload of FrameProgram for a plan with every kind of part.
func harnessProgram(f testing.TB) []byte {
	f.Helper()
	env := []string{"PATH=/usr/bin::/bin"}
	one := Command{
		Args: []string{"ls", "*.[a-z]", `-\*`}, Env: env, PipeStderr: true,
		Globs:     []Glob{{Arg: 1, Pattern: "*.[a-z]*"}, {Arg: 2, Pattern: `?/[[:alpha:]]*`}},
		Redirects: []Redirect{{FD: 1, Kind: RedirectWrite, Text: "out"}, {FD: 2, Kind: RedirectDup, From: 1}, {FD: 0, Kind: RedirectText, Text: "text"}},
	}
	step := func(when uint32, c ...Command) Step { return Step{When: when, Commands: c} }
	simple := func(args ...string) Command { return Command{Args: args, Env: env} }
	b, err := Plan{Deadline: time.Minute, Dir: "a/b", Steps: []Step{
		step(WhenAlways, simple("cat"), one), step(WhenSucceeded, simple("/bin/echo", "hi")), step(WhenFailed, simple("false")),
	}}.Encode()
	if err != nil {
		f.Fatal(err)
	}
	return b
}

// FuzzInit fuzzes init, and its children until their exec. The input decides the daemon's
// frames, the children's reports and ends, the file names in a script's directories and
// the kernel's errors.
func FuzzInit(f *testing.F) {
	limits := []configs.Rlimit{{Type: unix.RLIMIT_CORE, Hard: 1, Soft: 1}}
	filters := seccomp.Filters{Init: oneInstruction, Script: oneInstruction}
	program := AppendFrame(nil, FrameFilters, EncodeFilters(filters, 1024, limits))
	program = AppendFrame(program, FrameMounts, []byte("name\x00/workspace\x00/skills/a\x00"))
	program = AppendFrame(program, FrameProgram, harnessProgram(f))
	word := binary.LittleEndian.AppendUint32(nil, 15)
	all := AppendFrame(AppendFrame(append([]byte{}, program...), FrameSignal, word), FrameTerm, nil)
	f.Add(make([]byte, 200), AppendFrame(all, FrameKill, nil))
	f.Add([]byte{}, append([]byte{}, program...))
	// The twenty-sixth call is the fork of the second command. This input follows the child.
	child := make([]byte, 80)
	child[25] = 1
	f.Add(child, append(append([]byte{}, program...), strings.Repeat("\x03a.b\x05-c.dé\x01\xff", 6)...))
	f.Add([]byte{}, []byte("no frame"))
	fuzzHarness(f, harnessInit)
}

// A zygoteSeed is a start of FuzzZygote's search, with how far it leads (harness.h).
type zygoteSeed struct {
	choices, text []byte
	reaches       byte
}

// zygoteSeeds are a zygote that clones a sandbox and starts a Python zygote, and two cloned
// inits: the first process of one is forked by init, of the other by a Python zygote.
func zygoteSeeds(f testing.TB) []zygoteSeed {
	packet := func(b []byte) []byte { return append([]byte{byte(len(b)), byte(len(b) >> 8)}, b...) }
	// Four filters of one instruction each, Python zygotes, two masks and two mount points.
	begin := PacketHeader(PacketBegin, 1, 1, 1, 1, 1, 1, 2, 2)
	begin = append(append(begin, bytes.Repeat(oneInstruction, 4)...), "/proc/kcore\x00/proc/fs\x00/\x00/usr\x00"...)
	const fds = 4 + 2 + 1 // of the packet of a sandbox: a socket, three streams, two mounts, one cgroup
	sandboxOf := func(executes uint32) []byte {
		b := PacketHeader(PacketMake, 1, 2, 1024, executes, 100, 1, 2, 2)
		b = binary.LittleEndian.AppendUint64(b, 1<<20)
		for range 2 {
			b = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, unix.RLIMIT_NOFILE), 1024)
		}
		return append(b, make([]byte, MakeBytes-len(b))...)
	}
	spawn := append(PacketHeader(PacketSpawn, 1, 1, 1), "python3\x00A=b\x00"...)
	// before has one choice for each call before the second packet's number of descriptors.
	before := make([]byte, 15)
	choices := func(then ...byte) []byte { return append(append([]byte{}, before...), then...) }
	start := func(executes uint32) []byte { return append(packet(begin), packet(sandboxOf(executes))...) }
	mounts := AppendFrame(nil, FrameMounts, []byte("name\x00/workspace\x00/skills/a\x00"))
	program := AppendFrame(append([]byte{}, mounts...), FrameProgram, harnessProgram(f))
	forked := AppendFrame(append([]byte{}, mounts...), FrameForked, EncodeForked(7, time.Minute))
	return []zygoteSeed{
		// The clone is the fourth call from the number of descriptors on. 1: follow the child.
		{choices(fds, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2), append(start(1), packet(spawn)...), 3},
		{choices(fds, 0, 0, 1), append(start(1), program...), 0x71},
		{choices(fds, 0, 0, 1), append(start(0), AppendFrame(forked, FrameFinish, nil)...), 0x71},
	}
}

// FuzzZygote fuzzes the zygote with the daemon's packets, and then the init that the zygote
// cloned with the daemon's frames. Init forks the first process, or a Python zygote does.
func FuzzZygote(f *testing.F) {
	for _, seed := range zygoteSeeds(f) {
		f.Add(seed.choices, seed.text)
	}
	fuzzHarness(f, harnessZygote)
}

// A change of the protocol that forgets the seeds of FuzzZygote would let the search begin
// at the first check of the first packet.
func TestSeedsOfFuzzZygote(t *testing.T) {
	h, err := startedHarness()
	if err != nil {
		t.Fatal(err)
	}
	for i, seed := range zygoteSeeds(t) {
		if got := h.run(t, harnessZygote, seed.choices, seed.text); got != seed.reaches {
			t.Errorf("seed %d: reached %#x, want %#x", i, got, seed.reaches)
		}
	}
}
