/* The frames between the daemon and init, and how init reads and writes them. wire.go has
 * the daemon's half and takes the numbers from here. */
#ifndef SKILLRUN_WIRE_H
#define SKILLRUN_WIRE_H

#include <stddef.h>
#include <stdint.h>

enum {
	CONTROL_FD = 3,         /* init's end of the socket to the daemon, and the zygote's end */
	SCRIPT_ID = 1000,       /* uid and gid of the script in the sandbox */
	MAX_FILTER = 4096,      /* instructions: BPF_MAXINSNS of the kernel */
	MAX_MOUNTS = 80,        /* of one execution */
	MAX_RLIMITS = 16,       /* RLIM_NLIMITS: the kernel has no more */
	MAX_PAYLOAD = 16 << 20, /* one message, so also one here-document. The daemon refuses larger
	                         * ones, so they come from a broken peer and end the sandbox. */
};

/* A resource limit, soft and hard, in the units of getrlimit(2). */
struct limit {
	uint64_t resource, value;
};

/* Frames: this header, then length bytes. All integers are little endian. */
struct frame {
	uint32_t magic;   /* FRAME_MAGIC, which holds the version */
	uint32_t type;
	uint32_t length;
};
#define FRAME_MAGIC 0x32726b73u /* "skr2" */

enum frame_type {
	/* from the daemon */
	FRAME_PROGRAM = 1, /* deadline, directory, steps */
	FRAME_FILTERS,     /* the script's open files, init's limits, both filters; only to an init that libcontainer made */
	FRAME_SIGNAL,      /* u32 signal, to the main process */
	FRAME_TERM,        /* SIGTERM to all; no further step starts */
	FRAME_KILL,        /* SIGKILL to all; no further step starts */
	FRAME_MOUNTS,      /* before PROGRAM or FORKED: a name, then targets with a descriptor for each */
	FRAME_FORKED,      /* u32 pid (in the sandbox) of the forked process, which is the main one, u32 deadline in ms */
	FRAME_FINISH,      /* the forked process has ended */
	/* to the daemon */
	FRAME_HELLO = 16,  /* init waits for a forked process */
	FRAME_READY,       /* u32 pid (in the sandbox) of the first child, which waits for its program */
	FRAME_STARTED,     /* the first child's exec succeeded */
	FRAME_FAILED,      /* u32 enum stage, u32 errno: the sandbox could not be set up */
	FRAME_MOUNTED,     /* after FORKED: the mounts are attached */
	FRAME_END,         /* u32 wait status of the last command, u32 1 if by init's own deadline */
};

/* How far a child came. A report of a failure has a stage and an errno. The names in
 * wire.go must keep this order (TestStages). */
enum stage {
	STAGE_NONE,
	STAGE_PROTOCOL,
	STAGE_FILTER,
	STAGE_FORK,
	STAGE_DESCRIPTORS,
	STAGE_CAPABILITIES,
	STAGE_IDS,
	STAGE_DIRECTORY,
	STAGE_EXEC,
	STAGE_CGROUP,
	STAGE_MOUNTS,
	STAGE_NETWORK,
	STAGE_LIMITS,
	STAGE_READY, /* not a failure: the child has dropped its privileges and waits */
};

/* Ends the calling process: the daemon is gone or broke the protocol. The end of an init ends its
 * sandbox. The end of the zygote ends all sandboxes that it has cloned. */
_Noreturn void give_up(void);
void read_full(void *buffer, size_t length);
struct frame read_header(void);
void send_frame(enum frame_type type, const uint32_t *words, uint32_t count);
_Noreturn void send_failed(enum stage stage, int error);

#endif
