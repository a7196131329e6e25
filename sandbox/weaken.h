/* Included before every C source of a build with the tag skillrun_weaken, and of no
 * other: what installs a layer of a sandbox goes through weaken.c, which does not do
 * it if that layer is off. The sources themselves are what ships. */
#ifndef SKILLRUN_WEAKEN_H
#define SKILLRUN_WEAKEN_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

int weak_ioctl(int fd, unsigned long request, ...);
int weak_mount(const char *source, const char *target, const char *type, unsigned long flags, const void *options);
int weak_open(const char *path, int flags, ...);
int weak_prctl(int option, ...);
int weak_setresgid(gid_t real, gid_t effective, gid_t saved);
int weak_setresuid(uid_t real, uid_t effective, uid_t saved);
int weak_setrlimit(int resource, const struct rlimit *limit);
long weak_syscall(long number, ...);
mode_t weak_umask(mode_t mask);
int weak_unshare(int flags);
ssize_t weak_write(int fd, const void *buffer, size_t length);

#define ioctl(...) weak_ioctl(__VA_ARGS__)
#define mount(...) weak_mount(__VA_ARGS__)
#define open(...) weak_open(__VA_ARGS__)
#define prctl(...) weak_prctl(__VA_ARGS__)
#define setresgid(...) weak_setresgid(__VA_ARGS__)
#define setresuid(...) weak_setresuid(__VA_ARGS__)
#define setrlimit(...) weak_setrlimit(__VA_ARGS__)
#define syscall(...) weak_syscall(__VA_ARGS__)
#define umask(...) weak_umask(__VA_ARGS__)
#define unshare(...) weak_unshare(__VA_ARGS__)
#define write(...) weak_write(__VA_ARGS__)

#endif
