/* Each child tries to change its RLIMIT_CORE and then dies in another way.
 * crashInside in hostile_dumps_test.go compiles and runs this. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void change(void) {
	static const rlim_t values[] = { 0, 2, 4096, RLIM_INFINITY };
	prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
	for (int i = 0; i < 4; i++) {
		struct rlimit l = { values[i], values[i] }, old;
		setrlimit(RLIMIT_CORE, &l);
		prlimit(0, RLIMIT_CORE, &l, &old);
		prlimit(getppid(), RLIMIT_CORE, &l, NULL);
		for (int bit = 32; bit < 64; bit++) {
			syscall(SYS_setrlimit, RLIMIT_CORE | 1UL << bit, &l);
			syscall(SYS_prlimit64, 0, RLIMIT_CORE | 1UL << bit, &l, NULL);
			syscall(SYS_prlimit64, getpid(), RLIMIT_CORE | 1UL << bit, &l, &old);
		}
	}
}

static volatile int *volatile nowhere;

static void null(void) { *nowhere = 1; }
static void illegal(void) { __builtin_trap(); }
static void abortion(void) { abort(); }
static void quit(void) { raise(SIGQUIT); }
static void limit_of_cpu(void) { raise(SIGXCPU); }

/* Makes an endless recursion that the compiler can't see. */
static volatile int more = 1;

static int deep(volatile char *above) {
	volatile char here[4096];
	here[0] = above[0];
	return more ? deep(here) + here[1] : 0;
}

static void stack(void) {
	volatile char top[1] = { 1 };
	exit(deep(top));
}

static void *in_thread(void *unused) {
	change();
	null();
	return unused;
}

static void thread(void) {
	pthread_t t;
	if (pthread_create(&t, NULL, in_thread, NULL) == 0)
		pthread_join(t, NULL);
}

/* The crash is in another process with the same memory, vfork(2). */
static void memory(void) {
	int status = 0;
	pid_t pid = vfork();
	if (pid == 0) {
		null();
		_exit(0);
	}
	waitpid(pid, &status, 0);
	if (WCOREDUMP(status))
		puts("a process with the same memory was dumped");
	raise(WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

int main(void) {
	static const struct { const char *name; void (*die)(void); } ways[] = {
		{ "null", null }, { "illegal", illegal }, { "abort", abortion }, { "quit", quit }, { "cpu", limit_of_cpu },
		{ "stack", stack }, { "thread", thread }, { "memory", memory },
	};
	setbuf(stdout, NULL);
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
		int status = 0;
		pid_t pid = fork();
		if (pid == 0) {
			change();
			ways[i].die();
			_exit(0);
		}
		waitpid(pid, &status, 0);
		printf("%s %s%s\n", ways[i].name, WIFSIGNALED(status) ? sigabbrev_np(WTERMSIG(status)) : "lives", WCOREDUMP(status) ? " dumped" : "");
	}
	change();
	abort();
}
