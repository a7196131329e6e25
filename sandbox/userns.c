/* Children that make system calls and nothing else: they are forks without
 * exec of a process with many threads, so they block all signals, whose
 * handlers belong to a Go runtime that they lack. */
#define _GNU_SOURCE
#include "userns.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static long fork_quietly(long flags) {
	sigset_t all, old;
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &old);
	/* Shared descriptors: with copies the child would keep files open that
	 * others close meanwhile, pipes and files just written among them. */
	long pid = syscall(SYS_clone, flags | CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
	if (pid != 0)
		sigprocmask(SIG_SETMASK, &old, 0);
	return pid;
}

/* skillrun_userns answers the pid of a child that does nothing but hold a new
 * user namespace, or -1 and errno. The caller kills it. */
long skillrun_userns(void) {
	long pid = fork_quietly(CLONE_NEWUSER);
	if (pid == 0) {
		syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
		for (;;)
			syscall(SYS_ppoll, 0, 0, 0, 0, 0);
	}
	return pid;
}

/* skillrun_try_unshare answers the pid of a child that tries to leave the
 * given namespaces and exits with the errno. */
long skillrun_try_unshare(long flags) {
	long pid = fork_quietly(0);
	if (pid == 0)
		syscall(SYS_exit_group, syscall(SYS_unshare, flags) == 0 ? 0 : errno);
	return pid;
}

/* skillrun_try_proc answers the pid of a child that tries to mount a proc at
 * dir as a sandbox does, seen by nobody else, and exits with the errno. */
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
