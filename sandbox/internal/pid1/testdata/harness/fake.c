/* Fakes of the kernel, the daemon and the children of init and the zygote. The input
 * decides all their answers, so they can lie in any way. The harness checks init's frames
 * against the protocol of init.c and aborts at a violation. */
#include "harness.h"

#undef _exit
#undef close
#undef mmap
#undef poll
#undef read
#undef send
#undef stat
#undef write

#include "../../init_child.h"

#include <dirent.h>
#include <errno.h>
#include <linux/sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_FD = 20, MAX_FDS = 4096, MAX_MAPPINGS = 64, MAX_CALLS = 4000, FIRST_PID = 100 };

static struct {
	const uint8_t *choices, *choices_end; /* results of system calls */
	const uint8_t *text, *text_end;       /* bytes from peers */
	void *mappings[MAX_MAPPINGS];
	int mapping_count, fd_count, calls, forks, reaped, answers; /* answers: of the zygote */
	uint8_t open[MAX_FDS], ready[MAX_FDS]; /* ready: its child has reported READY */
	uint32_t sent;     /* a bit for each type of frame */
	int go, ended, in_child;
	uint64_t now;
	jmp_buf done;
} fake;

static _Noreturn void broken(const char *what) {
	fprintf(stderr, "harness: %s\n", what);
	abort();
}

/* The next choice of the input. After the input's end it is 0, with which every call
 * succeeds. */
static uint8_t choose(void) {
	if (++fake.calls > MAX_CALLS)
		fake_exit(0);
	return fake.choices < fake.choices_end ? *fake.choices++ : 0;
}

static size_t take_text(void *to, size_t length) {
	size_t left = (size_t)(fake.text_end - fake.text);
	size_t n = length < left ? length : left;
	memcpy(to, fake.text, n);
	fake.text += n;
	return n;
}

/* Reads a string as the kernel would. */
static void look_at(const char *s) {
	static volatile size_t sum;
	sum += strlen(s);
}

/* See harness.h. */
static uint8_t reached(void) {
	uint32_t up = 1u << FRAME_HELLO | 1u << FRAME_READY, runs = 1u << FRAME_STARTED | 1u << FRAME_MOUNTED;
	return (uint8_t)((fake.answers < 15 ? fake.answers : 15) | (fake.sent & up ? 0x10 : 0) | (fake.sent & runs ? 0x20 : 0) |
	                 (fake.sent & 1u << FRAME_END ? 0x40 : 0));
}

uint8_t harness_run(const uint8_t *input, size_t length) {
	memset(&fake, 0, sizeof fake);
	if (length < 4)
		return 0;
	size_t choices = (size_t)input[2] << 8 | input[1];
	if (choices > length - 4)
		choices = length - 4;
	fake.choices = input + 4;
	fake.choices_end = fake.text = fake.choices + choices;
	fake.text_end = input + length;
	if (setjmp(fake.done) == 0) {
		if (input[0] & 1)
			harness_zygote();
		else
			harness_init();
	}
	for (int i = 0; i < fake.mapping_count; i++)
		free(fake.mappings[i]);
	return reached();
}

void fake_exit(int status) {
	(void)status;
	longjmp(fake.done, 1);
}

int fake_call(void) {
	uint8_t c = choose();
	if (c < 0xf0)
		return 0;
	static const int errors[] = { EPERM, ENOENT, EINVAL, EAGAIN };
	errno = errors[c & 3];
	return -1;
}

int fake_clock(clockid_t clock, struct timespec *t) {
	(void)clock;
	fake.now += choose();
	*t = (struct timespec){ .tv_sec = (time_t)fake.now, .tv_nsec = 999999999 };
	return 0;
}

/* Descriptor numbers are never used again, so a second close is detected. */
int fake_fd(void) {
	if (fake_call())
		return -1;
	if (fake.fd_count == MAX_FDS)
		fake_exit(0);
	fake.open[fake.fd_count] = 1;
	return FIRST_FD + fake.fd_count++;
}

int fake_close(int fd) {
	if (fd < FIRST_FD || fd >= FIRST_FD + fake.fd_count || fake.in_child)
		return 0;
	if (!fake.open[fd - FIRST_FD])
		broken("a descriptor is closed twice");
	fake.open[fd - FIRST_FD] = 0;
	return 0;
}

int fake_pipe(int *fds) {
	if (fake_call())
		return -1;
	if (fake.fd_count + 2 > MAX_FDS)
		fake_exit(0);
	for (int i = 0; i < 2; i++) {
		fake.open[fake.fd_count] = 1;
		fds[i] = FIRST_FD + fake.fd_count++;
	}
	return 0;
}

int fake_execve(const char *path, char *const *argv, char *const *env) {
	look_at(path);
	if (!argv[0])
		broken("a program without a name");
	for (; *argv; argv++)
		look_at(*argv);
	for (; *env; env++)
		look_at(*env);
	static const int errors[] = { ENOENT, EACCES, E2BIG, ENOTDIR };
	errno = errors[choose() & 3];
	return -1;
}

pid_t fake_fork(void) {
	uint8_t c = choose();
	if (c >= 0xf0) {
		errno = EAGAIN;
		return -1;
	}
	if (c == 1) {
		fake.in_child = 1;
		return 0;
	}
	return FIRST_PID + fake.forks++;
}

/* Takes heap memory, so that the sanitizer guards its ends. */
void *fake_mmap(size_t length) {
	void *p = fake_call() || fake.mapping_count == MAX_MAPPINGS ? NULL : calloc(1, length);
	if (!p) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	return fake.mappings[fake.mapping_count++] = p;
}

/* The choice has a bit for each descriptor without an event. */
int fake_poll(struct pollfd *fds, nfds_t count) {
	uint8_t silent = choose();
	if (silent == 0xff) {
		errno = EINTR;
		return -1;
	}
	int ready = 0;
	for (nfds_t i = count; i-- > 0;) {
		fds[i].revents = fds[i].fd < 0 || silent >> (i < 7 ? i : 7) & 1 ? 0 : POLLIN;
		/* The daemon closes its end only when no other descriptor has an event. */
		if (i == 0 && fake.text == fake.text_end && ready)
			fds[i].revents = 0;
		ready |= fds[i].revents;
	}
	return 1;
}

int fake_prctl(int option, ...) {
	va_list args;
	va_start(args, option);
	if (option == PR_SET_NAME)
		look_at(va_arg(args, const char *));
	va_end(args);
	return fake_call();
}

/* The reports of a child: first it is ready, then its exec closes the pipe. */
static ssize_t read_report(int fd, void *buffer, size_t length) {
	struct report r = { .stage = STAGE_READY };
	uint8_t c = choose();
	if (length < sizeof r || fd < FIRST_FD || fd >= FIRST_FD + fake.fd_count || !fake.open[fd - FIRST_FD])
		broken("a read of what is no report");
	if (c == 0xff)
		return -1;
	if (c == 1 || (c == 0 && fake.ready[fd - FIRST_FD]++))
		return 0;
	if (c > 1)
		r = (struct report){ .stage = c, .error = choose() };
	memcpy(buffer, &r, sizeof r);
	return c == 2 ? 4 : (ssize_t)sizeof r;
}

ssize_t fake_read(int fd, void *buffer, size_t length) {
	memset(buffer, 0xa5, length); /* all that the kernel may overwrite */
	if (fd != CONTROL_FD && length == 1)
		return choose() < 0xf0;
	if (fd != CONTROL_FD)
		return read_report(fd, buffer, length);
	size_t n = take_text(buffer, length);
	struct frame f;
	if (n == sizeof f && length == sizeof f) {
		memcpy(&f, buffer, sizeof f);
		fake.go |= f.type == FRAME_MOUNTS;
	}
	return (ssize_t)n;
}

/* A choice gives the number of descriptors. The length of a packet precedes it. */
ssize_t fake_recvmsg(struct msghdr *m) {
	struct iovec *iov = m->msg_iov;
	size_t length = iov->iov_len, count = choose() & 0x7f;
	uint8_t size[2];
	if (length != sizeof(struct frame)) {
		if (take_text(size, 2) != 2)
			return 0;
		length = (size_t)size[1] << 8 | size[0];
		m->msg_flags = length > iov->iov_len ? MSG_TRUNC : 0;
		length = length < iov->iov_len ? length : iov->iov_len;
	} else {
		m->msg_flags = 0;
		fake.go = 1;
	}
	size_t room = (m->msg_controllen - CMSG_LEN(0)) / sizeof(int);
	if (count > room) {
		m->msg_flags |= MSG_CTRUNC;
		count = room;
	}
	struct cmsghdr *c = m->msg_control;
	*c = (struct cmsghdr){ .cmsg_len = CMSG_LEN(count * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
	m->msg_controllen = count ? CMSG_SPACE(count * sizeof(int)) : 0;
	for (size_t i = 0; i < count; i++) {
		int fd = fake.fd_count < MAX_FDS ? FIRST_FD + fake.fd_count : -1;
		if (fd >= 0)
			fake.open[fake.fd_count++] = 1;
		memcpy(CMSG_DATA(c) + i * sizeof(int), &fd, sizeof fd);
	}
	return (ssize_t)take_text(iov->iov_base, length);
}

/* Checks init's frames: their lengths and their order, and that each comes once. */
ssize_t fake_send(const void *message, size_t length) {
	struct frame f;
	if (length < sizeof f)
		broken("half a frame");
	memcpy(&f, message, sizeof f);
	if (f.magic != FRAME_MAGIC || f.length != length - sizeof f || f.type < FRAME_HELLO || f.type > FRAME_END)
		broken("a malformed frame");
	if (fake.in_child)
		broken("a child speaks to the daemon");
	if (fake.ended)
		broken("a frame after the last one");
	uint32_t bit = 1u << f.type;
	if (fake.sent & bit && f.type != FRAME_READY)
		broken("a frame twice");
	if (f.type == FRAME_STARTED && !fake.go)
		broken("a program runs that was not let go");
	fake.sent |= bit;
	fake.ended = f.type == FRAME_END || f.type == FRAME_FAILED;
	return choose() == 0xff ? -1 : (ssize_t)length;
}

ssize_t fake_sendmsg(const struct msghdr *m) {
	fake.answers++;
	return choose() == 0xff ? -1 : (ssize_t)m->msg_iov->iov_len;
}

int fake_stat(const char *path, struct stat *s) {
	look_at(path);
	memset(s, 0, sizeof *s);
	s->st_mode = choose() & 1 ? S_IFDIR : S_IFREG;
	return fake_call();
}

/* File names of a hostile script, each as a length and bytes. */
static long list_directory(void *buffer, size_t size) {
	struct {
		uint64_t inode;
		int64_t offset;
		uint16_t length;
		uint8_t type;
		char name[256];
	} e;
	size_t done = 0;
	for (int count = choose() & 15; count > 0; count--) {
		uint8_t length = 0;
		memset(&e, 0, sizeof e);
		take_text(&length, 1);
		size_t n = take_text(e.name, length);
		e.type = choose() & 1 ? DT_DIR : DT_REG;
		e.length = (uint16_t)((19 + strnlen(e.name, n) + 1 + 7) & ~(size_t)7);
		if (done + e.length > size)
			break;
		memcpy((char *)buffer + done, &e, e.length);
		done += e.length;
	}
	return (long)done;
}

/* The zygote clones the init of a sandbox, or a child that executes a program. */
static long make_process(const struct clone_args *args) {
	pid_t pid = fake_fork();
	fake.in_child = 0;
	if (pid > 0)
		*(int *)(uintptr_t)args->pidfd = fake_fd();
	return pid;
}

long fake_syscall(long number, ...) {
	long a[5];
	va_list args;
	va_start(args, number);
	for (int i = 0; i < 5; i++)
		a[i] = va_arg(args, long);
	va_end(args);
	switch (number) {
	case SYS_clone3:
		return make_process((const void *)a[0]);
	case SYS_getdents64:
		return list_directory((void *)a[1], (size_t)a[2]);
	case SYS_openat2:
		look_at((const char *)a[1]);
		return fake_fd();
	case SYS_move_mount:
		look_at((const char *)a[3]);
		break;
	case SYS_seccomp: {
		const struct sock_fprog *f = (const void *)a[2];
		struct sock_filter last;
		if (f->len > 0)
			memcpy(&last, &f->filter[f->len - 1], sizeof last);
	}
	}
	return fake_call();
}

pid_t fake_waitpid(int *status, int options) {
	static const int statuses[] = { 0, 1 << 8, 9, 0x137f, 0xffff, 127 << 8 };
	errno = ECHILD;
	if (!(options & WNOHANG))
		return -1;
	uint8_t c = choose();
	if (c == 0xff || !fake.go || (c == 0 && fake.reaped == fake.forks))
		return 0;
	*status = statuses[choose() % (sizeof statuses / sizeof *statuses)];
	return FIRST_PID + (c ? c - 1 : fake.reaped++);
}

ssize_t fake_write(int fd, const void *buffer, size_t length) {
	static volatile uint8_t sum;
	for (size_t i = 0; i < length; i++)
		sum ^= ((const uint8_t *)buffer)[i];
	if (length == 1 && *(const char *)buffer == 'g' && fd >= FIRST_FD && !fake.go)
		broken("the start barrier opens before the daemon says so");
	return fake_call() ? -1 : (ssize_t)length;
}
