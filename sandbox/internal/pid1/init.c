/* The init of a sandbox: PID 1, and the parent of every command in it.
 *
 * Theory of operation
 *
 * There are two ways to make an init, and one life afterwards (sandbox/maker.go). The zygote
 * clones it (init_cloned.c). Or libcontainer builds the namespaces and then executes,
 * as PID 1, its own binary by the link /proc/self/exe. So the sandbox does not have to
 * show a file of the daemon. The constructor below recognises such a process by its
 * second argument and its control socket, runs init and never returns. The Go runtime of
 * that process never starts. glibc passes argc, argv and envp to constructors in static
 * and in dynamic executables.
 *
 * Two users live in a sandbox. Init is its root, with the four capabilities
 * SETUID, SETGID, SETPCAP and KILL, and with SYS_ADMIN until it has attached the
 * mounts of its execution. The script is user 1000 without any capability, so it
 * can't signal, trace or read init. The daemon and init exchange frames over one
 * stream socket (wire.h):
 *
 *   init                                  daemon
 *                                    <-   FILTERS, if libcontainer made it
 *   (forks the first command, which drops init's privileges, loads the
 *   script's filter and waits)
 *   READY pid                        ->
 *   (loads its own filter)
 *                                    <-   MOUNTS, once /proc shows the right posture
 *   (gives up SYS_ADMIN)
 *                                    <-   PROGRAM
 *   STARTED, or FAILED stage errno   ->
 *                                    <-   SIGNAL, TERM, KILL, in any order
 *   END wait status                  ->   (and exits)
 *
 * Init evaluates the plan: steps run one after the other, each a pipeline,
 * each on a condition about the step that ran before. A pipeline ends when all
 * its commands have ended. Its status is the status of its last command, which
 * is also the main process. After the last step init kills and reaps every
 * remaining process and then sends END, so END means that only init is alive.
 *
 * Init ends the sandbox without a request in two cases: the control socket
 * closes, as it does when the daemon is killed, or init's deadline passes, which
 * is later than the daemon's. Init has one thread and no heap: the message and
 * the decoded program are two mappings (init_program.c). init_child.c takes a
 * command from fork to exec. Read it first when you look for holes. The command's
 * process expands its arguments (init_glob.c) after it has dropped every privilege.
 */
#define _GNU_SOURCE
#include "init.h"
#include "confine.h"
#include "init_child.h"
#include "wire.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	REAP_AT_ONCE = 64,
};

/* A command of the pipeline that runs. */
struct child {
	pid_t pid;  /* 0 once it is reaped */
	int report; /* read end, -1 once it is closed: by exec, or by exit */
};

static struct {
	struct program program;
	struct child children[MAX_COMMANDS];
	uint32_t count;      /* of children */
	pid_t main;          /* the last command, 0 when it has ended */
	int status;          /* wait status of the last main process that ended */
	int barrier;         /* write end, -1 when the first child has passed */
	int first;           /* the first child's pipe to the next one, -1 */
	int started;         /* the first exec succeeded */
	int stopping;        /* no further step starts */
	int finished;        /* the forked process has ended */
	int by_deadline;
	int unreaped;        /* more processes may have ended, without another signal */
	int signals;         /* signalfd for SIGCHLD */
	uint64_t deadline;   /* CLOCK_MONOTONIC, ms */
} self;

/* ---- the plan ---- */

/* The clock of the deadline, in ms. A change of the machine's time does not move it. */
static uint64_t now_ms(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void close_if(int fd) {
	if (fd >= 0)
		close(fd);
}

/* Forks one command of step. in and out are the child's; the parent closes them. */
static void launch(const struct step *step, uint32_t index, int in, int out) {
	int report[2];
	if (pipe2(report, O_CLOEXEC) != 0)
		send_failed(STAGE_DESCRIPTORS, errno);
	struct launch l = {
		.program = &self.program, .command = &step->commands[index], .in = in, .out = out, .report = report[1], .barrier = -1, .pipe = -1,
	};
	pid_t pid = fork();
	if (pid < 0 && !self.started)
		send_failed(STAGE_FORK, errno);
	if (pid == 0)
		child_run(&l);
	close(report[1]);
	close_if(in);
	close_if(out);
	if (pid < 0) { /* the script has reached its process limit: print the message of a shell */
		static const char text[] = "skillrun: fork: Resource temporarily unavailable\n";
		ssize_t ignored = write(STDERR_FILENO, text, sizeof text - 1);
		(void)ignored;
		close(report[0]);
		report[0] = -1;
		pid = 0;
		self.status = 126 << 8;
	}
	self.children[index] = (struct child){ .pid = pid, .report = report[0] };
	self.count = index + 1;
	if (self.count == step->command_count)
		self.main = pid;
}

/* Forks the commands from index on. in is the read end of the previous command's pipe. */
static void launch_rest(const struct step *step, uint32_t index, int in) {
	for (; index < step->command_count; index++) {
		int next[2] = { -1, -1 };
		if (index + 1 < step->command_count && pipe2(next, O_CLOEXEC) != 0)
			send_failed(STAGE_DESCRIPTORS, errno);
		launch(step, index, in, next[1]);
		in = next[0];
	}
}

/* Whether every command of the pipeline has ended. Orphans of the commands do not count. */
static int all_ended(void) {
	for (uint32_t i = 0; i < self.count; i++)
		if (self.children[i].pid != 0)
			return 0;
	return 1;
}

/* Records the end of a process. Orphans of the script end here too. They are in no list. */
static void ended(pid_t pid, int status) {
	/* Init passes no WUNTRACED and traces no process, so wait reports ends only.
	 * After another status the process still counts as running. */
	if (!WIFEXITED(status) && !WIFSIGNALED(status))
		return;
	for (uint32_t i = 0; i < self.count; i++) {
		if (self.children[i].pid != pid)
			continue;
		self.children[i].pid = 0;
		if (pid == self.main) {
			self.main = 0;
			self.status = status;
		}
	}
}

/* Reaps at most REAP_AT_ONCE processes. A script can make orphans as fast as init
 * reaps them, and init must still serve the daemon and its deadline. */
static void reap(void) {
	int status;
	pid_t pid = 0;
	for (int i = 0; i < REAP_AT_ONCE && (pid = waitpid(-1, &status, WNOHANG)) > 0; i++)
		ended(pid, status);
	self.unreaped = pid > 0;
}

/* Reads one report of child i: the child is ready, it failed, or the pipe closed. The pipe is
 * close-on-exec, so it closes without a failure when the exec has succeeded. */
static void read_report(uint32_t i) {
	struct report r;
	ssize_t n = read(self.children[i].report, &r, sizeof r);
	if (n == sizeof r && r.stage == STAGE_READY) {
		uint32_t pid = (uint32_t)self.children[i].pid;
		send_frame(FRAME_READY, &pid, 1);
		return;
	}
	if (n == sizeof r)
		send_failed(r.stage, (int)r.error);
	close(self.children[i].report);
	self.children[i].report = -1;
	if (i == 0 && self.barrier >= 0)
		send_failed(STAGE_READY, ECHILD);
	if (i == 0 && !self.started) {
		self.started = 1;
		send_frame(FRAME_STARTED, NULL, 0);
	}
}

/* Sends a signal to every process of the script. No step of the plan starts after that. After
 * SIGTERM a command that handles the signal runs to its end. */
static void stop_all(int signal) {
	self.stopping = 1;
	kill(-1, signal); /* every process of the namespace except init */
}

/* Releases the first child and forks the rest of its pipeline. */
static void open_barrier(const struct step *step) {
	if (self.barrier < 0 || write(self.barrier, "g", 1) != 1)
		give_up();
	close(self.barrier);
	self.barrier = -1;
	if (step->command_count == 1)
		close_if(self.first);
	else
		launch_rest(step, 1, self.first);
	self.first = -1;
}

/* Reads one frame while commands run. Anything but a signal or an end of the execution breaks the
 * protocol and ends the sandbox. */
static void read_control(void) {
	struct frame f = read_header();
	uint32_t word = 0;
	if (f.length > sizeof word)
		give_up();
	read_full(&word, f.length);
	switch (f.type) {
	case FRAME_SIGNAL:
		/* main is 0 as soon as it is reaped, so this id can't belong to another process yet. */
		if (self.main > 0)
			kill(self.main, (int)word);
		break;
	case FRAME_TERM:
		stop_all(SIGTERM);
		break;
	case FRAME_KILL:
		stop_all(SIGKILL);
		break;
	case FRAME_FINISH:
		self.finished = 1;
		break;
	default:
		give_up();
	}
}

/* Waits for the next event and serves all that are there: reports of children, ends of
 * processes, a frame of the daemon, the deadline. */
static void wait_for_event(void) {
	struct pollfd fds[2 + MAX_COMMANDS] = {
		{ .fd = CONTROL_FD, .events = POLLIN },
		{ .fd = self.signals, .events = POLLIN },
	};
	for (uint32_t i = 0; i < self.count; i++)
		fds[2 + i] = (struct pollfd){ .fd = self.children[i].report, .events = POLLIN };
	uint32_t count = self.count;
	uint64_t now = now_ms();
	if (now >= self.deadline && !self.by_deadline) {
		self.by_deadline = 1;
		stop_all(SIGKILL);
	}
	/* In pieces of at most 1000 s, because poll takes an int of ms. */
	int timeout = self.by_deadline ? -1 : (int)(self.deadline - now > 1000000 ? 1000000 : self.deadline - now);
	if (poll(fds, 2 + count, self.unreaped ? 0 : timeout) < 0)
		return;
	for (uint32_t i = 0; i < count; i++)
		if (fds[2 + i].revents)
			read_report(i);
	if (fds[1].revents) {
		struct signalfd_siginfo info;
		ssize_t ignored = read(self.signals, &info, sizeof info);
		(void)ignored; /* one signal may stand for many ends, so reap asks the kernel */
		self.unreaped = 1;
	}
	if (self.unreaped)
		reap();
	if (fds[0].revents)
		read_control();
}

/* Runs a pipeline until all its commands have ended. The first command of the first step is
 * already there (launch_first). */
static void run_step(const struct step *step, int first) {
	if (!first) {
		self.count = 0;
		launch_rest(step, 0, -1);
	} else {
		if (step->command_count == 1)
			self.main = self.children[0].pid;
		open_barrier(step);
	}
	while (!all_ended())
		wait_for_event();
	/* A child that is reaped may have left its last report in the pipe. */
	for (uint32_t i = 0; i < self.count; i++)
		while (self.children[i].report >= 0)
			read_report(i);
}

/* Whether a step runs, by the status of the last step that ran. The main process of that step
 * decides. */
static int wanted(const struct step *step) {
	int ok = WIFEXITED(self.status) && WEXITSTATUS(self.status) == 0;
	return step->when == WHEN_ALWAYS || (step->when == WHEN_SUCCEEDED) == ok;
}

/* Orphans of this namespace become init's children. So when wait finds no child,
 * only init is alive. */
static void end_everybody(void) {
	kill(-1, SIGKILL);
	while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
		;
}

/* Blocks SIGCHLD and opens the signalfd that wait_for_event polls. */
static void listen_for_ends(void) {
	sigset_t child;
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, NULL);
	self.signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
	if (self.signals < 0 || fcntl(CONTROL_FD, F_SETFD, FD_CLOEXEC) != 0)
		send_failed(STAGE_DESCRIPTORS, errno);
}

/* Ends the execution: after END the daemon may take the sandbox apart, since no process of the
 * script is alive. */
static _Noreturn void end(void) {
	end_everybody();
	uint32_t words[] = { (uint32_t)self.status, (uint32_t)self.by_deadline };
	send_frame(FRAME_END, words, 2);
	_exit(0);
}

/* The deadline counts from here, after the setup of the sandbox. */
static _Noreturn void run_plan(void) {
	self.deadline = now_ms() + self.program.deadline_ms;
	for (uint32_t i = 0; i < self.program.step_count && !self.stopping; i++)
		if (i == 0 || wanted(&self.program.steps[i]))
			run_step(&self.program.steps[i], i == 0);
	end();
}

/* ---- before the plan ---- */

/* Reads the filters into a mapping that is never unmapped. */
static void take_filters(void) {
	struct frame f = read_header();
	if (f.type != FRAME_FILTERS || f.length == 0)
		give_up();
	void *payload = mmap(NULL, f.length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (payload == MAP_FAILED)
		send_failed(STAGE_PROTOCOL, errno);
	read_full(payload, f.length);
	int error = filters_decode(payload, f.length, &self.program);
	if (error)
		send_failed(STAGE_PROTOCOL, error);
}

/* Forks the first child before init knows its program. The child drops its
 * privileges and waits, so the sandbox has two processes, init and the child, while
 * the daemon reads the child's posture. */
static void launch_first(const struct payload *later) {
	int barrier[2], report[2], next[2];
	if (pipe2(barrier, O_CLOEXEC) != 0 || pipe2(report, O_CLOEXEC) != 0 || pipe2(next, O_CLOEXEC) != 0)
		send_failed(STAGE_DESCRIPTORS, errno);
	struct launch l = {
		.program = &self.program, .in = -1, .out = -1, .report = report[1], .barrier = barrier[0], .later = later, .pipe = next[1],
	};
	pid_t pid = fork();
	if (pid < 0)
		send_failed(STAGE_FORK, errno);
	if (pid == 0)
		child_run(&l);
	close(report[1]);
	close(barrier[0]);
	close(next[1]);
	self.barrier = barrier[1];
	self.first = next[0];
	self.children[0] = (struct child){ .pid = pid, .report = report[0] };
	self.count = 1;
	read_report(0); /* READY, or the failure */
}

/* Receives the header of one frame and the frame's descriptors. */
static struct frame receive_header(int *fds, uint32_t *count) {
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * MAX_MOUNTS)];
	} control;
	struct frame f;
	struct iovec iov = { &f, sizeof f };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };
	ssize_t n;
	do
		n = recvmsg(CONTROL_FD, &m, MSG_CMSG_CLOEXEC | MSG_WAITALL);
	while (n < 0 && errno == EINTR);
	if (n != sizeof f || (m.msg_flags & MSG_CTRUNC) || f.magic != FRAME_MAGIC || f.length > MAX_PAYLOAD)
		give_up();
	*count = 0;
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
		*count = (uint32_t)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(fds, CMSG_DATA(c), *count * sizeof(int));
	}
	return f;
}

/* Receives init's new name and the mounts of the execution, and attaches the mounts in
 * their order. */
static void take_mounts(void) {
	/* Static memory is zero, and length is less than its size: also a text without its NUL ends here. */
	static char targets[MAX_MOUNTS * 4096];
	int fds[MAX_MOUNTS];
	uint32_t count;
	struct frame f = receive_header(fds, &count);
	if (f.type != FRAME_MOUNTS || f.length >= sizeof targets)
		give_up();
	read_full(targets, f.length);
	prctl(PR_SET_NAME, targets, 0, 0, 0); /* so that the machine's root can find the execution's sandbox */
	char *at = targets + strlen(targets) + 1;
	for (uint32_t i = 0; i < count; i++) {
		if (at >= targets + f.length)
			give_up();
		if (syscall(SYS_move_mount, fds[i], "", AT_FDCWD, at, MOVE_MOUNT_F_EMPTY_PATH) != 0)
			send_failed(STAGE_MOUNTS, errno);
		close(fds[i]);
		at += strlen(at) + 1;
	}
}

/* Serves a process that a Python zygote forked into this sandbox. The process is the
 * Python zygote's child, so init never learns its wait status. */
static _Noreturn void serve_forked(void) {
	uint32_t words[2];
	struct frame f = read_header();
	if (f.type != FRAME_FORKED || f.length != sizeof words)
		give_up();
	read_full(words, sizeof words);
	self.main = (pid_t)words[0];
	self.deadline = now_ms() + words[1];
	send_frame(FRAME_MOUNTED, NULL, 0);
	while (!self.finished)
		wait_for_event();
	end();
}

/* Runs the program that comes next. */
static _Noreturn void serve_program(struct payload *later) {
	struct frame f = read_header();
	if (f.type != FRAME_PROGRAM || f.length == 0)
		give_up();
	later->length = f.length;
	read_full(later->bytes, f.length);
	int error = program_decode(later->bytes, later->length, &self.program);
	if (error)
		send_failed(STAGE_PROTOCOL, error);
	run_plan();
}

/* Serves one execution, in a sandbox that is set up. executes is 1 if a child of init
 * runs the program, and 0 if a Python zygote forks the process. */
static _Noreturn void serve(int executes) {
	self.barrier = self.first = -1;
	struct payload *later = mmap(NULL, sizeof *later, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (later == MAP_FAILED)
		send_failed(STAGE_PROTOCOL, errno);
	listen_for_ends();
	if (executes)
		launch_first(later);
	else
		send_frame(FRAME_HELLO, NULL, 0);
	/* Of the mount calls this filter allows only move_mount, which fails once
	 * give_up_mounting has dropped CAP_SYS_ADMIN. */
	if (filter_load(&self.program.init_filter) != 0)
		send_failed(STAGE_FILTER, errno);
	take_mounts();
	give_up_mounting();
	if (!executes)
		serve_forked();
	serve_program(later);
}

/* An init in a container of libcontainer. Libcontainer has done the rest of the setup. */
static _Noreturn void run(void) {
	/* Then /proc/1 belongs to the machine's root, and no process of the sandbox may attach (proc(5), ptrace(2)). */
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	prctl(PR_SET_NAME, "init", 0, 0, 0);
	prctl(PR_SET_TIMERSLACK, TIMER_SLACK, 0, 0, 0);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		give_up();
	take_filters();
	set_limits(self.program.rlimits, self.program.rlimit_count);
	make_proc_read_only();
	serve(1);
}

/* An init that the zygote cloned. */
_Noreturn void cloned_run(const struct zygote *zygote, const struct make *make, int *fds, int count, int mapped) {
	cloned_set_up(zygote, make, fds, count, mapped);
	self.program.init_filter = zygote->filters[INIT_FILTER];
	self.program.script_filter = zygote->filters[SCRIPT_FILTER];
	self.program.open_files = make->open_files;
	serve((int)make->executes);
}

/* Runs before main and before the Go runtime in every program that links this
 * package. It must do nothing unless the process is an init. */
__attribute__((constructor)) static void skillrun_init(int argc, char **argv) {
	int type = 0;
	socklen_t length = sizeof type;
	if (argc != 2 || strcmp(argv[1], "skillrun-init") != 0 || getpid() != 1)
		return;
	if (getsockopt(CONTROL_FD, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_STREAM)
		return;
	run();
}
