package sandbox

import (
	"slices"
	"strconv"
	"strings"
)

// socketLimit is the file by which cgroup v1 bounds the buffers of TCP and UDP. It has
// a count of its own there: the memory limit doesn't see them. On v2 they are charged to
// memory.max like everything else.
const socketLimit = "memory.kmem.tcp.limit_in_bytes"

// socketShare is the part of a sandbox's memory that such buffers may take beside it on
// v1. Linux gives all of TCP 9 % of a machine's memory and all of UDP 19 %
// (tcp_init_mem in net/ipv4/tcp.c, udp_init in net/ipv4/udp.c): an eighth lies between.
const socketShare = 8

// socketBytes is that part of a memory limit.
func socketBytes(memory int64) int64 { return memory / socketShare }

// limitSockets bounds the buffers of the group's sockets, to which the kernel counts
// only those that are made later.
func (g group) limitSockets(memory int64) error {
	if g.unified {
		return nil
	}
	return g.write("memory", socketLimit, strconv.FormatInt(socketBytes(memory), 10))
}

// socketBound is the most that a sandbox with that much memory may hold in buffers of TCP
// on v1. Each connection gets a little beyond the limit, so that it can go on
// (sk_stream_moderate_sndbuf): as much again is more than the probe's files are good for.
//
// On v2 it is 0 and the probe fills no buffers: at the memory limit the kernel would kill
// the probe before its report. uncountedSockets says what could be wrong there.
func (h *Host) socketBound(memory int64) int64 {
	if h.cgroups.unified {
		return 0
	}
	return 2 * socketBytes(memory)
}

// uncountedSockets returns why the memory limit of cgroup v2 doesn't count buffers of
// sockets, or "". The kernel's command line is the only thing that can keep it from that
// (cgroup.memory in kernel-parameters.txt).
func uncountedSockets(commandLine string) string {
	for _, word := range strings.Fields(commandLine) {
		options, ok := strings.CutPrefix(word, "cgroup.memory=")
		if ok && slices.Contains(strings.Split(options, ","), "nosocket") {
			return "the kernel was started with " + word
		}
	}
	return ""
}
