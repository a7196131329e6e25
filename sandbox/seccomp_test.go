package sandbox

import (
	"strings"
	"testing"
)

// TestFilterInside makes the most important calls in a sandbox and checks the
// kernel's answers.
func TestFilterInside(t *testing.T) { eachMaker(t, testFilterInside) }

func testFilterInside(t *testing.T, h *Host) {
	probe := `
import ctypes, errno
L = ctypes.CDLL(None, use_errno=True)
def call(name, n, *args):
    ctypes.set_errno(0)
    r = L.syscall(ctypes.c_long(n), *[ctypes.c_long(a) for a in args])
    print(name, "ok" if r >= 0 else errno.errorcode[ctypes.get_errno()])
call("ptrace", 101, 0, 0, 0, 0)
call("mount", 165, 0, 0, 0, 0, 0)
call("unshare", 272, 0)
call("keyctl", 250, 0, 0, 0)
call("io_uring_setup", 425, 1, 0)
call("userfaultfd", 323, 0)
call("bpf", 321, 0, 0, 0)
call("seccomp", 317, 2, 0, 0)
call("setuid", 105, 1000)
call("clone3", 435, 0, 0)
call("nonesuch", 1000)
call("x32 getpid", 0x40000000 + 39)
call("clone NEWUSER", 56, 0x10000000 | 17, 0, 0, 0, 0)
call("socket NETLINK", 41, 16, 3, 0)
call("socket UNIX", 41, 1, 1, 0)
call("socket UNIX with high bits", 41, 1 + (1 << 32), 1, 0)
call("socket INET", 41, 2, 1, 0)
call("socket INET6 dgram cloexec", 41, 10, 2 | 0o2000000, 17)
call("socket INET raw", 41, 2, 3, 1)
call("socket ping", 41, 2, 2, 1)
call("socket MPTCP", 41, 2, 1, 262)
call("socketpair UNIX", 53, 1, 1, 0, 0)
call("socketpair INET", 53, 2, 1, 0, 0)
call("socketpair TIPC", 53, 30, 5, 0, 0)
call("socketpair VSOCK with high bits", 53, 40 + (1 << 32), 2, 0, 0)
call("ioctl TIOCSTI", 16, 0, 0x5412, 0)
call("ioctl TIOCSTI with high bits", 16, 0, 0x5412 + (1 << 32), 0)
call("fcntl GETFL", 72, 0, 3, 0)
call("fcntl GETFL with high bits", 72, 0, 3 + (1 << 32), 0)
call("fcntl SETOWN", 72, 0, 8, 1)
call("fcntl SETSIG", 72, 0, 10, 10)
call("fcntl SETLEASE", 72, 0, 1024, 2)
call("fcntl SETLEASE with high bits", 72, 0, 1024 + (1 << 32), 2)
call("fcntl GETLEASE", 72, 0, 1025, 0)
call("fcntl NOTIFY", 72, 0, 1026, 1)
call("futex PI", 202, 0, 6, 0, 0, 0, 0)
call("splice", 275, 0, 0, 1, 0, 1, 0)
call("mknod device", 133, 0, 0o020666, 259)
call("setsockopt SO_REUSEADDR", 54, -1, 1, 2, 0, 0)
call("setsockopt SO_ATTACH_FILTER", 54, -1, 1, 26, 0, 0)
call("setsockopt SO_ATTACH_FILTER with high bits", 54, -1, 1 + (1 << 32), 26 + (1 << 32), 0, 0)
call("setsockopt SO_ATTACH_REUSEPORT_CBPF", 54, -1, 1, 51, 0, 0)
call("setsockopt UDP_SEGMENT", 54, -1, 17, 103, 0, 0)
call("setsockopt UDP_ENCAP", 54, -1, 17, 100, 0, 0)
call("setsockopt IPV6_2292HOPLIMIT", 54, -1, 41, 8, 0, 0)
call("setsockopt IPV6_2292PKTOPTIONS", 54, -1, 41, 6, 0, 0)
call("setsockopt IPV6_FLOWLABEL_MGR", 54, -1, 41, 32, 0, 0)
call("setsockopt MCAST_BLOCK_SOURCE", 54, -1, 41, 43, 0, 0)
call("setsockopt MCAST_JOIN_SOURCE_GROUP", 54, -1, 41, 46, 0, 0)
call("setsockopt MCAST_MSFILTER", 54, -1, 41, 48, 0, 0)
call("setsockopt MCAST_JOIN_GROUP", 54, -1, 41, 42, 0, 0)
call("setsockopt IPV6_RECVPKTINFO", 54, -1, 41, 49, 0, 0)
call("mmap MAP_HUGETLB MAP_NORESERVE", 9, 0, 2 << 20, 3, 0x44022, -1, 0)
call("memfd_create MFD_HUGETLB", 319, 0, 4)
call("memfd_create MFD_CLOEXEC", 319, 0, 1)
call("sendfile", 40, -1, -1, 0, 1)
call("getsockopt SO_ERROR", 55, -1, 1, 4, 0, 0)
call("getsockopt TCP_INFO", 55, -1, 6, 11, 0, 0)
call("getsockopt TCP_ZEROCOPY_RECEIVE", 55, -1, 6, 35, 0, 0)
call("getsockopt TCP_ZEROCOPY_RECEIVE with high bits", 55, -1, 6 + (1 << 32), 35 + (1 << 32), 0, 0)
call("prctl PR_GET_DUMPABLE", 157, 3)
call("prctl PR_SET_SECCOMP", 157, 22, 2, 0)
call("prctl PR_SET_SECCOMP with high bits", 157, 22 + (1 << 32), 2, 0)
call("prctl PR_SCHED_CORE", 157, 62, 0, 0, 0, 0)
`
	want := `ptrace EPERM
mount EPERM
unshare EPERM
keyctl EPERM
io_uring_setup EPERM
userfaultfd EPERM
bpf EPERM
seccomp EPERM
setuid EPERM
clone3 ENOSYS
nonesuch ENOSYS
x32 getpid ENOSYS
clone NEWUSER ENOSYS
socket NETLINK ENOSYS
socket UNIX ok
socket UNIX with high bits ok
socket INET ok
socket INET6 dgram cloexec ok
socket INET raw ENOSYS
socket ping ENOSYS
socket MPTCP ENOSYS
socketpair UNIX EFAULT
socketpair INET ENOSYS
socketpair TIPC ENOSYS
socketpair VSOCK with high bits ENOSYS
ioctl TIOCSTI ENOSYS
ioctl TIOCSTI with high bits ENOSYS
fcntl GETFL ok
fcntl GETFL with high bits ok
fcntl SETOWN ENOSYS
fcntl SETSIG ENOSYS
fcntl SETLEASE ENOSYS
fcntl SETLEASE with high bits ENOSYS
fcntl GETLEASE ENOSYS
fcntl NOTIFY ENOSYS
futex PI ENOSYS
splice ENOSYS
mknod device ENOSYS
setsockopt SO_REUSEADDR EBADF
setsockopt SO_ATTACH_FILTER ENOSYS
setsockopt SO_ATTACH_FILTER with high bits ENOSYS
setsockopt SO_ATTACH_REUSEPORT_CBPF ENOSYS
setsockopt UDP_SEGMENT EBADF
setsockopt UDP_ENCAP ENOSYS
setsockopt IPV6_2292HOPLIMIT EBADF
setsockopt IPV6_2292PKTOPTIONS ENOSYS
setsockopt IPV6_FLOWLABEL_MGR ENOSYS
setsockopt MCAST_BLOCK_SOURCE ENOSYS
setsockopt MCAST_JOIN_SOURCE_GROUP ENOSYS
setsockopt MCAST_MSFILTER ENOSYS
setsockopt MCAST_JOIN_GROUP EBADF
setsockopt IPV6_RECVPKTINFO EBADF
mmap MAP_HUGETLB MAP_NORESERVE ENOSYS
memfd_create MFD_HUGETLB ENOSYS
memfd_create MFD_CLOEXEC EFAULT
sendfile EINVAL
getsockopt SO_ERROR EBADF
getsockopt TCP_INFO EBADF
getsockopt TCP_ZEROCOPY_RECEIVE ENOSYS
getsockopt TCP_ZEROCOPY_RECEIVE with high bits ENOSYS
prctl PR_GET_DUMPABLE ok
prctl PR_SET_SECCOMP EINVAL
prctl PR_SET_SECCOMP with high bits EINVAL
prctl PR_SCHED_CORE ENOSYS
`
	if strings.Contains(machine(t), "aarch64") {
		t.Skip("the numbers above are x86_64's")
	}
	got := run(t, h, Spec{Program: command("python3", "-c", probe), Env: testEnv}, "")
	if got.stdout != want {
		t.Errorf("got\n%s\nwant\n%s", got.stdout, want)
	}
}
