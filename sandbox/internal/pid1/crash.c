/* A program that crashes on purpose. It sets the RLIMIT_CORE of sandboxes and dies by
 * a signal that dumps core. The daemon reads from its wait status whether the kernel
 * dumped it (crash in sandbox/internal/preflight/cores.go). */
#define _GNU_SOURCE
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

/* Runs before main, like skillrun_init in init.c. It returns at once unless the argument
 * asks for the crash. */
__attribute__((constructor)) static void skillrun_crash(int argc, char **argv) {
	struct rlimit one = { 1, 1 };
	sigset_t none;
	if (argc != 2 || strcmp(argv[1], "skillrun-crash") != 0)
		return;
	sigemptyset(&none);
	signal(SIGQUIT, SIG_DFL);
	sigprocmask(SIG_SETMASK, &none, NULL);
	/* The kernel clears this flag at the exec of a file that the process may not read
	 * (would_dump in fs/exec.c). */
	if (setrlimit(RLIMIT_CORE, &one) == 0 && prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0)
		kill(getpid(), SIGQUIT);
	_exit(1);
}
