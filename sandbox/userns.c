/* A process that only holds a user namespace, for id-mapped mounts. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* skillrun_userns answers the pid of a child in a new user namespace, or -1
 * and errno. The caller kills it. The child is a fork without exec of a
 * process with many threads, so it makes system calls and nothing else, and
 * blocks all signals, whose handlers belong to a Go runtime that it lacks. */
long skillrun_userns(void) {
	sigset_t all, old;
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &old);
	long pid = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
	if (pid == 0) {
		syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
		for (;;)
			syscall(SYS_ppoll, 0, 0, 0, 0, 0);
	}
	sigprocmask(SIG_SETMASK, &old, 0);
	return pid;
}
