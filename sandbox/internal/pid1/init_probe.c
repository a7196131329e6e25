/* The probe: a program that a Host runs in special sandboxes to try every action that
 * a script must not be able to do. Like init it is the daemon's binary. Init executes it
 * in place of a script, with all of a script's restrictions. Each check prints one line,
 * which sandbox/internal/preflight reads:
 *
 *     name TAB found|missing TAB detail NEWLINE
 *
 * "found" means that the boundary held. The probe does not trust the sandbox. Its calls
 * have invalid arguments: a call that reaches the kernel changes nothing, and its errno
 * shows that it got there. The probe makes files only in the sandbox's directories.
 */
#define _GNU_SOURCE
#include "wire.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LENGTH(array) (sizeof(array) / sizeof *(array))

/* ---- the report ---- */

/* Prints one line of the report. Control characters become spaces, so a detail can't forge
 * another line. If the report can't be written, the probe ends, and the daemon misses the checks
 * that have no line. */
__attribute__((format(printf, 3, 4))) static void say(const char *name, int found, const char *format, ...) {
	char line[512];
	int n = snprintf(line, sizeof line, "%s\t%s\t", name, found ? "found" : "missing");
	va_list args;
	va_start(args, format);
	vsnprintf(line + n, sizeof line - (size_t)n - 1, format, args);
	va_end(args);
	for (char *p = line + n; *p; p++)
		if ((unsigned char)*p < ' ')
			*p = ' ';
	size_t length = strlen(line);
	line[length++] = '\n';
	if (write(STDOUT_FILENO, line, length) != (ssize_t)length)
		_exit(1);
}

/* A variable that sandbox/internal/preflight sets: a fact about the daemon or about this sandbox. */
static const char *told(const char *name) {
	const char *value = getenv(name);
	return value ? value : "";
}

static long told_number(const char *name) {
	return strtol(told(name), NULL, 10);
}

/* Reads a whole file as text. Returns -1 if the file can't be opened or read. */
static ssize_t slurp(const char *path, char *buffer, size_t size) {
	size_t done = 0;
	ssize_t n = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	while (fd >= 0 && done < size - 1 && (n = read(fd, buffer + done, size - 1 - done)) > 0)
		done += (size_t)n;
	if (fd >= 0)
		close(fd);
	buffer[done] = 0;
	return fd < 0 || (n < 0 && done == 0) ? -1 : (ssize_t)done;
}

/* ---- system calls that the filter refuses ---- */

#define MAX_ATTEMPTS 16

/* Calls with every argument -1, except where the table says otherwise. */
struct refusal {
	const char *name;
	struct { const char *call; long number; } attempts[MAX_ATTEMPTS];
};

#define CALL(name) { #name, SYS_##name }

static const struct refusal refusals[] = {
	{ "mounting", { CALL(mount), CALL(umount2), CALL(pivot_root), CALL(chroot), CALL(move_mount), CALL(open_tree),
		CALL(fsopen), CALL(fsconfig), CALL(fsmount), CALL(fspick), CALL(mount_setattr) } },
	{ "new namespaces", { CALL(unshare), CALL(setns), CALL(clone3) } },
	{ "tracing", { CALL(ptrace), CALL(process_vm_readv), CALL(process_vm_writev), CALL(kcmp), CALL(pidfd_open),
		CALL(pidfd_getfd), CALL(pidfd_send_signal), CALL(process_madvise) } },
	{ "keyrings", { CALL(keyctl), CALL(add_key), CALL(request_key) } },
	{ "performance counters", { CALL(perf_event_open) } },
	{ "io_uring", { CALL(io_uring_setup), CALL(io_uring_enter), CALL(io_uring_register), CALL(io_setup), CALL(io_submit) } },
	{ "userfaultfd", { CALL(userfaultfd) } },
	{ "other kernels and modules", { CALL(kexec_load), CALL(init_module), CALL(finit_module), CALL(delete_module) } },
	{ "administration", { CALL(reboot), CALL(swapon), CALL(swapoff), CALL(acct), CALL(quotactl) } },
	{ "clocks", { CALL(clock_settime), CALL(settimeofday), CALL(adjtimex), CALL(clock_adjtime) } },
	{ "host name", { CALL(sethostname), CALL(setdomainname) } },
	{ "file handles", { CALL(open_by_handle_at), CALL(name_to_handle_at) } },
	{ "changing ids", { CALL(setuid), CALL(setgid), CALL(setresuid), CALL(setresgid), CALL(setgroups), CALL(setfsuid) } },
	{ "changing capabilities", { CALL(capset) } },
	{ "queues and shared memory", { CALL(shmget), CALL(semget), CALL(shmat), CALL(msgrcv), CALL(mq_open) } },
	{ "kernel log", { CALL(syslog) } },
	{ "watching file systems", { CALL(fanotify_init), CALL(fanotify_mark) } },
	{ "page cache", { CALL(vmsplice), CALL(tee), CALL(splice), CALL(remap_file_pages) } },
	{ "hidden memory", { { "memfd_secret", 447 }, CALL(mlockall) } }, /* libc may be older than Linux 5.14, which has it */
	{ "priorities", { CALL(setpriority), CALL(sched_setscheduler), CALL(sched_setattr), CALL(ioprio_set) } },
#ifdef SYS_iopl
	{ "ports and segments", { CALL(iopl), CALL(ioperm), CALL(modify_ldt) } },
#else
	{ "ports and segments", { CALL(personality) } },
#endif
};

/* Whether a call failed by one of the filter's two errors. The kernel has them too, and then
 * refuses the call itself. */
static int refused(long result) {
	return result == -1 && (errno == EPERM || errno == ENOSYS);
}

/* The first call that gets through is in the report. */
static void try_refusals(void) {
	for (size_t i = 0; i < LENGTH(refusals); i++) {
		const struct refusal *r = &refusals[i];
		const char *through = NULL;
		int count = 0, error = 0;
		for (; count < MAX_ATTEMPTS && r->attempts[count].call; count++) {
			errno = 0;
			long result = syscall(r->attempts[count].number, -1L, -1L, -1L, -1L, -1L, -1L);
			if (!refused(result) && !through) {
				through = r->attempts[count].call;
				error = errno;
			}
		}
		if (through)
			say(r->name, 0, "%s reached the kernel (%s)", through, strerror(error));
		else
			say(r->name, 1, "%s refused", count == 1 ? r->attempts[0].call : "all calls");
	}
}

/* The filter allows clone, but not with these flags. */
static void try_clone(void) {
	static const struct { const char *name; unsigned long flag; } flags[] = {
		{ "user", CLONE_NEWUSER }, { "mount", CLONE_NEWNS }, { "network", CLONE_NEWNET }, { "pid", CLONE_NEWPID },
		{ "cgroup", CLONE_NEWCGROUP }, { "ipc", CLONE_NEWIPC }, { "uts", CLONE_NEWUTS },
	};
	for (size_t i = 0; i < LENGTH(flags); i++) {
		/* With CLONE_FS the kernel itself refuses a mount or user namespace, by EINVAL. */
		long pid = syscall(SYS_clone, flags[i].flag | SIGCHLD, 0, 0, 0, 0);
		if (pid == 0)
			_exit(0);
		if (pid > 0)
			waitpid((pid_t)pid, NULL, 0);
		if (!refused(pid)) {
			say("processes in new namespaces", 0, "clone with a new %s namespace: %s", flags[i].name, pid >= 0 ? "works" : strerror(errno));
			return;
		}
	}
	say("processes in new namespaces", 1, "clone refused for each");
}

/* Options that pass a classic BPF program to the kernel, and one that makes the kernel
 * parse IPsec packets. */
static void try_bpf(void) {
	static const struct { const char *name; int level, option; } options[] = {
		{ "SO_ATTACH_FILTER", SOL_SOCKET, 26 }, { "SO_ATTACH_BPF", SOL_SOCKET, 50 }, { "SO_ATTACH_REUSEPORT_CBPF", SOL_SOCKET, 51 },
		{ "SO_ATTACH_REUSEPORT_EBPF", SOL_SOCKET, 52 }, { "UDP_ENCAP", IPPROTO_UDP, 100 },
	};
	if (!refused(syscall(SYS_bpf, -1L, -1L, -1L, -1L, -1L, -1L))) {
		say("bpf", 0, "bpf reached the kernel (%s)", strerror(errno));
		return;
	}
	for (size_t i = 0; i < LENGTH(options); i++) {
		if (!refused(syscall(SYS_setsockopt, -1L, options[i].level, options[i].option, 0L, 0L))) {
			say("bpf", 0, "setsockopt %s reached the kernel (%s)", options[i].name, strerror(errno));
			return;
		}
	}
	/* Mode 2 takes a filter. The kernel itself would answer EFAULT for the pointer 0, the filter says EINVAL. */
	if (prctl(PR_SET_SECCOMP, 2L, 0L, 0L, 0L) != -1 || errno != EINVAL) {
		say("bpf", 0, "prctl PR_SET_SECCOMP reached the kernel (%s)", strerror(errno));
		return;
	}
	say("bpf", 1, "bpf, setsockopt and prctl refused");
}

/* The numbers are of address families and protocols that not every libc names. */
static void try_sockets(void) {
	static const struct { const char *name; int family, type, protocol; } kinds[] = {
		{ "packet", AF_PACKET, SOCK_RAW, 0 }, { "netlink", AF_NETLINK, SOCK_RAW, 0 }, { "raw IP", AF_INET, SOCK_RAW, IPPROTO_ICMP },
		{ "ICMP", AF_INET, SOCK_DGRAM, IPPROTO_ICMP }, { "raw IPv6", AF_INET6, SOCK_RAW, IPPROTO_ICMPV6 }, { "vsock", 40, SOCK_STREAM, 0 },
		{ "kernel crypto", 38, SOCK_SEQPACKET, 0 }, { "XDP", 44, SOCK_RAW, 0 }, { "TIPC", 30, SOCK_RDM, 0 }, { "CAN", 29, SOCK_RAW, 1 },
		{ "bluetooth", 31, SOCK_RAW, 1 }, { "MPTCP", AF_INET, SOCK_STREAM, 262 }, { "SCTP", AF_INET, SOCK_STREAM, IPPROTO_SCTP },
	};
	for (size_t i = 0; i < LENGTH(kinds); i++) {
		int fd = socket(kinds[i].family, kinds[i].type | SOCK_CLOEXEC, kinds[i].protocol);
		if (fd >= 0) {
			close(fd);
			say("socket families", 0, "a %s socket can be made", kinds[i].name);
			return;
		}
		/* The kernel makes both sockets before it reports that the family has no pairs. */
		if (kinds[i].family != AF_INET && kinds[i].family != AF_INET6 &&
			!refused(syscall(SYS_socketpair, kinds[i].family, kinds[i].type | SOCK_CLOEXEC, kinds[i].protocol, NULL))) {
			say("socket families", 0, "a pair of %s sockets reached the kernel (%s)", kinds[i].name, strerror(errno));
			return;
		}
	}
	say("socket families", 1, "only local, TCP and UDP");
}

/* The first two push input into a terminal and so into the shell that reads it. */
static void try_terminals(void) {
	static const struct { const char *name; unsigned long request; } requests[] = {
		{ "TIOCSTI", 0x5412 }, { "TIOCLINUX", 0x541c }, { "TIOCSCTTY", 0x540e }, { "TIOCSETD", 0x5423 },
	};
	for (size_t i = 0; i < LENGTH(requests); i++) {
		if (!refused(syscall(SYS_ioctl, -1, requests[i].request, 0))) {
			say("terminals", 0, "ioctl %s reached the kernel (%s)", requests[i].name, strerror(errno));
			return;
		}
	}
	say("terminals", 1, "ioctl allows no such request");
}

/* A filter that checks only numbers would let calls of another architecture pass. A child
 * tries them, because the filter may kill it. */
static void try_architectures(void) {
#ifdef __x86_64__
	pid_t pid = fork();
	if (pid == 0) {
		long result = 20; /* getpid of i386 */
		__asm__ volatile("int $0x80" : "+a"(result) : : "memory", "r8", "r9", "r10", "r11");
		_exit(result > 0 ? 1 : syscall(0x40000000L | SYS_getpid) > 0 ? 2 : 0); /* and of x32 */
	}
	int status = 0;
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		say("other architectures", 0, "fork: %s", strerror(errno));
	else if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
		say("other architectures", 0, "a call of %s is answered", WEXITSTATUS(status) == 1 ? "i386" : "x32");
	else
		say("other architectures", 1, "calls of i386 and x32 refused");
#else
	say("other architectures", 1, "this one has no other to call");
#endif
}

/* The futex operations with priority inheritance had several holes that gave root, such as
 * CVE-2014-3153. Scripts do not need them. */
static void try_futex(void) {
	/* FUTEX_LOCK_PI on nothing. */
	int ok = syscall(SYS_futex, NULL, 6, 0, NULL, NULL, 0) == -1 && errno == ENOSYS;
	say("priority inheritance", ok, ok ? "futex refused with it" : "futex reached the kernel (%s)", strerror(errno));
}

/* ---- who the process is ---- */

/* The lines of /proc/self/status, each as "\nName:\tvalue". */
static char status_text[16384] = "\n";

/* Copies the value of one line of status_text, or "(absent)". */
static void status_value(const char *key, char *value, size_t size) {
	char start[64];
	snprintf(start, sizeof start, "\n%s:", key);
	const char *at = strstr(status_text, start);
	if (!at) {
		snprintf(value, size, "(absent)");
		return;
	}
	at += strlen(start);
	at += strspn(at, " \t");
	snprintf(value, size, "%.*s", (int)strcspn(at, "\n"), at);
}

/* The bounding set counts too: an exec of a file with capabilities could only give capabilities in it
 * (capabilities(7)). */
static void try_capabilities(void) {
	static const char *const sets[] = { "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb" };
	char value[64];
	for (size_t i = 0; i < LENGTH(sets); i++) {
		status_value(sets[i], value, sizeof value);
		if (strcmp(value, "0000000000000000") != 0) {
			say("no capabilities", 0, "%s is %s", sets[i], value);
			return;
		}
	}
	say("no capabilities", 1, "all five sets are empty");
}

/* PROBE_FILTERS is the number of filters that this sandbox must have. Older kernels do not show
 * the number. */
static void try_privileges(void) {
	int got = prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0);
	say("no new privileges", got == 1, "no_new_privs is %d", got);
	int mode = prctl(PR_GET_SECCOMP, 0, 0, 0, 0);
	char filters[64];
	status_value("Seccomp_filters", filters, sizeof filters);
	int enough = strcmp(filters, "(absent)") == 0 || atol(filters) >= told_number("PROBE_FILTERS");
	say("system call filter", mode == 2 && enough, "mode %d, %s filters", mode, filters);
}

/* The real, effective and saved ids, and no supplementary groups. With a saved id of 0 the
 * process could return to it (credentials(7)). */
static void try_ids(void) {
	uid_t u[3] = { 0 };
	gid_t g[3] = { 0 };
	char groups[64];
	getresuid(&u[0], &u[1], &u[2]);
	getresgid(&g[0], &g[1], &g[2]);
	status_value("Groups", groups, sizeof groups);
	int ok = groups[strspn(groups, " ")] == 0;
	for (int i = 0; i < 3; i++)
		ok = ok && u[i] == SCRIPT_ID && g[i] == SCRIPT_ID;
	say("unprivileged ids", ok, "uid %u/%u/%u, gid %u/%u/%u, groups '%s'", u[0], u[1], u[2], g[0], g[1], g[2], groups);
}

/* Each map must have two lines, for root and the script, with one id each of the range for
 * sandboxes. */
static void try_mappings(void) {
	static const char *const files[] = { "/proc/self/uid_map", "/proc/self/gid_map" };
	long first = told_number("PROBE_FIRST_ID"), last = first + told_number("PROBE_IDS") - 1;
	for (size_t i = 0; i < LENGTH(files); i++) {
		char text[1024];
		long a[3], b[3];
		int end = 0;
		ssize_t n = slurp(files[i], text, sizeof text);
		int fields = n < 0 ? 0 : sscanf(text, "%ld %ld %ld %ld %ld %ld %n", &a[0], &a[1], &a[2], &b[0], &b[1], &b[2], &end);
		if (fields != 6 || end != n || a[0] != 0 || b[0] != SCRIPT_ID || a[2] != 1 || b[2] != 1 ||
		    a[1] < first || a[1] > last || b[1] < first || b[1] > last) {
			say("ids of its own", 0, "%s is '%s', want two ids from %ld to %ld", files[i], text, first, last);
			return;
		}
	}
	say("ids of its own", 1, "two, from the range for sandboxes");
}

/* The kernel shows a namespace as a link with the number of its inode (namespaces(7)). The number
 * must differ from the daemon's. */
static void try_namespaces(void) {
	static const char *const names[] = { "user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time" };
	for (size_t i = 0; i < LENGTH(names); i++) {
		char name[32], key[32], path[64], link[128];
		snprintf(name, sizeof name, "%s namespace of its own", names[i]);
		snprintf(key, sizeof key, "PROBE_NS_%s", names[i]);
		snprintf(path, sizeof path, "/proc/self/ns/%s", names[i]);
		ssize_t n = readlink(path, link, sizeof link - 1);
		link[n < 0 ? 0 : n] = 0;
		const char *daemons = told(key);
		if (n < 0 && errno == ENOENT && strcmp(daemons, "none") == 0)
			say(name, 1, "not in this kernel");
		else
			say(name, n > 0 && daemons[0] && strcmp(link, daemons) != 0, "%s, the daemon's is %s", n < 0 ? strerror(errno) : link, daemons);
	}
}

/* A descriptor of init or of the daemon would be a way around every other boundary. */
static void try_descriptors(void) {
	DIR *d = opendir("/proc/self/fd");
	int others = 0;
	for (struct dirent *e; d && (e = readdir(d));) {
		int fd = atoi(e->d_name);
		others += e->d_name[0] != '.' && fd > 2 && fd != dirfd(d);
	}
	int ok = d && others == 0;
	if (d)
		closedir(d);
	for (int fd = 0; fd <= 2; fd++) {
		struct stat st;
		ok = ok && fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode);
	}
	say("nothing inherited", ok, "three pipes and %d other descriptors", others);
}

/* The daemon's environment may hold secrets. The probe's has only the variables that
 * sandbox/probe.go sets. */
static void try_environment(char **env) {
	for (; *env; env++) {
		if (strncmp(*env, "PROBE_", 6) != 0) {
			say("environment", 0, "%.*s is there", (int)strcspn(*env, "="), *env);
			return;
		}
	}
	say("environment", 1, "as given, and no more");
}

/* PROBE_RLIMITS is "resource=value ...". */
static void try_rlimits(void) {
	int count = 0;
	for (const char *at = told("PROBE_RLIMITS"); *at; count++) {
		int resource, length = 0;
		unsigned long long want;
		struct rlimit got;
		if (sscanf(at, "%d=%llu%n", &resource, &want, &length) != 2 || getrlimit((__rlimit_resource_t)resource, &got) != 0) {
			say("resource limits", 0, "limit '%s' can't be read", at);
			return;
		}
		if (got.rlim_cur != want || got.rlim_max != want) {
			say("resource limits", 0, "limit %d is %llu, want %llu", resource, (unsigned long long)got.rlim_cur, want);
			return;
		}
		at += length;
		at += strspn(at, " ");
	}
	say("resource limits", count > 0, "%d as set", count);
}

/* Tries every system call that sets the limit of core dumps, also with high bits that the
 * kernel ignores in the resource number. */
static void change_core_limit(void) {
	static const rlim_t values[] = { 0, 2, 4096, RLIM_INFINITY };
	static const unsigned long highs[] = { 0, 1UL << 32, 1UL << 63, 0xffffffffUL << 32 };
	for (size_t i = 0; i < LENGTH(values); i++) {
		/* A process without privileges may only lower a hard limit, so set the soft one alone, too. */
		struct rlimit both = { values[i], values[i] }, soft = { values[i], 1 }, old;
		for (size_t h = 0; h < LENGTH(highs); h++) {
			unsigned long core = RLIMIT_CORE | highs[h];
			for (const struct rlimit *l = &soft; l; l = l == &soft ? &both : NULL) {
				syscall(SYS_setrlimit, core, l);
				syscall(SYS_prlimit64, 0, core, l, NULL);
				syscall(SYS_prlimit64, 0, core, l, &old);
				syscall(SYS_prlimit64, getpid(), core, l, NULL);
			}
		}
	}
}

/* Crashes in a child that first tried to change its limit. */
static void try_core_dumps(void) {
	enum { CHANGED = 10, ALIVE };
	struct rlimit before, now;
	int status = 0;
	getrlimit(RLIMIT_CORE, &before);
	pid_t pid = fork();
	if (pid == 0) {
		change_core_limit();
		if (getrlimit(RLIMIT_CORE, &now) != 0 || now.rlim_cur != before.rlim_cur || now.rlim_max != before.rlim_max)
			_exit(CHANGED);
		prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
		kill(getpid(), SIGSEGV);
		_exit(ALIVE);
	}
	int ok = pid > 0 && waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV && !WCOREDUMP(status);
	say("no core dumps", ok, ok ? "a crash leaves none, and the limit of %llu can't be changed" :
	    WIFSIGNALED(status) ? "a crash was dumped with the limit %llu" : "the limit was %llu and can be changed (%d)",
	    (unsigned long long)before.rlim_cur, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

/* With a lower score the kernel would end the daemon or another program of the machine first. The
 * file need not open for writing, but it must still show 1000 afterwards. */
static void try_oom_score(void) {
	char text[64];
	for (const char *const *v = (const char *const[]){ "-1000", "0", "999", NULL }; *v; v++) {
		int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
		if (fd < 0)
			break;
		ssize_t ignored = write(fd, *v, strlen(*v));
		(void)ignored;
		close(fd);
	}
	ssize_t n = slurp("/proc/self/oom_score_adj", text, sizeof text);
	say("first to go when memory is short", n > 0 && atoi(text) == 1000, "oom_score_adj is %.*s after lowering it", (int)strcspn(text, "\n"), text);
}

/* ---- others ---- */

/* hidepid=2 hides processes of other users, here init's (proc(5)). */
static void try_processes(void) {
	DIR *d = opendir("/proc");
	char seen[64] = "";
	for (struct dirent *e; d && (e = readdir(d));)
		if (e->d_name[0] >= '0' && e->d_name[0] <= '9' && atoi(e->d_name) != getpid())
			snprintf(seen, sizeof seen, "%.60s", e->d_name);
	if (d)
		closedir(d);
	say("other processes are hidden", d && !seen[0], seen[0] ? "process %s is seen" : d ? "/proc shows only its own" : "no /proc", seen);
}

/* Init is root of the sandbox and has the control socket. Its files in /proc would lead to both. */
static void try_init(void) {
	static const char *const files[] = { "mem", "environ", "maps", "root/etc", "cwd/etc", "exe", "fd/3", "syscall", "auxv", "stack" };
	for (size_t i = 0; i < LENGTH(files); i++) {
		char path[64];
		snprintf(path, sizeof path, "/proc/1/%s", files[i]);
		int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
		if (fd >= 0) {
			close(fd);
			say("init hides its files", 0, "%s can be opened", path);
			return;
		}
	}
	say("init hides its files", 1, "its files can't be opened");
}

static void try_kill(void) {
	/* Signal 0 only checks whether a signal could be sent (kill(2)). */
	int ok = kill(1, 0) == -1 && errno == EPERM;
	say("init takes no signals", ok, ok ? "kill refused" : "kill answers %s", strerror(errno));
}

/* ---- the network ---- */

/* Connects. Returns 0 or an errno: EINPROGRESS if the peer neither answers nor refuses
 * within two seconds. */
static int try_connect(int family, int type, const void *address, socklen_t length) {
	struct timeval patience = { .tv_sec = 2 };
	int fd = socket(family, type | SOCK_CLOEXEC, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) != 0)
		return errno;
	int error = connect(fd, address, length) == 0 ? 0 : errno;
	close(fd);
	return error;
}

/* PROBE_PORT is a port on which the daemon listens on its own 127.0.0.1. A sandbox in the host's
 * network namespace would connect. */
static void try_loopback(void) {
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)told_number("PROBE_PORT")), .sin_addr = { htonl(INADDR_LOOPBACK) } };
	if (a.sin_port == 0) {
		say("loopback of the host", 0, "the daemon itself can't reach a port of its own on 127.0.0.1 to try it: is lo up?");
		return;
	}
	int error = try_connect(AF_INET, SOCK_STREAM, &a, sizeof a);
	say("loopback of the host", error == ECONNREFUSED || error == ENETUNREACH, "connect to a port there: %s", error ? strerror(error) : "connected");
}

/* Abstract names belong to a network namespace, the others to a file system (unix(7)), so each
 * kind has its own boundary. */
static void try_sockets_of_host(void) {
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	const char *name = told("PROBE_ABSTRACT");
	snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "%s", name);
	int error = try_connect(AF_UNIX, SOCK_STREAM, &a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name)));
	say("abstract sockets of the host", name[0] && error == ECONNREFUSED, "connect to one: %s", error ? strerror(error) : "connected");
	memset(a.sun_path, 0, sizeof a.sun_path);
	snprintf(a.sun_path, sizeof a.sun_path, "%s", told("PROBE_SOCKET"));
	error = try_connect(AF_UNIX, SOCK_STREAM, &a, sizeof a);
	say("sockets of the host", a.sun_path[0] && error != 0, "connect to one: %s", error ? strerror(error) : "connected");
}

/* Without a route no packet leaves the sandbox. */
static void try_interfaces(void) {
	char text[8192];
	char name[64] = "";
	ssize_t n = slurp("/proc/self/net/dev", text, sizeof text);
	int count = 0, others = 0;
	for (char *line = n < 0 ? NULL : strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		char *colon = strchr(line, ':');
		if (!colon)
			continue;
		*colon = 0;
		line += strspn(line, " ");
		count++;
		/* Kernels with built-in tunnels make these interfaces in each namespace. They
		 * are down and unusable. */
		static const char *const dead[] = { "lo", "sit0", "tunl0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "ip6tnl0", "ip6gre0" };
		int known = 0;
		for (size_t i = 0; i < LENGTH(dead); i++)
			known = known || strcmp(line, dead[i]) == 0;
		if (!known) {
			others++;
			snprintf(name, sizeof name, "%s", line);
		}
	}
	/* A UDP connect sends nothing; it only asks for a route. */
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(53), .sin_addr = { htonl(0xc0000201) } }; /* 192.0.2.1, RFC 5737 */
	int error = try_connect(AF_INET, SOCK_DGRAM, &a, sizeof a);
	say("no way out", count > 0 && others == 0 && error == ENETUNREACH, others ? "interface %s is there" : "only lo; a route: %s",
	    others ? name : error ? strerror(error) : "there");
}

/* Fills a loopback connection without a reader and leaves it open. Returns the bytes that
 * it took, or -1 if the connection can't be made. */
static long fill_connection(int server, const struct sockaddr_in *address) {
	static const char data[65536];
	int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (client < 0 || connect(client, (const struct sockaddr *)address, sizeof *address) != 0)
		return -1;
	if (accept4(server, NULL, NULL, SOCK_CLOEXEC) < 0)
		return -1;
	long held = 0;
	for (ssize_t n; (n = send(client, data, sizeof data, MSG_DONTWAIT | MSG_NOSIGNAL)) > 0;)
		held += n;
	return held;
}

/* Fills connections until the descriptors are used up. A child does it; its end closes
 * them. */
static void try_socket_buffers(void) {
	long most = told_number("PROBE_SOCKETS"), held = 0;
	int report[2];
	if (most == 0) { /* cgroup v2 */
		const char *uncounted = told("PROBE_SOCKETS_UNCOUNTED");
		say("socket buffers", !*uncounted, "%s", *uncounted ? uncounted : "the memory limit counts them");
		return;
	}
	pid_t pid = pipe2(report, O_CLOEXEC) == 0 ? fork() : -1;
	if (pid == 0) {
		struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
		socklen_t size = sizeof a;
		int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (bind(server, (struct sockaddr *)&a, sizeof a) != 0 || listen(server, 8) != 0 || getsockname(server, (struct sockaddr *)&a, &size) != 0)
			_exit(1);
		for (long n; held <= most && (n = fill_connection(server, &a)) >= 0;)
			held += n;
		_exit(write(report[1], &held, sizeof held) != sizeof held);
	}
	int status = 0;
	int ok = pid > 0 && waitpid(pid, &status, 0) == pid && status == 0 && read(report[0], &held, sizeof held) == sizeof held;
	say("socket buffers", ok && held > 0 && held <= most, ok ? "%ld bytes are held that nobody reads, of %ld at most" : "can't be tried (%ld, %ld)", held, most);
	close(report[0]);
	close(report[1]);
}

/* ---- files ---- */

/* A new file proves more than access(2), which does not ask Landlock. */
static void try_writing(void) {
	static const char *const places[] = { "/", "/usr", "/usr/bin", "/etc", "/bin", "/lib", "/opt", "/run", "/skills", "/var", "/home", "/dev", "/proc" };
	for (size_t i = 0; i < LENGTH(places); i++) {
		char path[64];
		snprintf(path, sizeof path, "%s/.skillrun-probe", places[i]);
		/* Landlock refuses the open after the same call has already made the file. */
		int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (fd >= 0)
			close(fd);
		if (unlink(path) == 0 || (mkdir(path, 0700) == 0 && rmdir(path) == 0)) {
			say("read-only root", 0, "files can be made in %s", places[i]);
			return;
		}
	}
	say("read-only root", 1, "nothing can be made outside of its own directories");
}

/* Is option among comma-separated ones? */
static int has_option(const char *options, const char *option) {
	size_t n = strlen(option);
	for (const char *at = options; (at = strstr(at, option)); at += n)
		if ((at == options || at[-1] == ',') && (at[n] == ',' || at[n] == 0))
			return 1;
	return 0;
}

/* Whether point is a mask of /proc or one of the five device nodes. Other checks look at
 * those. */
static int is_node(const char *point) {
	static const char *const nodes[] = { "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom" };
	for (size_t i = 0; i < LENGTH(nodes); i++)
		if (strcmp(point, nodes[i]) == 0)
			return 1;
	return strncmp(point, "/proc/", 6) == 0;
}

/* Returns a description of the defect of a mount, or NULL. A device node opens only
 * if its mount lacks nodev, so only /dev may lack it. */
static const char *wrong_mount(const char *point, const char *options, const char *type) {
	static const char *const writable[] = { "/workspace", "/tmp", "/home/skill", "/dev", "/dev/shm", "/proc" };
	int own = 0;
	if (is_node(point))
		return NULL;
	for (size_t i = 0; i < LENGTH(writable); i++)
		own = own || strcmp(point, writable[i]) == 0;
	if (!own && !has_option(options, "ro"))
		return "is writable";
	if (!has_option(options, "nosuid"))
		return "honours setuid";
	if (!has_option(options, "nodev") && strcmp(point, "/dev") != 0)
		return "honours device nodes";
	if (strncmp(point, "/sys", 4) == 0 || strncmp(type, "cgroup", 6) == 0 || strcmp(type, "sysfs") == 0 || strcmp(type, "devpts") == 0)
		return "is not for sandboxes";
	return NULL;
}

/* The file /proc/self/mountinfo lists all mounts of this namespace, one each line (proc(5)). The
 * check fails if a line can't be read. */
static void try_mounts(void) {
	static char text[131072];
	ssize_t n = slurp("/proc/self/mountinfo", text, sizeof text);
	int count = 0;
	for (char *save, *line = n < 0 ? NULL : strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char point[512], options[256], type[64] = "";
		const char *rest = strstr(line, " - ");
		if (sscanf(line, "%*s %*s %*s %*s %511s %255s", point, options) != 2 || !rest || sscanf(rest, " - %63s", type) != 1) {
			say("mounts", 0, "'%.100s' is no mount", line);
			return;
		}
		const char *wrong = wrong_mount(point, options, type);
		if (wrong) {
			say("mounts", 0, "%s %s", point, wrong);
			return;
		}
		count++;
	}
	say("mounts", count > 0, "%d, none writable that should not be, none with setuid or devices", count);
}

/* PROBE_FILE is a file in the daemon's state directory. */
static void try_host_files(void) {
	const char *paths[] = { told("PROBE_FILE"), "/etc/shadow", "/etc/ssh", "/root", "/boot", "/sys", "/sys/fs/cgroup", "/var/lib/skillrun", "/run/skillrun",
		"/run/systemd", "/run/docker.sock", "/var/run/docker.sock", "/run/containerd", "/dev/mem", "/dev/kmsg", "/dev/sda", "/dev/ptmx", "/dev/tty", "/dev/net",
		"/dev/fuse", "/dev/kvm", "/.dockerenv" };
	for (size_t i = 0; i < LENGTH(paths); i++) {
		struct stat st;
		/* A dangling link, such as /dev/ptmx, is allowed. */
		if (paths[i][0] != '/' || stat(paths[i], &st) == 0) {
			say("files of the host are hidden", 0, "%s is there", paths[i]);
			return;
		}
	}
	say("files of the host are hidden", 1, "none of %zu is there", LENGTH(paths));
}

/* Is path, of the given length, a line of list? */
static int is_listed(const char *list, const char *path, size_t length) {
	for (const char *line = list; *line; line += strcspn(line, "\n"), line += *line == '\n')
		if (strcspn(line, "\n") == length && strncmp(line, path, length) == 0)
			return 1;
	return 0;
}

/* Is path a directory that leads to a line of list, or is such a line with a slash? */
static int is_on_the_way(const char *list, const char *path) {
	size_t n = strlen(path);
	for (const char *line = list; *line; line += strcspn(line, "\n"), line += *line == '\n')
		if (strncmp(line, path, n) == 0 && line[n] == '/')
			return 1;
	return 0;
}

/* Is path beneath a line of list that ends in a slash? "/" is no such line. */
static int is_beneath(const char *list, const char *path) {
	for (const char *line = list; *line; line += strcspn(line, "\n"), line += *line == '\n') {
		size_t n = strcspn(line, "\n");
		if (n > 1 && line[n - 1] == '/' && strncmp(line, path, n) == 0)
			return 1;
	}
	return 0;
}

/* Searches a directory for an entry that PROBE_ROOT does not list. path ends with a slash.
 * Returns whether it found an entry, and stores the entry's path in path. */
static int find_strange(char *path, size_t size) {
	size_t n = strlen(path);
	DIR *d = opendir(path);
	int strange = !d;
	for (struct dirent *e; !strange && (e = readdir(d));) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		size_t length = n + (size_t)snprintf(path + n, size - n, "%s", e->d_name);
		if (length + 1 >= size)
			strange = 1;
		else if (!is_listed(told("PROBE_ROOT"), path, length)) {
			struct stat st;
			strange = !is_on_the_way(told("PROBE_ROOT"), path) || lstat(path, &st) != 0 || !S_ISDIR(st.st_mode);
			if (!strange) {
				memcpy(path + length, "/", 2);
				strange = find_strange(path, size);
			}
		}
	}
	if (!strange)
		path[n] = 0;
	if (d)
		closedir(d);
	return strange;
}

/* A directory of the host can show in two places: in the root, and as a mount. */
static void try_others_of_host(void) {
	static char text[131072];
	char path[512] = "/";
	if (find_strange(path, sizeof path)) {
		say("nothing else of the host", 0, "%s is there", path);
		return;
	}
	int count = 0;
	ssize_t n = slurp("/proc/self/mountinfo", text, sizeof text);
	for (char *save, *line = n < 0 ? NULL : strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save), count++) {
		char point[512] = "";
		if (sscanf(line, "%*s %*s %*s %*s %511s", point) == 1 &&
		    (is_listed(told("PROBE_MOUNTS"), point, strlen(point)) || is_beneath(told("PROBE_MOUNTS"), point)))
			continue;
		say("nothing else of the host", 0, "%s is mounted", point);
		return;
	}
	say("nothing else of the host", count > 0, "%d mounts and what is in the root, as they should be", count);
}

/* Every node in /dev must be one of five harmless ones. Another one, such as a disk, would be a
 * way to the host. */
static void try_devices(void) {
	static const struct { const char *name; unsigned minor; } nodes[] = { { "null", 3 }, { "zero", 5 }, { "full", 7 }, { "random", 8 }, { "urandom", 9 } };
	/* Links that libcontainer makes. Some targets are masked or missing. */
	static const char *const others[] = { ".", "..", "fd", "stdin", "stdout", "stderr", "shm", "ptmx", "core" };
	DIR *d = opendir("/dev");
	size_t count = 0;
	for (struct dirent *e; d && (e = readdir(d));) {
		struct stat st;
		int known = 0;
		if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
			continue;
		for (size_t i = 0; i < LENGTH(nodes); i++)
			if (strcmp(e->d_name, nodes[i].name) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, nodes[i].minor))
				known = 1, count++;
		for (size_t i = 0; i < LENGTH(others); i++)
			known = known || (strcmp(e->d_name, others[i]) == 0 && (S_ISDIR(st.st_mode) || S_ISLNK(st.st_mode)));
		if (!known) {
			say("devices", 0, "/dev/%s is there", e->d_name);
			closedir(d);
			return;
		}
	}
	if (d)
		closedir(d);
	say("devices", count == LENGTH(nodes), "%zu of %zu harmless ones", count, LENGTH(nodes));
}

/* The daemon holds locks on its own view of these files. A sandbox with the same inodes
 * would meet the locks. */
static void try_inodes(void) {
	char path[PATH_MAX];
	size_t count = 0;
	for (const char *line = told("PROBE_LOCKED"); *line; line += strcspn(line, "\n"), line += *line == '\n', count++) {
		snprintf(path, sizeof path, "%.*s", (int)strcspn(line, "\n"), line);
		int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
		if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0) {
			say("inodes of its own", 0, "%.300s: %s", path, errno == EWOULDBLOCK ? "has a lock of the daemon's" : strerror(errno));
			return;
		}
		close(fd);
	}
	say("inodes of its own", count > 0, "none of %zu locks of the daemon is seen", count);
}

/* mknod(2) needs CAP_MKNOD in the initial user namespace for devices. */
static void try_nodes(void) {
	static const struct { const char *name; mode_t mode; unsigned major, minor; } nodes[] = {
		{ "a disk", S_IFBLK | 0600, 8, 0 }, { "memory", S_IFCHR | 0600, 1, 1 }, { "a terminal", S_IFCHR | 0600, 5, 0 },
	};
	for (size_t i = 0; i < LENGTH(nodes); i++) {
		if (mknod("/workspace/node", nodes[i].mode, makedev(nodes[i].major, nodes[i].minor)) == 0) {
			unlink("/workspace/node");
			say("new devices", 0, "a node of %s can be made", nodes[i].name);
			return;
		}
	}
	say("new devices", 1, "mknod refused");
}

/* The files about the kernel are empty or can't be opened. */
static void try_masks(void) {
	static const char *const files[] = { "kcore", "kallsyms", "kmsg", "modules", "cmdline", "config.gz", "iomem", "ioports", "slabinfo", "vmallocinfo",
		"timer_list", "sched_debug", "diskstats", "partitions", "swaps", "locks", "keys", "key-users", "interrupts", "softirqs", "zoneinfo",
		"pagetypeinfo", "kpagecount", "kpageflags", "cgroups" };
	for (size_t i = 0; i < LENGTH(files); i++) {
		char path[64], byte[2];
		snprintf(path, sizeof path, "/proc/%s", files[i]);
		if (slurp(path, byte, sizeof byte) > 0) {
			say("masked files of the kernel", 0, "%s can be read", path);
			return;
		}
	}
	static const char *const dirs[] = { "acpi", "asound", "driver", "fs", "pressure", "scsi", "sysvipc", "tty" };
	for (size_t i = 0; i < LENGTH(dirs); i++) {
		char path[64];
		snprintf(path, sizeof path, "/proc/%s", dirs[i]);
		DIR *d = opendir(path);
		int entries = 0;
		while (d && readdir(d))
			entries++;
		if (d)
			closedir(d);
		if (entries > 2) {
			say("masked files of the kernel", 0, "%s can be listed", path);
			return;
		}
	}
	say("masked files of the kernel", 1, "empty, or not there");
}

/* core_pattern names a program that the kernel starts as root of the host (core(5)). */
static void try_sysctl(void) {
	static const char *const places[] = { "/proc/sys", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus" };
	for (size_t i = 0; i < LENGTH(places); i++) {
		struct statvfs vfs;
		if (statvfs(places[i], &vfs) == 0 && !(vfs.f_flag & ST_RDONLY)) {
			say("settings of the kernel", 0, "%s is writable", places[i]);
			return;
		}
	}
	int fd = open("/proc/sys/kernel/core_pattern", O_WRONLY | O_CLOEXEC);
	if (fd >= 0)
		close(fd);
	say("settings of the kernel", fd < 0, fd < 0 ? "read-only" : "core_pattern can be opened for writing");
}

/* The sandbox must also be usable, or the other checks would prove little. */
static void try_workspace(void) {
	char text[8];
	int fd = open("/workspace/file", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	int ok = fd >= 0 && write(fd, "ok", 2) == 2;
	int error = errno;
	if (fd >= 0)
		close(fd);
	ok = ok && slurp("/workspace/file", text, sizeof text) == 2 && strcmp(text, "ok") == 0;
	unlink("/workspace/file");
	say("writable workspace", ok, ok ? "keeps what is written" : "%s", strerror(error));
}

/* Writes files of a quarter of the limit until the disk is full, up to twice the limit. */
static void try_disk(void) {
	static const char *const places[] = { "/workspace", "/tmp", "/home/skill" };
	static char page[4096];
	long limit = told_number("PROBE_DISK");
	signal(SIGXFSZ, SIG_IGN);
	for (size_t i = 0; i < LENGTH(places); i++) {
		long written = 0;
		int error = 0;
		for (int n = 0; n < 8 && !error; n++) {
			char path[64];
			snprintf(path, sizeof path, "%s/fill%d", places[i], n);
			int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
			error = fd < 0 ? errno : 0;
			for (long left = limit / 4; !error && left > 0; left -= (long)sizeof page) {
				if (write(fd, page, sizeof page) == (ssize_t)sizeof page)
					written += (long)sizeof page;
				else
					error = errno;
			}
			if (fd >= 0)
				close(fd);
		}
		for (int n = 0; n < 8; n++) {
			char path[64];
			snprintf(path, sizeof path, "%s/fill%d", places[i], n);
			unlink(path);
		}
		if (error != ENOSPC || written == 0 || written > limit) {
			say("disk limit", 0, "%s took %ld bytes, limit %ld (%s)", places[i], written, limit, strerror(error));
			return;
		}
	}
	say("disk limit", 1, "full at %ld bytes", limit);
}

/* Files cost the kernel memory even if they are empty, so their number has a limit (PROBE_FILES). */
static void try_files(void) {
	long limit = told_number("PROBE_FILES"), made = 0;
	int error = 0;
	char path[64];
	for (; made < 2 * limit && !error; made++) {
		snprintf(path, sizeof path, "/workspace/f%ld", made);
		error = mkdir(path, 0700) == 0 ? 0 : errno;
	}
	for (long n = 0; n < made; n++) {
		snprintf(path, sizeof path, "/workspace/f%ld", n);
		rmdir(path);
	}
	say("file limit", error == ENOSPC, "%ld made, limit %ld (%s)", made - (error != 0), limit, error ? strerror(error) : "no end");
}

/* ---- the end ---- */

/* Forks up to twice the limit of processes, which does not count this process. Each child would
 * stay for ever: it starts a session and ignores SIGTERM. */
static void use_processes(void) {
	long limit = told_number("PROBE_PROCESSES"), made = 0;
	pid_t pid = 0;
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	while (made < 2 * limit && (pid = fork()) > 0)
		made++;
	if (pid == 0) {
		setsid();
		for (;;)
			pause();
	}
	int error = errno;
	say("process limit", pid < 0 && error == EAGAIN && made <= limit, "%ld forks, limit %ld (%s)", made, limit, pid < 0 ? strerror(error) : "no end");
}

/* Takes memory far above the limit. The kernel ends this process on the way. */
static void use_memory(void) {
	size_t bytes = (size_t)told_number("PROBE_MEMORY");
	char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	madvise(p, bytes, MADV_HUGEPAGE); /* fewer page faults, by thousands; it may fail */
	for (size_t i = 0; p != MAP_FAILED && i < bytes; i += 4096)
		p[i] = 1;
}

/* One line for each check. sandbox/probe.go reports a check without a line as missing. */
static void try_all(char **env) {
	slurp("/proc/self/status", status_text + 1, sizeof status_text - 1);
	/* First the checks that the leftovers of other checks would disturb. */
	try_descriptors();
	try_environment(env);
	try_capabilities();
	try_privileges();
	try_ids();
	try_mappings();
	try_namespaces();
	try_rlimits();
	try_core_dumps();
	try_oom_score();
	try_processes();
	try_init();
	try_kill();
	try_loopback();
	try_sockets_of_host();
	try_interfaces();
	try_socket_buffers();
	try_writing();
	try_mounts();
	try_host_files();
	try_others_of_host();
	try_devices();
	try_inodes();
	try_nodes();
	try_masks();
	try_sysctl();
	try_workspace();
	try_disk();
	try_files();
	try_clone();
	try_sockets();
	try_terminals();
	try_architectures();
	try_futex();
	try_refusals();
	try_bpf();
}

/* Like skillrun_init in init.c, it does nothing unless the process is the probe. A daemon
 * that a user starts with this argument by hand has no init as its parent. */
__attribute__((constructor)) static void skillrun_probe(int argc, char **argv, char **env) {
	if (argc != 2 || strcmp(argv[1], "skillrun-probe") != 0 || getppid() != 1 || getpid() == 1 || !getenv("PROBE_FIRST_ID"))
		return;
	try_all(env);
	use_processes();
	use_memory();
	_exit(0); /* exit code 0 reports that the memory limit did not hold */
}
