/* The program of a Python zygote. /proc/self/exe of each of its forked children is the
 * file that the zygote was executed from, by whichever mount: the one file that scripts of
 * different sandboxes would share, and could lock and watch if they could read it. So the
 * zygote is executed from a copy that its children may execute and not read. It lies in a
 * tmpfs that no sandbox has, at the path that the program has in a sandbox: the path that
 * the kernel names in /proc/self/exe. */
#define _GNU_SOURCE
#include "mother.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

/* A tmpfs (mother.go). */
static const char copies[] = "/workspace";

/* Opens what execvp(3) would execute. */
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

static int make_directories(char *path) {
	for (char *at = path + sizeof copies; (at = strchr(at, '/')); at++) {
		*at = 0;
		int made = mkdir(path, 0755);
		*at = '/';
		if (made != 0 && errno != EEXIST)
			return -1;
	}
	return 0;
}

static int copy_bytes(int from, int to, off_t size) {
	while (size > 0) {
		ssize_t n = sendfile(to, from, NULL, (size_t)size);
		if (n <= 0)
			return -1;
		size -= n;
	}
	return 0;
}

/* Copies the program and leaves the copy's path in path. Each start copies again: the
 * host's program may be another one now. */
int program_copy(const char *name, const char *search, char *path, size_t size) {
	char link[64], real[PATH_MAX], fresh[PATH_MAX];
	struct stat s;
	int from = open_by_path(name, search);
	if (from < 0 || fstat(from, &s) != 0 || !S_ISREG(s.st_mode))
		return -1;
	snprintf(link, sizeof link, "/proc/self/fd/%d", from);
	ssize_t n = readlink(link, real, sizeof real - 1);
	if (n <= 0)
		return -1;
	real[n] = 0;
	int length = snprintf(path, size, "%s%s", copies, real);
	int other = snprintf(fresh, sizeof fresh, "%s/%d", copies, (int)getpid());
	if (length < 0 || (size_t)length >= size || other < 0 || (size_t)other >= sizeof fresh || make_directories(path) != 0)
		return -1;
	int to = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0500);
	if (to < 0 || copy_bytes(from, to, s.st_size) != 0 || fchmod(to, 0511) != 0 || close(to) != 0)
		return -1;
	close(from);
	return rename(fresh, path);
}
