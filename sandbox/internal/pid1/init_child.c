/* A command from init's fork to its exec: the child gives up all of init's
 * privileges. The order matters: each step still needs privileges that a later step
 * drops. */
#define _GNU_SOURCE
#include "init_child.h"
#include "confine.h"
#include "init_glob.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/close_range.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The numbers of the child's own descriptors. A redirect can name 0 to 9, as in a
 * POSIX shell, so these are higher. They close on exec. */
enum { REPORT_FD = 10, BARRIER_FD = 11, PIPE_FD = 12, SCRATCH_FD = 16 };

/* Reports the failure of a stage, with errno, to init. Init ends the sandbox, and the daemon
 * answers the request with an error. */
static _Noreturn void fail(enum stage stage) {
	struct report r = { .stage = stage, .error = (uint32_t)errno };
	ssize_t ignored = write(REPORT_FD, &r, sizeof r);
	(void)ignored; /* init reads the report, or is gone and so is the sandbox */
	_exit(127);
}

/* Writes the message of a shell to the program's stderr and exits with the status. For failures
 * that are the script's, not the sandbox's: the execution ends like a failed command of a shell,
 * and the plan goes on. */
static _Noreturn void complain(const char *what, const char *why, int status) {
	char line[512];
	int n = snprintf(line, sizeof line, "skillrun: %.200s: %s\n", what, why);
	ssize_t ignored = write(STDERR_FILENO, line, (size_t)n);
	(void)ignored;
	_exit(status);
}

/* Opens path without leaving the directory dir, also if the script replaces parts of the path by
 * links at the same time (RESOLVE_BENEATH in openat2(2)). Returns -1 and errno. */
static int open_beneath(int dir, const char *path, uint64_t flags, uint64_t mode) {
	struct open_how how = {
		.flags = flags | O_CLOEXEC,
		.mode = mode,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
	};
	return (int)syscall(SYS_openat2, dir, path, &how, sizeof how);
}

/* Moves fd to number. flags is O_CLOEXEC or 0. If fd is number already, only its
 * close-on-exec flag changes. */
static int place(int fd, int number, int flags) {
	if (fd == number)
		return fcntl(fd, F_SETFD, flags & O_CLOEXEC ? FD_CLOEXEC : 0);
	return dup3(fd, number, flags);
}

/* Gives the child its streams and its three descriptors, and closes every other one. The child
 * inherits all of init's, the control socket among them. */
static void arrange_descriptors(const struct launch *l) {
	/* First move the sources above every target: a target may be another one's source. */
	int report = fcntl(l->report, F_DUPFD_CLOEXEC, SCRATCH_FD);
	int barrier = l->later ? fcntl(l->barrier, F_DUPFD_CLOEXEC, SCRATCH_FD) : -1;
	int pipe = l->later ? fcntl(l->pipe, F_DUPFD_CLOEXEC, SCRATCH_FD) : -1;
	int ok = report >= 0 && (!l->later || (barrier >= 0 && pipe >= 0));
	ok = ok && (l->in < 0 || place(l->in, STDIN_FILENO, 0) >= 0);
	ok = ok && (l->out < 0 || place(l->out, STDOUT_FILENO, 0) >= 0);
	ok = place(report, REPORT_FD, O_CLOEXEC) >= 0 && ok;
	ok = ok && (barrier < 0 || place(barrier, BARRIER_FD, O_CLOEXEC) >= 0);
	ok = ok && (pipe < 0 || place(pipe, PIPE_FD, O_CLOEXEC) >= 0);
	ok = ok && syscall(SYS_close_range, 3, REPORT_FD - 1, 0) == 0;
	/* Init needs more descriptors for a pipeline than a command may have. */
	struct rlimit files = { l->program->open_files, l->program->open_files };
	int above = l->later ? PIPE_FD + 1 : REPORT_FD + 1;
	if (!ok || setrlimit(RLIMIT_NOFILE, &files) != 0 || syscall(SYS_close_range, above, ~0U, 0) != 0)
		fail(STAGE_DESCRIPTORS);
}

/* Calls the system call directly: libc hides two signals from its callers
 * (nptl(7)), and the daemon may have been started with those ignored. */
static void reset_signals(void) {
	struct { void *handler; unsigned long flags; void *restorer; unsigned long mask; } dfl = { 0 };
	sigset_t none;
	for (int s = 1; s < NSIG; s++)
		syscall(SYS_rt_sigaction, s, &dfl, NULL, sizeof dfl.mask); /* SIGKILL and SIGSTOP refuse; they are default */
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Needs CAP_SETPCAP, so it comes before drop_capabilities. */
static void drop_bounding_set(void) {
	for (int cap = 0, has; cap <= 63; cap++) {
		has = prctl(PR_CAPBSET_READ, cap, 0, 0, 0);
		if (has < 0)
			break; /* this kernel has no more */
		if (has && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) != 0)
			fail(STAGE_CAPABILITIES);
	}
}

/* Empties the ambient, permitted, effective and inheritable sets. */
static void drop_capabilities(void) {
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0 || set_capabilities(0, 0) != 0)
		fail(STAGE_CAPABILITIES);
}

/* Becomes user and group 1000 and gives up the rest of init's privileges. Needs CAP_SETUID and
 * CAP_SETGID. From no_new_privs on no exec can give privileges back, and an unprivileged process
 * may load its filter (seccomp(2)). */
static void become_script(void) {
	if (setgroups(0, NULL) != 0 || setresgid(SCRIPT_ID, SCRIPT_ID, SCRIPT_ID) != 0 ||
	    setresuid(SCRIPT_ID, SCRIPT_ID, SCRIPT_ID) != 0)
		fail(STAGE_IDS);
	drop_capabilities();
	/* A change of the uid clears the parent-death signal (prctl(2)), so this comes
	 * after it. The signal is redundant: the kernel kills every process of a PID
	 * namespace whose init ends. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0 ||
	    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		fail(STAGE_IDS);
	umask(077);
}

/* Enters the working directory of the command, which must be beneath the workspace. If the first
 * command can't enter it, the request fails. A later command fails alone. */
static void enter_directory(const struct launch *l) {
	int top = open("/workspace", O_PATH | O_DIRECTORY | O_CLOEXEC);
	int fd = top < 0 ? -1 : open_beneath(top, l->program->dir, O_PATH | O_DIRECTORY, 0);
	if (fd < 0 || fchdir(fd) != 0) {
		/* A later command: an earlier one may have removed the directory. */
		if (!l->later)
			complain(l->program->dir, strerror(errno), 126);
		fail(STAGE_DIRECTORY);
	}
	close(fd);
	close(top);
}

/* Waits until the daemon has read this process's posture from outside. The posture
 * does not change from here to exec. */
static void wait_at_barrier(void) {
	struct report r = { .stage = STAGE_READY };
	char go;
	if (write(REPORT_FD, &r, sizeof r) != sizeof r || read(BARRIER_FD, &go, 1) != 1)
		_exit(127);
	close(BARRIER_FD);
}

/* A here-document is a memory file: unlike a pipe it holds any length without a writer. */
static int open_text(const struct redirect *r) {
	int fd = memfd_create("here-document", MFD_CLOEXEC);
	size_t done = 0;
	while (fd >= 0 && done < r->length) {
		ssize_t n = write(fd, r->text + done, r->length - done);
		if (n < 0)
			return -1;
		done += (size_t)n;
	}
	if (fd >= 0 && lseek(fd, 0, SEEK_SET) != 0)
		return -1;
	return fd;
}

/* Opens the file of a redirect, with the script's rights: /dev/null, a here-document, or a path
 * beneath the working directory. Returns -1 and errno. The caller closes the descriptor. */
static int open_redirect(const struct redirect *r) {
	static const uint64_t flags[] = {
		[REDIRECT_READ] = O_RDONLY,
		[REDIRECT_WRITE] = O_WRONLY | O_CREAT | O_TRUNC,
		[REDIRECT_APPEND] = O_WRONLY | O_CREAT | O_APPEND,
	};
	if (r->kind == REDIRECT_TEXT)
		return open_text(r);
	if (r->kind > REDIRECT_APPEND) {
		errno = EINVAL;
		return -1;
	}
	uint64_t f = flags[r->kind];
	if (strcmp(r->text, "/dev/null") == 0) /* the one path outside the workspace; the daemon checked the others */
		return open(r->text, (int)(f & O_ACCMODE) | O_CLOEXEC);
	int here = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	int fd = here < 0 ? -1 : open_beneath(here, r->text, f, f & O_CREAT ? 0666 : 0);
	int error = errno;
	close(here);
	errno = error;
	return fd;
}

/* Applies the redirects in their order, as a shell does: in "2>&1 >file" the order decides where
 * stderr goes. The first failure ends the command with status 1. */
static void apply_redirects(const struct command *cmd) {
	for (uint32_t i = 0; i < cmd->redirect_count; i++) {
		const struct redirect *r = &cmd->redirects[i];
		int fd = (int)r->from;
		if (r->kind != REDIRECT_DUP) {
			fd = open_redirect(r);
			if (fd < 0)
				complain(r->kind == REDIRECT_TEXT ? "here-document" : r->text, strerror(errno), 1);
		}
		if (place(fd, (int)r->fd, 0) < 0)
			complain("redirect", strerror(errno), 1);
		if (r->kind != REDIRECT_DUP && fd != (int)r->fd)
			close(fd);
	}
	/* "|&" takes effect after the command's own redirects, as in bash. */
	if (cmd->pipe_stderr && place(STDOUT_FILENO, STDERR_FILENO, 0) < 0)
		complain("redirect", strerror(errno), 1);
}

/* Returns the value of a variable in env, or NULL. The child's own environment is init's. */
static const char *lookup(char **env, const char *name) {
	size_t n = strlen(name);
	for (; *env; env++)
		if (strncmp(*env, name, n) == 0 && (*env)[n] == '=')
			return *env + n + 1;
	return NULL;
}

/* exec by PATH as execvp(3) does, but with the command's own PATH and without
 * handing files of unknown format to a shell. Leaves errno. */
static void exec_by_path(const struct command *cmd, char **argv) {
	const char *name = argv[0];
	const char *path = lookup(cmd->env, "PATH");
	int denied = 0;
	if (*name == 0) {
		errno = ENOENT;
		return;
	}
	if (strchr(name, '/') || !path) {
		execve(name, argv, cmd->env);
		return;
	}
	for (const char *end; ; path = end + 1) {
		char full[PATH_MAX];
		end = strchrnul(path, ':');
		int n = snprintf(full, sizeof full, "%.*s/%s", (int)(end - path), path, name);
		/* An empty element would mean the working directory, which holds
		 * the caller's input files. It is skipped. */
		if (end != path && n > 0 && (size_t)n < sizeof full) {
			execve(full, argv, cmd->env);
			if (errno == EACCES)
				denied = 1;
			else if (errno != ENOENT && errno != ENOTDIR)
				return;
		}
		if (*end == 0)
			break;
	}
	errno = denied ? EACCES : ENOENT;
}

/* Decodes the program that the first child waited for. The child was forked before
 * init decoded it, so init's decoded program is not in the child's memory. */
static void take_command(struct launch *l, struct program *program) {
	int error = program_decode(l->later->bytes, l->later->length, program);
	if (error) {
		errno = error;
		fail(STAGE_PROTOCOL);
	}
	l->program = program;
	l->command = &program->steps[0].commands[0];
	l->only_command = program->step_count == 1 && program->steps[0].command_count == 1;
	if (program->steps[0].command_count > 1 && place(PIPE_FD, STDOUT_FILENO, 0) < 0)
		fail(STAGE_DESCRIPTORS);
	close(PIPE_FD);
}

/* The whole life of the child. Runs in the forked process and ends with exec or exit. The order
 * of the steps is explained where a step depends on one before. */
_Noreturn void child_run(struct launch *l) {
	struct program later;
	reset_signals();
	setsid();
	arrange_descriptors(l);
	drop_bounding_set();
	become_script();
	if (filter_load(&l->program->script_filter) != 0)
		fail(STAGE_FILTER);
	if (l->later) {
		wait_at_barrier();
		later = *l->program;
		take_command(l, &later);
	}
	enter_directory(l);
	/* Before the redirects, as in a shell: in "cat * > all" the pattern must not match all. */
	char **argv;
	int unexpanded = glob_expand(l->command, &argv);
	apply_redirects(l->command);
	if (unexpanded)
		complain(l->command->argv[0], strerror(unexpanded), 126);
	exec_by_path(l->command, argv);
	/* E2BIG from too many matches is the script's failure, not the request's. */
	int too_many = errno == E2BIG && l->command->glob_count > 0;
	if (l->only_command && !too_many)
		fail(STAGE_EXEC);
	if (errno == ENOENT || errno == ENOTDIR)
		complain(l->command->argv[0], "not found", 127);
	complain(l->command->argv[0], strerror(errno), 126);
}
