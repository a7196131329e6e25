/* Children that only make system calls. Each is a fork, without exec, of a
 * process with many threads, and has only one of these threads. The signal
 * handlers belong to the Go runtime, which can't work in such a child. So the
 * child blocks all signals. */
#define _GNU_SOURCE
#include "userns.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
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

/* skillrun_userns returns the PID of a child in a new user namespace, or -1 and
 * errno. The child only keeps the namespace alive. The caller kills it. */
long skillrun_userns(void) {
	long pid = fork_quietly(CLONE_NEWUSER);
	if (pid == 0) {
		syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
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
