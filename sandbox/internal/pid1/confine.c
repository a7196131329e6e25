/* The rights that an init, the zygote and their children give up for good: capabilities, system calls,
 * resources, and the files in /proc that can be written. */
#define _GNU_SOURCE
#include "confine.h"
#include "wire.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/mount.h>
#include <linux/seccomp.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* With these init ends its children, and a child of init becomes the script: it drops the
 * bounding set and changes its ids. */
static const uint64_t init_capabilities = 1ULL << CAP_KILL | 1ULL << CAP_SETGID | 1ULL << CAP_SETPCAP | 1ULL << CAP_SETUID;

/* Loads a filter for the calling process, which has one thread, and its later children. Filters
 * add up: the strictest answer counts (seccomp(2)). Returns 0, or -1 and errno. */
int filter_load(const struct sock_fprog *filter) {
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, filter);
}

/* Sets soft and hard limits to the same value. Only a process with CAP_SYS_RESOURCE in the
 * initial user namespace could raise a hard limit again (getrlimit(2)). Children inherit the
 * limits. */
void set_limits(const struct limit *limits, uint32_t count) {
	for (uint32_t i = 0; i < count; i++) {
		struct rlimit both = { limits[i].value, limits[i].value };
		if (setrlimit((int)limits[i].resource, &both) != 0)
			send_failed(STAGE_LIMITS, errno);
	}
}

/* Gives up every capability that is not in permitted. effective is a part of permitted. */
int set_capabilities(uint64_t permitted, uint64_t effective) {
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];
	memset(data, 0, sizeof data);
	for (int i = 0; i < 2; i++) {
		data[i].permitted = (uint32_t)(permitted >> (32 * i));
		data[i].effective = (uint32_t)(effective >> (32 * i));
	}
	return (int)syscall(SYS_capset, &header, data);
}

/* Keeps the capabilities with which an init starts, in the permitted, effective and bounding
 * sets. */
void keep_init_capabilities(void) {
	uint64_t keep = init_capabilities | 1ULL << CAP_SYS_ADMIN;
	for (int cap = 0; cap <= 63; cap++) {
		if (keep >> cap & 1 || prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == 0)
			continue;
		if (errno == EINVAL)
			break; /* this kernel has no more */
		send_failed(STAGE_CAPABILITIES, errno);
	}
	if (set_capabilities(keep, keep) != 0)
		send_failed(STAGE_CAPABILITIES, errno);
}

/* From here on no file in /proc can be written. That covers /proc/sys and the
 * oom_score_adj of each process. */
void make_proc_read_only(void) {
	struct mount_attr readonly = { .attr_set = MOUNT_ATTR_RDONLY };
	if (syscall(SYS_mount_setattr, AT_FDCWD, "/proc", 0, &readonly, sizeof readonly) != 0)
		send_failed(STAGE_MOUNTS, errno);
}

/* Init calls this after the execution's mounts are attached. From then on no process of the
 * sandbox can mount. */
void give_up_mounting(void) {
	if (prctl(PR_CAPBSET_DROP, CAP_SYS_ADMIN, 0, 0, 0) != 0)
		send_failed(STAGE_CAPABILITIES, errno);
	if (set_capabilities(init_capabilities, init_capabilities) != 0)
		send_failed(STAGE_CAPABILITIES, errno);
}
