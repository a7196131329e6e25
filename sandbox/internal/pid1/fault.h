/* Only a build with the tag skillrun_faults includes this file, before every C source.
 * Calls that install a layer of a sandbox go through fault.c, which skips the call if the
 * layer is off. The sources are the same as in a release. */
#ifndef SKILLRUN_FAULT_H
#define SKILLRUN_FAULT_H

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

/* Each has the contract of the call that it replaces. If its layer is off, it reports success
 * without the effect. */
int faulty_ioctl(int fd, unsigned long request, ...);
int faulty_mount(const char *source, const char *target, const char *type, unsigned long flags, const void *options);
int faulty_open(const char *path, int flags, ...);
int faulty_prctl(int option, ...);
int faulty_setresgid(gid_t real, gid_t effective, gid_t saved);
int faulty_setresuid(uid_t real, uid_t effective, uid_t saved);
int faulty_setrlimit(int resource, const struct rlimit *limit);
long faulty_syscall(long number, ...);
mode_t faulty_umask(mode_t mask);
int faulty_unshare(int flags);
ssize_t faulty_write(int fd, const void *buffer, size_t length);

#define ioctl(...) faulty_ioctl(__VA_ARGS__)
#define mount(...) faulty_mount(__VA_ARGS__)
#define open(...) faulty_open(__VA_ARGS__)
#define prctl(...) faulty_prctl(__VA_ARGS__)
#define setresgid(...) faulty_setresgid(__VA_ARGS__)
#define setresuid(...) faulty_setresuid(__VA_ARGS__)
#define setrlimit(...) faulty_setrlimit(__VA_ARGS__)
#define syscall(...) faulty_syscall(__VA_ARGS__)
#define umask(...) faulty_umask(__VA_ARGS__)
#define unshare(...) faulty_unshare(__VA_ARGS__)
#define write(...) faulty_write(__VA_ARGS__)

#endif
