/* The setup of a sandbox that the zygote has cloned. (Libcontainer sets up the others.)
 * The code runs as PID 1 with every capability in its new user namespace, before the
 * sandbox has a file of a skill, and keeps five capabilities. */
#define _GNU_SOURCE
#include "init_cloned.h"
#include "confine.h"
#include "wire.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/mount.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The moved descriptors begin above the descriptors that init keeps. */
enum { FIRST_MOVED_FD = 64 };

/* Flags of each file system that a sandbox mounts: no setuid bits, no devices. */
enum { CLEAN = MS_NOSUID | MS_NODEV };

/* Moves the streams and the control socket to the numbers that init expects, and closes
 * the zygote's descriptors. Returns how many descriptors remain in fds: the root's
 * mounts, then the cgroup files. */
static int arrange(int *fds, int count, int *mapped) {
	*mapped = fcntl(*mapped, F_DUPFD_CLOEXEC, FIRST_MOVED_FD);
	for (int i = 0; i < count; i++)
		fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, FIRST_MOVED_FD);
	for (int i = 0; i < 3; i++)
		if (dup2(fds[1 + i], i) < 0)
			_exit(1);
	if (dup3(fds[0], CONTROL_FD, O_CLOEXEC) < 0)
		_exit(1);
	for (int i = 0; i < 4; i++)
		close(fds[i]);
	memmove(fds, fds + 4, (size_t)(count - 4) * sizeof *fds);
	syscall(SYS_close_range, CONTROL_FD + 1, FIRST_MOVED_FD - 1, 0);
	return count - 4;
}

/* Becomes root of the sandbox, after the zygote has written the id maps. */
static void become_root(int mapped) {
	char m;
	if (read(mapped, &m, 1) != 1)
		_exit(1);
	close(mapped);
	if (setresgid(0, 0, 0) != 0 || setresuid(0, 0, 0) != 0 || setgroups(0, NULL) != 0)
		send_failed(STAGE_IDS, errno);
}

/* Enters the sandbox's cgroups, by files that the daemon opened, and then a new cgroup
 * namespace. The order matters: the namespace's root is the cgroup of this moment
 * (cgroup_namespaces(7)). */
static void enter_groups(const int *fds, int count) {
	for (int i = 0; i < count; i++)
		if (write(fds[i], "0", 1) != 1)
			send_failed(STAGE_CGROUP, errno);
	if (unshare(CLONE_NEWCGROUP) != 0)
		send_failed(STAGE_CGROUP, errno);
}

/* Mounts a new file system, whose type is also the name that /proc/mounts shows. */
static void mount_or_fail(const char *type, const char *target, unsigned long flags, const char *options) {
	if (mount(type, target, type, flags, options) != 0)
		send_failed(STAGE_MOUNTS, errno);
}

/* Builds the sandbox's root from the daemon's mounts, enters it and unmounts the zygote's
 * root. The kernel mounts a proc only while the mount namespace has another one, so the
 * new proc is mounted before the old root goes. */
static void enter_root(const struct zygote *zygote, const int *trees, uint32_t count) {
	static const char top[] = "/workspace"; /* any directory of the zygote */
	char path[512];
	for (uint32_t i = 0; i < count; i++) {
		int n = snprintf(path, sizeof path, "%s%s", top, zygote->places[i]);
		if (n < 0 || n >= (int)sizeof path || syscall(SYS_move_mount, trees[i], "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) != 0)
			send_failed(STAGE_MOUNTS, errno);
	}
	if (chdir(top) != 0)
		send_failed(STAGE_MOUNTS, errno);
	mount_or_fail("proc", "proc", CLEAN | MS_NOEXEC, "hidepid=2");
	/* This stacks the old root over the new one (pivot_root(2)). */
	if (syscall(SYS_pivot_root, ".", ".") != 0 || umount2(".", MNT_DETACH) != 0 || chdir("/") != 0)
		send_failed(STAGE_MOUNTS, errno);
}

/* Sets a limit of the sandbox's namespaces. */
static void set_sysctl(const char *path, const char *value) {
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, value, strlen(value)) != (ssize_t)strlen(value))
		send_failed(STAGE_MOUNTS, errno);
	close(fd);
}

/* Sets the limits of the sandbox's namespaces, makes /proc read-only and hides the masked paths
 * in it. The order matters: the limits are files in /proc/sys. Files in /proc/sys/user set
 * limits for the user namespace of the process that opens them (namespaces(7)), here the
 * sandbox's. */
static void restrict_proc(const struct zygote *zygote) {
	set_sysctl("/proc/sys/user/max_user_namespaces", "0");
	set_sysctl("/proc/sys/user/max_net_namespaces", "0");
	set_sysctl("/proc/sys/user/max_inotify_instances", "16");
	set_sysctl("/proc/sys/user/max_inotify_watches", "1024");
	set_sysctl("/proc/sys/net/ipv4/tcp_max_tw_buckets", "4096"); /* see maxTimeWait in sandbox/container.go */
	if (access("/proc/sys/net/core/tstamp_allow_data", F_OK) == 0)
		set_sysctl("/proc/sys/net/core/tstamp_allow_data", "0"); /* see sysctlStamps in sandbox/container.go */
	make_proc_read_only();
	/* /run of the root is empty and read-only. */
	const char *over[] = { "/dev/null", "/run" };
	for (uint32_t i = 0; i < zygote->mask_count; i++) {
		const char *path = zygote->masks[i].path;
		const char **from = &over[zygote->masks[i].is_dir];
		if (mount(*from, path, NULL, MS_BIND, NULL) != 0)
			send_failed(STAGE_MOUNTS, errno);
		if (strncmp(*from, "/proc/", 6) == 0)
			continue; /* a copy of the first mask, with its flags */
		/* On a nodev mount no device can be opened, not even for writing. */
		struct mount_attr dead = { .attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC };
		if (syscall(SYS_mount_setattr, AT_FDCWD, path, 0, &dead, sizeof dead) != 0)
			send_failed(STAGE_MOUNTS, errno);
		*from = path;
	}
}

/* Mounts the directories that the script may write, except the workspace, which comes with the
 * execution. Their sizes are in bytes. The memory limit also counts their contents. */
static void mount_own(const struct make *make) {
	char options[128];
	mount_or_fail("tmpfs", "/dev/shm", CLEAN | MS_NOEXEC, "mode=1777,size=64m,nr_inodes=1024");
	snprintf(options, sizeof options, "mode=1777,size=%llu,nr_inodes=%u", (unsigned long long)make->tmp_bytes, make->tmp_files);
	mount_or_fail("tmpfs", "/tmp", CLEAN, options);
	snprintf(options, sizeof options, "mode=0700,uid=%d,gid=%d,size=%llu,nr_inodes=%u", SCRIPT_ID, SCRIPT_ID, (unsigned long long)make->tmp_bytes, make->tmp_files);
	mount_or_fail("tmpfs", "/home/skill", CLEAN, options);
}

/* Raises lo, the only interface of the sandbox. Loopback connects processes of one sandbox, since
 * each has its own network namespace. */
static void raise_loopback(void) {
	struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &lo) != 0)
		send_failed(STAGE_NETWORK, errno);
	close(fd);
}

void cloned_set_up(const struct zygote *zygote, const struct make *make, int *fds, int count, int mapped) {
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0); /* redundant: the zygote's end ends all nested PID namespaces */
	prctl(PR_SET_NAME, "init", 0, 0, 0);
	signal(SIGCHLD, SIG_DFL);
	int places = (int)make->place_count, rest = arrange(fds, count, &mapped);
	become_root(mapped);
	enter_groups(fds + places, rest - places);
	syscall(SYS_keyctl, 1 /* KEYCTL_JOIN_SESSION_KEYRING */, 0);
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
		send_failed(STAGE_MOUNTS, errno);
	enter_root(zygote, fds, make->place_count);
	syscall(SYS_close_range, FIRST_MOVED_FD, ~0U, 0);
	restrict_proc(zygote);
	mount_own(make);
	raise_loopback();
	set_limits(make->rlimits, make->rlimit_count);
	umask(077); /* children inherit it */
	keep_init_capabilities();
	/* After the change of ids, which resets the flag (prctl(2)). */
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}
