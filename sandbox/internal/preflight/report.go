package preflight

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"time"
)

// An End is the end of the probe's program, as the daemon saw it.
type End struct {
	Err          error  // nil: the daemon saw the end
	How          string // in words, without the exit code
	Code         int
	Signal       syscall.Signal
	OutOfMemory  bool   // its memory ran out
	Killed       uint64 // processes that the kernel killed for memory
	RefusedForks uint64 // forks that the kernel refused for the limit of processes
	CPU          time.Duration
	Unremoved    string // remains of the sandbox after its teardown; "": none
}

// maxReport bounds the report, in bytes.
const maxReport = 64 << 10

// A Report collects the output of the probe's program, at most maxReport bytes. The zero Report
// is empty.
type Report struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

// Write returns an error if the report gets too long. The remaining lines are then lost, so
// their checks count as missing.
func (r *Report) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.buffer.Len()+len(b) > maxReport {
		return 0, io.ErrShortBuffer
	}
	return r.buffer.Write(b)
}

func (r *Report) text() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Clone(r.buffer.Bytes())
}

// Judge returns the boundaries of the sandbox, in the order of checks. The program's use of
// memory ends it, while processes that it started would stay.
//
// For the limits of memory and processes, the program's word is not enough: the kernel must have
// counted a kill for memory and a refused fork, too. The process limit is the last of checks.
func (r *Report) Judge(end End) []Boundary {
	said, complaint := parseReport(r.text(), checks)
	ended := fmt.Sprintf("the probe %s with code %d, signal %d", end.How, end.Code, end.Signal)
	if end.Err != nil {
		complaint = fmt.Sprintf("%s: %v", ended, end.Err)
	} else if complaint != "" {
		complaint += "; " + ended
	}
	last := &said[len(said)-1]
	if last.Found && end.RefusedForks == 0 {
		*last = checks[len(said)-1].boundary(false, "the kernel counted no refused fork")
	}
	return append(said,
		checkMemory.boundary(end.OutOfMemory && end.Killed > 0, fmt.Sprintf("%s, %d processes killed for memory", end.How, end.Killed)),
		checkEnd.boundary(end.Err == nil && end.Unremoved == "", cmp.Or(end.Unremoved, "the processes that the probe left, and their cgroup, are gone")),
		checkCPU.boundary(end.CPU > 0, fmt.Sprintf("%v counted", end.CPU)),
		checkReport.boundary(complaint == "", cmp.Or(complaint, fmt.Sprintf("%d checks", len(checks)))),
	)
}

// boundary returns the result of c.
func (c check) boundary(found bool, detail string) Boundary {
	if !found {
		detail = fmt.Sprintf("%s; needs %s", detail, c.how)
	}
	return Boundary{Name: c.name, Group: c.group, Why: c.why, Detail: detail, Found: found}
}

// parseReport parses the probe's report about want. A line is "NAME\tfound\tDETAIL" or
// "NAME\tmissing\tDETAIL". A check that the probe did not report
// exactly once, in a whole line, is not found. complaint describes a wrong or missing line,
// or is "".
func parseReport(text []byte, want []check) (found []Boundary, complaint string) {
	type line struct {
		held   bool
		detail string
		count  int
	}
	said := map[string]*line{}
	for _, c := range want {
		said[c.name] = &line{}
	}
	for raw := range bytes.Lines(text) {
		fields := strings.Split(strings.TrimSuffix(string(raw), "\n"), "\t")
		if !bytes.HasSuffix(raw, []byte("\n")) || len(fields) != 3 || fields[1] != "found" && fields[1] != "missing" {
			complaint = fmt.Sprintf("line %.100q is not part of a report", raw)
			continue
		}
		l := said[fields[0]]
		if l == nil {
			complaint = fmt.Sprintf("check %.100q is unknown", fields[0])
			continue
		}
		l.held, l.detail = fields[1] == "found", strings.ToValidUTF8(fields[2], "?")
		if l.count++; l.count > 1 {
			complaint = fmt.Sprintf("check %q was reported %d times", fields[0], l.count)
		}
	}
	for _, c := range want {
		l := said[c.name]
		switch l.count {
		case 0:
			l.detail = "the probe did not report this check"
		case 1:
		default:
			l.held, l.detail = false, "the probe reported this check more than once"
		}
		if l.count == 0 && complaint == "" {
			complaint = fmt.Sprintf("no report of %q", c.name)
		}
		found = append(found, c.boundary(l.held, l.detail))
	}
	return found, complaint
}
