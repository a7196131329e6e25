/* A program that crashes, to see what the machine does with that: it sets the limit
 * of core dumps that sandboxes have and dies by a signal that dumps. Its daemon
 * reads from its status whether it was dumped (crash in boundaries.go). */
#define _GNU_SOURCE
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

/* As skillrun_init in init.c: does nothing in all programs but one. */
__attribute__((constructor)) static void skillrun_crash(int argc, char **argv) {
	struct rlimit one = { 1, 1 };
	sigset_t none;
	if (argc != 2 || strcmp(argv[1], "skillrun-crash") != 0)
		return;
	sigemptyset(&none);
	signal(SIGQUIT, SIG_DFL);
	sigprocmask(SIG_SETMASK, &none, NULL);
	/* Dumpable also where only who may read the file of a program would be. */
	if (setrlimit(RLIMIT_CORE, &one) == 0 && prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0)
		kill(getpid(), SIGQUIT);
	_exit(1);
}
