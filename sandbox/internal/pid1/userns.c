/* Children that only make system calls. Each is a fork, without exec, of a
 * process with many threads, and has only one of these threads. The signal
 * handlers belong to the Go runtime, which can't work in such a child. So the
 * child blocks all signals. */
#define _GNU_SOURCE
#include "userns.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Forks with the given namespaces and without a signal handler that could run in the child.
 * Returns like fork(2). The caller reaps the child. */
static long fork_quietly(long flags) {
	sigset_t all, old;
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &old);
	/* The child shares the descriptors. With copies it would keep files open
	 * that other threads close, such as pipes and files just written. */
	long pid = syscall(SYS_clone, flags | CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
	if (pid != 0)
		sigprocmask(SIG_SETMASK, &old, 0);
	return pid;
}

/* Puts the calling child into a new user namespace, whose owner is the user id owner of the old
 * one. With offsets the child also gets a new time namespace for its children, with these
 * offsets of its clocks (time_namespaces(7)). Returns an errno.
 *
 * The kernel takes the effective id as the owner (user_namespaces(7)). */
static int enter_namespaces(unsigned owner, const char *offsets) {
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];
	if (syscall(SYS_setresuid, -1, owner, -1) != 0 || syscall(SYS_capget, &header, data) != 0)
		return errno;
	/* Some machines let only CAP_SYS_ADMIN make user namespaces. The change of the effective id
	 * left only the permitted capabilities (capabilities(7)). */
	data[0].effective = data[0].permitted;
	data[1].effective = data[1].permitted;
	if (syscall(SYS_capset, &header, data) != 0 || syscall(SYS_unshare, CLONE_NEWUSER) != 0)
		return errno;
	if (!offsets)
		return 0;
	/* From here on the child may write its own files in /proc (proc(5)). */
	syscall(SYS_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0);
	if (syscall(SYS_unshare, CLONE_NEWTIME) != 0)
		return errno;
	long file = syscall(SYS_openat, AT_FDCWD, "/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
	if (file < 0)
		return errno;
	size_t length = strlen(offsets);
	int error = syscall(SYS_write, file, offsets, length) == (long)length ? 0 : errno;
	syscall(SYS_close, file);
	return error;
}

/* skillrun_userns returns the PID of a child, or -1 and errno. The child enters new namespaces
 * (enter_namespaces) and stops, or exits with the errno. The child only keeps the namespaces
 * alive. The caller kills it. */
long skillrun_userns(unsigned owner, const char *offsets) {
	long daemon = getpid(), pid = fork_quietly(0);
	if (pid == 0) {
		int error = enter_namespaces(owner, offsets);
		/* The kernel has forgotten an earlier setting with the change of ids (prctl(2)). */
		syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
		if (error || syscall(SYS_getppid) != daemon)
			syscall(SYS_exit_group, error);
		syscall(SYS_kill, syscall(SYS_getpid), SIGSTOP);
		for (;;)
			syscall(SYS_ppoll, 0, 0, 0, 0, 0);
	}
	return pid;
}

/* skillrun_try_unshare returns the PID of a child that calls unshare(2) with
 * flags. The child exits with the errno, 0 for success. */
long skillrun_try_unshare(long flags) {
	long pid = fork_quietly(0);
	if (pid == 0)
		syscall(SYS_exit_group, syscall(SYS_unshare, flags) == 0 ? 0 : errno);
	return pid;
}

/* skillrun_try_proc returns the PID of a child that mounts a proc at dir as a
 * sandbox does, in a new mount namespace. The child exits with the errno, 0 for
 * success. */
long skillrun_try_proc(const char *dir) {
	long pid = fork_quietly(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID);
	if (pid == 0) {
		long r = syscall(SYS_mount, "", "/", "", MS_PRIVATE | MS_REC, "");
		if (r == 0)
			r = syscall(SYS_mount, "proc", dir, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, "hidepid=2");
		syscall(SYS_exit_group, r == 0 ? 0 : errno);
	}
	return pid;
}
