//go:build skillrun_faults

/* Fault injection: each layer of a sandbox can be off. Tests list the layers to take off
 * in a file. The file is in the root of the zygote (sandbox/fault_zygote.go), or in the root of an
 * init that libcontainer made (sandbox/fault.go); that init unmounts it. The zygote or the init
 * reads the file once, when it sets its name. Before that, and in every process that is
 * not its descendant, no layer is off. */
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

#include "wire.h"

#include <linux/mount.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* sandbox/fault_zygote.go has the same paths. */
static const char list_dir[] = "/opt/skillrun/forkserver", list[] = "/opt/skillrun/forkserver/off";

enum layer {
	USER, MNT, PID, NET, IPC, UTS, CGROUP, TIME, /* namespaces */
	GROUPS,             /* the sandbox's cgroups */
	KEYRING,
	FILTER, INIT_FILTER,
	NO_NEW_PRIVILEGES,
	IDS,                /* the script is user 1000, not root of the sandbox */
	GROUP,              /* the same, for the group id alone */
	BOUNDING, CAPABILITIES, INIT_CAPABILITIES,
	DUMPABLE,           /* no process reads init's memory */
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

/* The zygote, a child that becomes a Python zygote, or another process. */
static enum { OTHER, ZYGOTE, SPAWNED } who;

static uint64_t without; /* a bit for each layer that is off */

static int off(enum layer l) {
	return without >> l & 1;
}

/* The process has read the list. A clone inherits the list, so a sandbox of the zygote does not
 * read it again. */
static int is_read;

/* Reads one name a line. An unknown name ends the process, so that no test runs with the
 * layer still on. */
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

/* Whether this is the init or the zygote. A forked command has another PID. */
static int is_init(void) {
	return getpid() == 1;
}

int faulty_prctl(int option, ...) {
	va_list args;
	va_start(args, option);
	unsigned long a = va_arg(args, unsigned long), b = va_arg(args, unsigned long), c = va_arg(args, unsigned long), d = va_arg(args, unsigned long);
	va_end(args);
	/* Bad pointers pass through, because the probe tries some. */
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

/* The namespaces of a sandbox except the cgroup namespace. */
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

/* Whether the layer of this call is off for the calling process. path is the second argument of
 * the call, for calls on paths. */
static int lacks(long number, const char *path) {
	switch (number) {
	case SYS_keyctl:
		return off(KEYRING);
	case SYS_capset:
		if (who == ZYGOTE) /* without a new user namespace a sandbox needs the zygote's capabilities */
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

/* A sandbox in the zygote's network namespace can't raise the loopback interface. */
int faulty_ioctl(int fd, unsigned long request, ...) {
	va_list args;
	va_start(args, request);
	void *with = va_arg(args, void *);
	va_end(args);
	return request == SIOCSIFFLAGS && off(NET) ? 0 : ioctl(fd, request, with);
}

/* Without new namespaces the sandbox would set the zygote's limits. */
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

/* A process writes "0" to enter a cgroup, and two lines to set the ids of a user
 * namespace. */
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

/* A limit of core dumps that permits files is the layer's absence itself. */
int faulty_setrlimit(int resource, const struct rlimit *limit) {
	return off(LIMITS) || (resource == RLIMIT_CORE && off(CORE) && limit->rlim_max <= 1) ? 0 : setrlimit(resource, limit);
}

mode_t faulty_umask(mode_t mask) {
	return umask(off(UMASK) ? 022 : mask);
}

int faulty_unshare(int flags) {
	return flags == CLONE_NEWCGROUP && off(CGROUP) ? 0 : unshare(flags);
}
