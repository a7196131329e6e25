//go:build skillrun_faults

/* Layers of sandboxes, each of which can be off. Tests say which by a file in the root of
 * who makes them: of the zygote (fault_zygote.go), or of an init of libcontainer's
 * (fault.go), which takes the file away. It is read once, when that process gives itself
 * its name; before, and in every other process than it and those that it forks, nothing
 * is off. */
#undef ioctl
#undef mount
#undef open
#undef prctl
#undef setresgid
#undef setresuid
#undef setrlimit
#undef syscall
#undef umask
#undef unshare
#undef write

#include "init.h"

#include <linux/mount.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* As fault_zygote.go has them. */
static const char list_dir[] = "/opt/skillrun/forkserver", list[] = "/opt/skillrun/forkserver/off";

enum layer {
	USER, MNT, PID, NET, IPC, UTS, CGROUP, TIME, /* namespaces */
	GROUPS,             /* cgroups of its own */
	KEYRING,
	FILTER, INIT_FILTER,
	NO_NEW_PRIVILEGES,
	IDS,                /* the script is user 1000, not root of the sandbox */
	GROUP,              /* the same for its group alone */
	BOUNDING, CAPABILITIES, INIT_CAPABILITIES,
	DUMPABLE,           /* nobody reads init */
	CORE, LIMITS, UMASK,
	HIDEPID, MASKS, PROC, SYSCTLS, /* of /proc */
	SIZES, FLAGS,       /* of mounts */
	SNAPSHOT,           /* the skill, read-only */
	ZYGOTE_FILTER, ZYGOTE_CAPABILITIES,
	PYTHON_FILTER, PYTHON_CAPABILITIES, /* of Python zygotes */
	LAYERS,
};

static const char *const names[LAYERS] = {
	"user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time",
	"groups", "keyring", "filter", "init filter", "no new privileges", "ids", "group", "bounding set", "capabilities", "init capabilities",
	"dumpable", "core", "limits", "umask", "hidepid", "masks", "read-only proc", "sysctls", "sizes", "mount flags", "snapshot",
	"zygote filter", "zygote capabilities", "python filter", "python capabilities",
};

/* The zygote itself, what it starts to become a Python zygote, all others. */
static enum { OTHER, ZYGOTE, SPAWNED } who;

static uint64_t without; /* a bit for each layer that is off */

static int off(enum layer l) {
	return without >> l & 1;
}

static int is_read;

/* One name a line. A name that is not known ends the process: no test is to believe
 * that something is off. */
static void read_list(void) {
	char text[1024];
	is_read = 1;
	int fd = open(list, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = 0;
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		int l = 0;
		while (l < LAYERS && strcmp(line, names[l]) != 0)
			l++;
		if (l == LAYERS)
			_exit(1);
		without |= 1ULL << l;
	}
}

static int is_init(void) {
	return getpid() == 1;
}

int faulty_prctl(int option, ...) {
	va_list args;
	va_start(args, option);
	unsigned long a = va_arg(args, unsigned long), b = va_arg(args, unsigned long), c = va_arg(args, unsigned long), d = va_arg(args, unsigned long);
	va_end(args);
	/* Bad pointers are passed through: the probe tries some. */
	if (option == PR_SET_NAME && is_init() && !is_read) {
		read_list();
		if (strcmp((const char *)a, "zygote") == 0)
			who = ZYGOTE;
		else
			umount2(list_dir, MNT_DETACH);
	}
	if (option == PR_SET_NO_NEW_PRIVS && off(NO_NEW_PRIVILEGES))
		return 0;
	if (option == PR_CAPBSET_DROP && off(is_init() ? INIT_CAPABILITIES : BOUNDING))
		return 0;
	if (option == PR_SET_DUMPABLE && is_init() && off(DUMPABLE))
		a = 1;
	return prctl(option, a, b, c, d);
}

/* The namespaces of a sandbox, but for the one of cgroups. */
static long weak_clone3(const struct clone_args *args, size_t size) {
	static const struct {
		enum layer layer;
		uint64_t flag;
	} kinds[] = {
		{ USER, CLONE_NEWUSER }, { MNT, CLONE_NEWNS }, { PID, CLONE_NEWPID }, { NET, CLONE_NEWNET },
		{ IPC, CLONE_NEWIPC }, { UTS, CLONE_NEWUTS }, { TIME, CLONE_NEWTIME },
	};
	struct clone_args fewer = *args;
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (off(kinds[i].layer))
			fewer.flags &= ~kinds[i].flag;
	long pid = syscall(SYS_clone3, &fewer, size);
	if (pid == 0)
		who = args->flags & CLONE_NEWPID ? OTHER : SPAWNED;
	return pid;
}

static int lacks(long number, const char *path) {
	switch (number) {
	case SYS_keyctl:
		return off(KEYRING);
	case SYS_capset:
		if (who == ZYGOTE) /* without user namespaces it needs what they give */
			return off(ZYGOTE_CAPABILITIES) || off(USER);
		if (who == SPAWNED)
			return off(PYTHON_CAPABILITIES);
		return off(is_init() ? INIT_CAPABILITIES : CAPABILITIES);
	case SYS_seccomp:
		if (who != OTHER)
			return off(who == ZYGOTE ? ZYGOTE_FILTER : PYTHON_FILTER);
		return off(is_init() ? INIT_FILTER : FILTER);
	case SYS_mount_setattr:
		return off(strcmp(path, "/proc") == 0 ? PROC : MASKS);
	}
	return 0;
}

long faulty_syscall(long number, ...) {
	long a[6];
	va_list args;
	va_start(args, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(args, long);
	va_end(args);
	if (without && number == SYS_clone3)
		return weak_clone3((const struct clone_args *)a[0], (size_t)a[1]);
	if (without && lacks(number, (const char *)a[1]))
		return 0;
	long result = syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
	if (off(SNAPSHOT) && number == SYS_move_mount && result == 0 && strncmp((const char *)a[3], "/skills/", 8) == 0) {
		struct mount_attr writable = { .attr_clr = MOUNT_ATTR_RDONLY };
		return syscall(SYS_mount_setattr, AT_FDCWD, a[3], 0, &writable, sizeof writable);
	}
	return result;
}

int faulty_mount(const char *source, const char *target, const char *type, unsigned long flags, const void *options) {
	char fewer[128];
	if (off(MASKS) && flags & MS_BIND)
		return 0;
	if (off(HIDEPID) && type && strcmp(type, "proc") == 0)
		options = NULL;
	else if (off(SIZES) && type && strcmp(type, "tmpfs") == 0) {
		const char *size = strstr(options, ",size=");
		snprintf(fewer, sizeof fewer, "%.*s", size ? (int)(size - (const char *)options) : 0, (const char *)options);
		options = fewer;
	}
	if (off(FLAGS) && type)
		flags &= ~(unsigned long)(MS_NOSUID | MS_NODEV | MS_NOEXEC);
	return mount(source, target, type, flags, options);
}

/* A network that is the zygote's has no loopback that a sandbox could raise. */
int faulty_ioctl(int fd, unsigned long request, ...) {
	va_list args;
	va_start(args, request);
	void *with = va_arg(args, void *);
	va_end(args);
	return request == SIOCSIFFLAGS && off(NET) ? 0 : ioctl(fd, request, with);
}

/* Without a namespace of the sandbox's own its limits would be the zygote's. */
int faulty_open(const char *path, int flags, ...) {
	va_list args;
	va_start(args, flags);
	mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
	va_end(args);
	if ((off(SYSCTLS) || off(USER)) && strncmp(path, "/proc/sys/user/", 15) == 0)
		path = "/dev/null";
	if ((off(SYSCTLS) || off(USER) || off(NET)) && strncmp(path, "/proc/sys/net/", 14) == 0)
		path = "/dev/null";
	return open(path, flags, mode);
}

/* "0" is how a process enters a cgroup, two lines are the ids of a user namespace. */
ssize_t faulty_write(int fd, const void *buffer, size_t length) {
	if (off(GROUPS) && length == 1 && *(const char *)buffer == '0')
		return 1;
	if (off(USER) && length > 8 && strncmp(buffer, "0 ", 2) == 0)
		return (ssize_t)length;
	return write(fd, buffer, length);
}

int faulty_setresgid(gid_t real, gid_t effective, gid_t saved) {
	return (off(IDS) || off(GROUP)) && real == SCRIPT_ID ? 0 : setresgid(real, effective, saved);
}

int faulty_setresuid(uid_t real, uid_t effective, uid_t saved) {
	return off(IDS) && real == SCRIPT_ID ? 0 : setresuid(real, effective, saved);
}

int faulty_setrlimit(int resource, const struct rlimit *limit) {
	return off(LIMITS) || (resource == RLIMIT_CORE && off(CORE)) ? 0 : setrlimit(resource, limit);
}

mode_t faulty_umask(mode_t mask) {
	return umask(off(UMASK) ? 022 : mask);
}

int faulty_unshare(int flags) {
	return flags == CLONE_NEWCGROUP && off(CGROUP) ? 0 : unshare(flags);
}
