/* Every C source of the harness includes this file first. fake.c answers the system calls
 * of init, the zygote and their children from the bytes of a fuzz test. The sources of
 * init and the zygote are the same as in a release. */
#ifndef SKILLRUN_FAKE_H
#define SKILLRUN_FAKE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int fake_call(void); /* 0, or -1 and errno */
int fake_clock(clockid_t clock, struct timespec *t);
int fake_close(int fd);
int fake_execve(const char *path, char *const *argv, char *const *env);
_Noreturn void fake_exit(int status);
int fake_fd(void);
pid_t fake_fork(void);
void *fake_mmap(size_t length);
int fake_pipe(int *fds);
int fake_poll(struct pollfd *fds, nfds_t count);
int fake_prctl(int option, ...);
ssize_t fake_read(int fd, void *buffer, size_t length);
ssize_t fake_recvmsg(struct msghdr *m);
ssize_t fake_send(const void *message, size_t length);
ssize_t fake_sendmsg(const struct msghdr *m);
int fake_stat(const char *path, struct stat *s);
long fake_syscall(long number, ...);
pid_t fake_waitpid(int *status, int options);
ssize_t fake_write(int fd, const void *buffer, size_t length);

#define _exit(status) fake_exit(status)
#define access(path, mode) fake_call()
#define chdir(path) fake_call()
#define clock_gettime(clock, t) fake_clock(clock, t)
#define close(fd) fake_close(fd)
#define dup2(from, to) (fake_call() ? -1 : (to))
#define dup3(from, to, flags) (fake_call() ? -1 : (to))
#define execv(path, argv) fake_execve(path, argv, environ)
#define execve(path, argv, env) fake_execve(path, argv, env)
#define execvp(path, argv) fake_execve(path, argv, environ)
#define fchdir(fd) fake_call()
#define fcntl(fd, command, ...) ((command) == F_DUPFD_CLOEXEC ? fake_fd() : fake_call())
#define fork() fake_fork()
#define getpid() 1
#define ioctl(...) fake_call()
#define kill(pid, signal) fake_call()
#define lseek(...) fake_call()
#define lstat(path, s) fake_stat(path, s)
#define memfd_create(name, flags) fake_fd()
#define mmap(address, length, ...) fake_mmap(length)
#define mount(...) fake_call()
#define open(...) fake_fd()
#define pipe2(fds, flags) fake_pipe(fds)
#define poll(fds, count, timeout) fake_poll(fds, count)
#define prctl(...) fake_prctl(__VA_ARGS__)
#define read(fd, buffer, length) fake_read(fd, buffer, length)
#define recvmsg(fd, m, flags) fake_recvmsg(m)
#define send(fd, message, length, flags) fake_send(message, length)
#define sendmsg(fd, m, flags) fake_sendmsg(m)
#define setgroups(...) fake_call()
#define setresgid(...) fake_call()
#define setresuid(...) fake_call()
#define setrlimit(...) fake_call()
#define setsid() 1
#define signal(...) ((void)0)
#define signalfd(...) fake_fd()
#define sigprocmask(...) ((void)0)
#define socket(...) fake_fd()
#define stat(path, s) fake_stat(path, s)
#define syscall(...) fake_syscall(__VA_ARGS__)
#define umask(mask) ((void)0)
#define umount2(...) fake_call()
#define unshare(flags) fake_call()
#define waitpid(pid, status, options) fake_waitpid(status, options)
#define write(fd, buffer, length) fake_write(fd, buffer, length)

/* The entry points, which return only by fake_exit, and the reset of init's state. */
_Noreturn void harness_init(void);
void harness_reset_init(void);
_Noreturn void harness_zygote(void);

#endif
