/* The program of a Python zygote. /proc/self/exe of each forked child is the file that the
 * zygote was executed from. Without a copy, scripts of different sandboxes would share
 * that file: if they could read it, they could lock it and watch it. So the zygote is
 * executed from a copy that its children may execute but not read. The copy is in a tmpfs
 * that no sandbox has. In the mount namespace of the zygote it is mounted over the original
 * program, because the kernel shows that path in the link /proc/self/exe. */
#define _GNU_SOURCE
#include "python_program.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

/* A tmpfs (sandbox/internal/zygote/container.go). */
static const char copies[] = "/workspace";

/* Opens the file that execvp(3) would execute. */
static int open_by_path(const char *name, const char *path) {
	if (strchr(name, '/'))
		return open(name, O_RDONLY | O_CLOEXEC);
	for (const char *end; path; path = *end ? end + 1 : NULL) {
		char full[PATH_MAX];
		end = strchrnul(path, ':');
		int n = snprintf(full, sizeof full, "%.*s/%s", (int)(end - path), path, name);
		if (end == path || n < 0 || (size_t)n >= sizeof full || access(full, X_OK) != 0)
			continue;
		return open(full, O_RDONLY | O_CLOEXEC);
	}
	errno = ENOENT;
	return -1;
}

/* Copies a file of size bytes. The filter refuses sendfile. */
static int copy_bytes(int from, int to, off_t size) {
	static char part[1 << 16];
	ssize_t n;
	while (size > 0 && (n = read(from, part, sizeof part)) > 0 && write(to, part, (size_t)n) == n)
		size -= n;
	return size == 0 ? 0 : -1;
}

/* Copies the program, unless an earlier zygote did. The copy's name identifies the original
 * file, since an update may replace the host's program. A copy is never replaced: the kernel
 * would show the program of a running zygote as "(deleted)" in /proc/self/exe. */
static int copy_program(int from, const struct stat *s, char *copy, size_t size) {
	char fresh[64];
	snprintf(fresh, sizeof fresh, "%s/new-%d", copies, (int)getpid());
	snprintf(copy, size, "%s/%ju-%ju-%jd.%09ld", copies, (uintmax_t)s->st_dev, (uintmax_t)s->st_ino,
		(intmax_t)s->st_ctim.tv_sec, s->st_ctim.tv_nsec);
	if (access(copy, F_OK) == 0)
		return 0;
	unlink(fresh); /* left by a start that failed */
	int to = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0500);
	if (to < 0 || copy_bytes(from, to, s->st_size) != 0 || fchmod(to, 0511) != 0 || close(to) != 0)
		return -1;
	if (link(fresh, copy) != 0 && errno != EEXIST)
		return -1;
	return unlink(fresh);
}

/* Mounts a copy of the program over the program and stores the program's path in path.
 * The caller is in a new mount namespace and has the right to mount in it. */
int program_cover(const char *name, const char *search, char *path, size_t size) {
	char link[64], copy[128];
	struct stat s;
	int from = open_by_path(name, search);
	if (from < 0 || fstat(from, &s) != 0 || !S_ISREG(s.st_mode))
		return -1;
	snprintf(link, sizeof link, "/proc/self/fd/%d", from);
	ssize_t n = readlink(link, path, size - 1);
	if (n <= 0)
		return -1;
	path[n] = 0;
	int failed = copy_program(from, &s, copy, sizeof copy);
	close(from);
	return failed ? -1 : mount(copy, path, NULL, MS_BIND, NULL);
}
