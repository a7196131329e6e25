package cgroup

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// cpuPeriod is the period of a CPU limit in microseconds, the kernel's default. In each
// period the processes of a sandbox together run for their share and then wait for the next.
const cpuPeriod = 100_000

// Bounds of a CPU limit, in thousandths of a processor. The kernel takes no share below 1 ms of a period.
const (
	MinMilliCPUs = 10
	MaxMilliCPUs = 1_000_000
)

// LimitCPU limits the group's processes to so many thousandths of a processor together,
// and reads the limit back. Zero removes the limit. The quota is in microseconds of each period,
// sched-bwc.rst and cgroup-v2.rst ("cpu.max"). The error wraps the kernel's errno.
func (g Group) LimitCPU(milli int) error {
	if _, ok := g.Dirs["cpu"]; !ok && !g.Unified {
		return errors.New("limit of processors: no cpu controller")
	}
	quota := strconv.Itoa(milli * cpuPeriod / 1000)
	want := [][2]string{{"cpu.cfs_period_us", strconv.Itoa(cpuPeriod)}, {"cpu.cfs_quota_us", quota}}
	switch {
	case g.Unified && milli == 0:
		want = [][2]string{{"cpu.max", "max " + strconv.Itoa(cpuPeriod)}}
	case g.Unified:
		want = [][2]string{{"cpu.max", quota + " " + strconv.Itoa(cpuPeriod)}}
	case milli == 0:
		want = [][2]string{{"cpu.cfs_quota_us", "-1"}}
	}
	for _, w := range want {
		if err := g.Write("cpu", w[0], w[1]); err != nil {
			// v1 refuses a share larger than a parent cgroup's (sched-bwc.rst).
			if errors.Is(err, unix.EINVAL) && !g.Unified {
				err = fmt.Errorf("%w: a cgroup above %s may use less", err, filepath.Dir(g.File("cpu", w[0])))
			}
			return err
		}
		if got, err := g.Read("cpu", w[0]); err != nil {
			return err
		} else if strings.Join(strings.Fields(got), " ") != w[1] {
			return fmt.Errorf("%s is %s, want %s", w[0], got, w[1])
		}
	}
	return nil
}
