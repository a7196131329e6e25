package cgroup

import (
	"slices"
	"strconv"
	"strings"
)

// SocketLimit is the file of cgroup v1 with the limit for buffers of TCP and UDP. On v1 the
// memory limit doesn't count them. On v2 memory.max counts them.
const SocketLimit = "memory.kmem.tcp.limit_in_bytes"

// SocketShare divides a sandbox's memory limit: on v1 such buffers may take that part in
// addition to the limit. Linux gives all of TCP 9 % of a machine's memory and all of UDP
// 19 % (tcp_init_mem in net/ipv4/tcp.c, udp_init in net/ipv4/udp.c). An eighth is between.
const SocketShare = 8

// socketBytes is the limit of the buffers, in bytes, for a memory limit.
func socketBytes(memory int64) int64 { return memory / SocketShare }

// LimitSockets bounds the buffers of the group's sockets. The kernel counts only sockets
// that are made later.
func (g Group) LimitSockets(memory int64) error {
	if g.Unified {
		return nil
	}
	return g.Write("memory", SocketLimit, strconv.FormatInt(socketBytes(memory), 10))
}

// SocketBound is the most that a sandbox with that much memory may hold in buffers of TCP
// on v1. Each connection gets a little above the limit, so that it can go on
// (sk_stream_moderate_sndbuf). The probe has too few descriptors to double the limit so.
//
// On v2 it is 0 and the probe fills no buffers: at the memory limit the kernel would kill
// the probe before its report. UncountedSockets reports the setting that would break the count.
func (h *Hierarchy) SocketBound(memory int64) int64 {
	if h.Unified {
		return 0
	}
	return 2 * socketBytes(memory)
}

// UncountedSockets returns why the memory limit of cgroup v2 doesn't count buffers of
// sockets, or "". Only the kernel's command line can turn the count off (cgroup.memory in
// kernel-parameters.txt).
func UncountedSockets(commandLine string) string {
	for _, word := range strings.Fields(commandLine) {
		options, ok := strings.CutPrefix(word, "cgroup.memory=")
		if ok && slices.Contains(strings.Split(options, ","), "nosocket") {
			return "the kernel was started with " + word
		}
	}
	return ""
}
