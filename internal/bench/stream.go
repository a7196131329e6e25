package bench

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"time"

	skillrun "github.com/skillrun/skillrun/clients/go"
)

// A stamped reads the first line of output, a time in nanoseconds since 1970, and records
// when it arrived.
type stamped struct {
	line strings.Builder
	at   time.Time
}

// Write reads the clock first, before it does anything with the bytes.
func (s *stamped) Write(p []byte) (int, error) {
	if s.at.IsZero() {
		s.at = time.Now()
	}
	s.line.Write(p)
	return len(p), nil
}

// age returns how old the stamp was when its first byte arrived, in milliseconds. Both
// sides use the wall clock.
func (s *stamped) age() (float64, error) {
	written, err := strconv.ParseInt(strings.TrimSpace(s.line.String()), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the stamp: %w", err)
	}
	return float64(s.at.UnixNano()-written) / 1e6, nil
}

// firstByte measures how long the first byte of a script takes: through the sandbox, the record
// and gRPC to the client, and through a pipe. The script reads the clock just before it writes,
// and the client just after the first byte has come, so the start of Python does not count.
func firstByte(r *run, rows rowSet) error {
	d, err := r.theStandard()
	if err != nil {
		return err
	}
	var ours, alone []float64
	n := r.samples(200)
	for i := range n + r.scale.warmUp {
		a, err := stampSandboxed(r, d.client)
		if err != nil {
			return err
		}
		b, err := stampBare()
		if err != nil {
			return err
		}
		if i >= r.scale.warmUp {
			ours, alone = append(ours, a), append(alone, b)
		}
	}
	r.report.keep("first-byte", "ms", []*subject{{name: "skillrun"}, {name: "bare"}}, [][]float64{ours, alone})
	for _, row := range rows {
		row.Against = "a pipe"
	}
	rows["first-byte-p50"].setPairs(ours, alone, 0.5)
	rows["first-byte-p95"].setPairs(ours, alone, 0.95)
	return nil
}

// stampSandboxed and stampBare return the age of the first byte of one run, in milliseconds.
func stampSandboxed(r *run, c *skillrun.Client) (float64, error) {
	var s stamped
	cmd := c.Script(benchSkill, "scripts/stamp.py")
	cmd.Stdout = &s
	if err := cmd.Run(r.ctx); err != nil {
		return 0, fmt.Errorf("sandboxed: %w", err)
	}
	return s.age()
}

func stampBare() (float64, error) {
	var s stamped
	cmd := exec.Command(systemPython, "-c", stampProgram)
	cmd.Env = bareEnv
	cmd.Stdout = &s
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("bare: %w", err)
	}
	return s.age()
}

// A counter counts the bytes that are written to it.
type counter struct{ n int }

// It does nothing with the bytes, so that the reader is not the bottleneck.
func (c *counter) Write(p []byte) (int, error) {
	c.n += len(p)
	return len(p), nil
}

// streaming measures how fast a script's output arrives, up to the maximum output limit.
func streaming(r *run, rows rowSet) error {
	d, err := r.startNew("stream", "")
	if err != nil {
		return err
	}
	err = streamFrom(r, d, rows)
	return errors.Join(err, d.stop())
}

// streamFrom compares the output rate through the daemon with the rate through a pipe, and
// measures how much the daemon's memory grows. VmHWM has the peak, because memory may be free
// again when the output has ended.
func streamFrom(r *run, d *daemon, rows rowSet) error {
	n := r.scale.streamBytes / streamPiece * streamPiece
	if _, err := stream(r, d.client, streamPiece); err != nil { // an untimed first run
		return err
	}
	// Not the memory of an idle daemon: the row has the growth during the output.
	before, err := residentBytes(d.pid())
	if err != nil {
		return err
	}
	if err := forgetPeak(d.pid()); err != nil {
		return err
	}
	took, err := stream(r, d.client, n)
	if err != nil {
		return err
	}
	peak, err := peakBytes(d.pid())
	if err != nil {
		return err
	}
	alone, err := streamBare(n)
	if err != nil {
		return err
	}
	rows["stream-rate"].setRatio(float64(n)/(1<<20)/took, float64(n)/(1<<20)/alone, 1)
	rows["stream-rate"].Against = "a pipe"
	rows["stream-memory"].set(float64(peak-before)/(1<<20), 1)
	return nil
}

// stream has a script print n bytes. It returns how long they took to arrive after the first one,
// in seconds. The first byte starts the clock, so that the start of the sandbox does not count.
func stream(r *run, c *skillrun.Client, n int) (float64, error) {
	var got counter
	var first time.Time
	cmd := c.Script(benchSkill, "scripts/stream.py", strconv.Itoa(n))
	cmd.Limits.OutputBytes = uint64(n)
	cmd.Stdout = writerFunc(func(p []byte) (int, error) {
		if first.IsZero() {
			first = time.Now()
		}
		return got.Write(p)
	})
	if err := cmd.Run(r.ctx); err != nil {
		return 0, fmt.Errorf("sandboxed: %w", err)
	}
	if got.n != n {
		return 0, fmt.Errorf("sandboxed: %d bytes arrived, want %d", got.n, n)
	}
	return time.Since(first).Seconds(), nil
}

// writerFunc makes a function a writer, like http.HandlerFunc.
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// streamBare does the same through a pipe. It returns seconds, from the first byte on.
func streamBare(n int) (float64, error) {
	cmd := exec.Command(systemPython, "-c", streamProgram, strconv.Itoa(n))
	cmd.Env = bareEnv
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	var got counter
	in := bufio.NewReader(pipe)
	_, err = in.ReadByte()
	first := time.Now()
	if err == nil {
		got.n = 1
		_, err = io.Copy(&got, in)
	}
	if err := errors.Join(err, cmd.Wait()); err != nil {
		return 0, fmt.Errorf("bare: %w", err)
	}
	if got.n != n {
		return 0, fmt.Errorf("bare: %d bytes arrived, want %d", got.n, n)
	}
	return time.Since(first).Seconds(), nil
}
