/* The zygote of sandboxes: PID 1 of a libcontainer container. It clones the inits of
 * sandboxes.
 *
 * Theory of operation
 *
 * Libcontainer starts the whole binary twice to build a container, which takes some
 * ten milliseconds. It builds the zygote's container once, with the user ids of many
 * sandboxes in the zygote's user namespace. A sandbox is then one clone: a process in
 * new namespaces nested in the zygote's, with two ids that no other sandbox has. The
 * cloned process is PID 1 of its sandbox. It sets itself up (init_cloned.c) and then
 * runs as the init that init.c describes.
 *
 * The zygote runs no code of a skill and reads no data of a skill. It keeps no access
 * to a sandbox that it has made: the daemon holds the sandbox's control socket and
 * streams. When the daemon ends, the zygote's socket closes and the zygote exits. The
 * kernel then kills every sandbox, because their PID namespaces are nested in the
 * zygote's (pid_namespaces(7)).
 *
 * The zygote has one thread and no heap. Like init it is the daemon's binary, which the
 * constructor below recognises.
 */
#define _GNU_SOURCE
#include "confine.h"
#include "init.h"
#include "init_cloned.h"
#include "packets.h"
#include "python_program.h"
#include "wire.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The capability of a Python zygote. setns(2) wants it in the caller's user namespace
 * before children may enter a PID namespace. In the user namespaces of sandboxes the
 * Python zygote has every capability, as their owner (user_namespaces(7)). */
static const uint64_t python_capabilities = 1ULL << CAP_SYS_ADMIN;
/* The capabilities with which the zygote writes the id maps of sandboxes (user_namespaces(7)). */
static const uint64_t own_capabilities = 1ULL << CAP_SETGID | 1ULL << CAP_SETUID;

/* The contents of PACKET_BEGIN. A clone inherits a copy of them. */
static struct zygote self;
/* The packet that the zygote is working on. receive overwrites it. */
static unsigned char packet[MAX_ZYGOTE_PACKET];

/* Receives one packet into packet, and its descriptors into fds, which has room of them. Returns
 * the length of the packet and stores the number of descriptors in count. The caller closes the
 * descriptors. They close on exec. At the end of the socket, and after a packet that breaks the
 * protocol, the zygote ends (give_up). */
static size_t receive(int *fds, int room, int *count) {
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * MAX_MAKE_FDS)];
	} control;
	struct iovec iov = { packet, sizeof packet - 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };
	ssize_t n;
	do
		n = recvmsg(CONTROL_FD, &m, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < (ssize_t)sizeof(struct packet) || (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
		give_up();
	packet[n] = 0;
	*count = 0;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			give_up();
		int got = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		if (*count + got > room)
			give_up();
		memcpy(fds + *count, CMSG_DATA(c), (size_t)got * sizeof(int));
		*count += got;
	}
	if (((struct packet *)packet)->magic != ZYGOTE_MAGIC)
		give_up();
	return (size_t)n;
}

/* Answers the request with this number: an errno, or 0 with the pidfd of the new process. The
 * caller keeps the pidfd. Number 0 answers PACKET_BEGIN. */
static void answer(uint32_t number, int error, int pidfd) {
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { .header = { .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int)) } };
	struct made made = { .packet = { ZYGOTE_MAGIC, PACKET_MADE }, .number = number, .error = (uint32_t)error };
	struct iovec iov = { &made, sizeof made };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	if (pidfd >= 0) {
		memcpy(CMSG_DATA(&control.header), &pidfd, sizeof pidfd);
		m.msg_control = &control;
		m.msg_controllen = sizeof control;
	}
	if (sendmsg(CONTROL_FD, &m, MSG_NOSIGNAL) != sizeof made)
		give_up();
}

/* Takes the next string of the packet. */
static char *take_string(char **at, char *end) {
	char *s = *at;
	if (s >= end)
		give_up();
	*at = s + strlen(s) + 1; /* receive put a NUL after the packet */
	if (*at > end)
		give_up();
	return s;
}

/* Takes PACKET_BEGIN: stores its contents in self, then gives up the capabilities and system
 * calls that the zygote does not need. The order matters: from here on the zygote's filter holds
 * for the zygote and for every sandbox. */
static void begin(size_t length) {
	struct begin *b = (struct begin *)packet;
	if (length < sizeof *b || b->packet.type != PACKET_BEGIN || b->mask_count > MAX_MASKS ||
	    b->place_count == 0 || b->place_count > MAX_PLACES)
		give_up();
	size_t code = 0;
	for (int i = 0; i < FILTERS; i++) {
		if (b->filters[i] == 0 || b->filters[i] > MAX_FILTER)
			give_up();
		code += b->filters[i] * sizeof(struct sock_filter);
	}
	if (length < sizeof *b + code)
		give_up();
	/* The next packet overwrites this one. */
	unsigned char *copy = mmap(NULL, length + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (copy == MAP_FAILED)
		give_up();
	memcpy(copy, packet, length + 1);
	char *at = (char *)copy + sizeof *b;
	for (int i = 0; i < FILTERS; i++) {
		self.filters[i] = (struct sock_fprog){ (unsigned short)b->filters[i], (struct sock_filter *)at };
		at += b->filters[i] * sizeof(struct sock_filter);
	}
	for (uint32_t i = 0; i < b->mask_count; i++) {
		struct stat s;
		const char *path = take_string(&at, (char *)copy + length);
		if (stat(path, &s) != 0) {
			if (errno == ENOENT)
				continue; /* this kernel has nothing there to hide */
			give_up();
		}
		self.masks[self.mask_count].path = path;
		self.masks[self.mask_count++].is_dir = S_ISDIR(s.st_mode);
	}
	for (uint32_t i = 0; i < b->place_count; i++)
		self.places[self.place_count++] = take_string(&at, (char *)copy + length);
	struct rlimit core = { b->core_limit, b->core_limit };
	if (setrlimit(RLIMIT_CORE, &core) != 0)
		give_up();
	/* From here on the zygote has two effective capabilities, which map the ids of
	 * sandboxes. Only spawn uses the permitted one, for a Python zygote. */
	if (filter_load(&self.filters[ZYGOTE_FILTER]) != 0 || set_capabilities(own_capabilities | (b->joins ? python_capabilities : 0), own_capabilities) != 0)
		give_up();
}

/* Writes the id map of a clone's user namespace: the sandbox's root has the id first of the
 * zygote's user namespace, and the script has the next one. Nothing else is mapped. Returns an
 * errno. The zygote has CAP_SETUID and CAP_SETGID in its user namespace, so it may map ids other
 * than its own, and need not deny setgroups(2) first (user_namespaces(7)). */
static int write_map(pid_t pid, const char *name, uint32_t first) {
	char path[64], line[96];
	snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
	int n = snprintf(line, sizeof line, "0 %u 1\n%d %u 1\n", first, SCRIPT_ID, first + 1);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return errno;
	int error = write(fd, line, (size_t)n) == n ? 0 : errno;
	close(fd);
	return error;
}

/* Takes PACKET_MAKE: clones the init of a sandbox. The clone waits at the pipe mapped until its
 * ids are mapped, since only its parent may map them. The answer says that the process exists;
 * the init reports the rest of its setup on the sandbox's control socket. */
static void make(size_t length, int *fds, int count) {
	struct make *m = (struct make *)packet;
	if (length != sizeof *m || m->rlimit_count > MAX_RLIMITS || m->group_count > MAX_GROUPS ||
	    m->place_count == 0 || m->place_count > self.place_count || count != 4 + (int)(m->place_count + m->group_count))
		give_up();
	int mapped[2], pidfd = -1;
	struct clone_args args = {
		.flags = CLONE_PIDFD | CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS,
		.pidfd = (uintptr_t)&pidfd,
		.exit_signal = SIGCHLD,
	};
	if (access("/proc/self/ns/time", F_OK) == 0)
		args.flags |= CLONE_NEWTIME; /* it inherits the zygote's clock offsets */
	if (pipe2(mapped, O_CLOEXEC) != 0) {
		answer(m->number, errno, -1);
		return;
	}
	pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
	if (pid == 0) {
		close(mapped[1]);
		cloned_run(&self, m, fds, count, mapped[0]);
	}
	int error = pid < 0 ? errno : 0;
	if (!error)
		error = write_map(pid, "uid_map", m->first_id);
	if (!error)
		error = write_map(pid, "gid_map", m->first_id);
	if (!error && write(mapped[1], "m", 1) != 1)
		error = EPIPE;
	close(mapped[0]);
	close(mapped[1]); /* without the byte the child exits */
	answer(m->number, error, error ? -1 : pidfd);
	if (pidfd >= 0)
		close(pidfd);
}

/* Starts a program of the machine in the zygote's container: a Python zygote, which
 * forks processes into sandboxes. Its descriptors: 0 is /dev/null, 1 and 2 are the log,
 * 3 is the socket. */
static void spawn(size_t length, int *fds, int count) {
	struct spawn *s = (struct spawn *)packet;
	static char *argv[MAX_ARGS + 1], *envp[MAX_ARGS + 1];
	if (length < sizeof *s || count != 2 || s->arg_count == 0 || s->arg_count > MAX_ARGS || s->env_count > MAX_ARGS)
		give_up();
	char *at = (char *)packet + sizeof *s, *end = (char *)packet + length;
	for (uint32_t i = 0; i < s->arg_count; i++)
		argv[i] = take_string(&at, end);
	argv[s->arg_count] = NULL;
	for (uint32_t i = 0; i < s->env_count; i++)
		envp[i] = take_string(&at, end);
	envp[s->env_count] = NULL;
	int pidfd = -1;
	struct clone_args args = { .flags = CLONE_PIDFD | CLONE_NEWNS, .pidfd = (uintptr_t)&pidfd, .exit_signal = SIGCHLD };
	if (set_capabilities(own_capabilities | python_capabilities, own_capabilities | python_capabilities) != 0)
		give_up();
	pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
	if (pid != 0 && set_capabilities(own_capabilities | python_capabilities, own_capabilities) != 0)
		give_up();
	if (pid == 0) {
		int null = open("/dev/null", O_RDONLY);
		signal(SIGCHLD, SIG_DFL);
		if (null < 0 || dup2(null, 0) < 0 || dup2(fds[1], 1) < 0 || dup2(fds[1], 2) < 0 || dup2(fds[0], 3) < 0)
			_exit(127);
		if (fds[0] == 3 && fcntl(3, F_SETFD, 0) != 0)
			_exit(127);
		syscall(SYS_close_range, 4, ~0U, 0);
		environ = envp; /* with the PATH by which it is found */
		char program[PATH_MAX];
		if (program_cover(argv[0], getenv("PATH"), program, sizeof program) != 0)
			_exit(127);
		if (set_capabilities(python_capabilities, python_capabilities) != 0 || filter_load(&self.filters[PYTHON_FILTER]) != 0)
			_exit(127);
		execv(program, argv);
		_exit(127);
	}
	answer(s->number, pid < 0 ? errno : 0, pid < 0 ? -1 : pidfd);
	if (pidfd >= 0)
		close(pidfd);
}

/* The life of the zygote: its setup, PACKET_BEGIN, then one request after the other. It does not
 * end before its socket does. */
static _Noreturn void run(void) {
	int fds[MAX_MAKE_FDS], count;
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	prctl(PR_SET_NAME, "zygote", 0, 0, 0);
	prctl(PR_SET_TIMERSLACK, TIMER_SLACK, 0, 0, 0);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		give_up();
	/* The mount only made the directory, on which each sandbox mounts its own tmpfs. */
	if (umount2("/dev/shm", MNT_DETACH | UMOUNT_NOFOLLOW) != 0)
		give_up();
	signal(SIGCHLD, SIG_IGN); /* the kernel reaps; the daemon has their pidfds */
	begin(receive(fds, 0, &count));
	answer(0, 0, -1);
	for (;;) {
		size_t length = receive(fds, MAX_MAKE_FDS, &count);
		switch (((struct packet *)packet)->type) {
		case PACKET_MAKE:
			make(length, fds, count);
			break;
		case PACKET_SPAWN:
			spawn(length, fds, count);
			break;
		default:
			give_up();
		}
		for (int i = 0; i < count; i++)
			close(fds[i]);
	}
}

/* Runs before main, like skillrun_init in init.c. The argument alone proves nothing, so the
 * process must also be PID 1 with a socket of packets at CONTROL_FD. A process like that is a
 * zygote that libcontainer has executed. */
__attribute__((constructor)) static void skillrun_zygote(int argc, char **argv) {
	int type = 0;
	socklen_t length = sizeof type;
	if (argc != 2 || strcmp(argv[1], "skillrun-zygote") != 0 || getpid() != 1)
		return;
	if (getsockopt(CONTROL_FD, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_SEQPACKET)
		return;
	run();
}
