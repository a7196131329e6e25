package pseudofs

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// A Status is the text of /proc/<pid>/status, which shows a process's ids, capabilities and
// filters (proc(5)).
type Status string

// ReadStatus reads the status of a process. pid is a number, or "self".
func ReadStatus(pid string) (Status, error) {
	text, err := Read("/proc/" + pid + "/status")
	return Status(text), err
}

// Value returns the value of key, and whether the status has the key.
func (s Status) Value(key string) (string, bool) {
	_, rest, found := strings.Cut(string(s), "\n"+key+":") // the first line, Name, can't be looked up: no caller needs it
	if !found {
		return "", false
	}
	value, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(value), true
}

// Of returns the value of key, or "".
func (s Status) Of(key string) string {
	value, _ := s.Value(key)
	return value
}

// Compare compares lines of s with want, pairs of a key and its value. It returns nil if all are
// equal, else an error of type Differences that lists every difference.
func (s Status) Compare(want [][2]string) error {
	var all Differences
	for _, line := range want {
		key, value := line[0], line[1]
		got, known := s.Value(key)
		if !known && key == "Seccomp_filters" { // since Linux 5.9 (proc(5)); the number of filters is then not checked
			continue
		}
		if got != value {
			all = all.And(fmt.Errorf("%s: got %q, want %q", key, got, value))
		}
	}
	return all.OrNil()
}

// OwnFilters returns the number of seccomp filters that this process inherited, for example
// from systemd. Every process that it starts inherits them. The daemon itself loads no filter,
// so the number is read once.
func OwnFilters() (int, error) { return ownFilters() }

var ownFilters = sync.OnceValues(func() (int, error) {
	status, err := ReadStatus("self")
	if err != nil {
		return 0, err
	}
	n, _ := strconv.Atoi(status.Of("Seccomp_filters"))
	return n, nil
})

// Differences is an error for one line of a log: how a process differs from its expected state.
type Differences []error

// And returns d with one more difference, unless err is nil.
func (d Differences) And(err error) Differences {
	if err == nil {
		return d
	}
	return append(d, err)
}

// OrNil returns d as an error, or nil if d is empty.
func (d Differences) OrNil() error {
	if len(d) == 0 {
		return nil
	}
	return d
}

// Unwrap makes errors.Is and errors.As look at each difference.
func (d Differences) Unwrap() []error { return d }

func (d Differences) Error() string {
	all := make([]string, len(d))
	for i, err := range d {
		all[i] = err.Error()
	}
	return strings.Join(all, "; ")
}

// PIDOf returns the pid of a pidfd's process, in this process's PID namespace. The kernel shows 0 if the process is
// outside of the namespace, and -1 after it was reaped (pidfd_show_fdinfo in the kernel); both are errors.
func PIDOf(pidfd int) (int, error) {
	text, err := Read(fmt.Sprintf("/proc/self/fdinfo/%d", pidfd))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if pid, ok := strings.CutPrefix(line, "Pid:"); ok {
			n, err := strconv.Atoi(strings.TrimSpace(pid))
			if err == nil && n <= 0 {
				err = errors.New("pidfd: process is gone")
			}
			return n, err
		}
	}
	return 0, errors.New("pidfd: no pid")
}
