/* The packets between the daemon and the zygote of sandboxes. packets.go has the daemon's half
 * and takes the numbers from here. */
#ifndef SKILLRUN_PACKETS_H
#define SKILLRUN_PACKETS_H

#include "wire.h"

#include <stdint.h>

enum {
	ZYGOTE_MAGIC = 0x316d6b73,   /* "skm1" */
	MAX_ZYGOTE_PACKET = 128 << 10,
	MAX_GROUPS = 8,              /* cgroup files of one sandbox */
	MAX_MASKS = 64,
	MAX_ARGS = 64,               /* of the program of PACKET_SPAWN */
	MAX_PLACES = 16,             /* mounts of one sandbox's root */
	MAX_MAKE_FDS = 4 + MAX_PLACES + MAX_GROUPS,
};

/* Packets of the zygote's socket. All integers are little endian. */
enum packet_type {
	/* from the daemon */
	PACKET_BEGIN = 1, /* struct begin, then the four filters, the paths to mask, and the
	                   * mount points of a root */
	PACKET_MAKE,      /* struct make, with descriptors: control, three streams, the mounts of
	                   * its root, cgroup files */
	PACKET_SPAWN,     /* struct spawn, then strings, with descriptors: socket, log */
	/* to the daemon */
	PACKET_MADE = 16, /* struct made, with a pidfd if error is 0 */
};

struct packet {
	uint32_t magic, type;
};

/* The filters, in the order of PACKET_BEGIN: for a sandbox's init, for its script, for the
 * zygote and all its descendants, and for a Python zygote. */
enum { INIT_FILTER, SCRIPT_FILTER, ZYGOTE_FILTER, PYTHON_FILTER, FILTERS };

struct begin {
	struct packet packet;
	uint32_t filters[FILTERS]; /* instructions of each */
	uint32_t joins;            /* 1: Python zygotes will be started */
	uint32_t core_limit;       /* RLIMIT_CORE of the zygote */
	uint32_t mask_count, place_count; /* strings after the filters, each with a NUL */
};

struct make {
	struct packet packet;
	uint32_t number;     /* returned in struct made */
	uint32_t first_id;   /* of the two ids, in the zygote's user namespace */
	uint32_t open_files; /* the script's RLIMIT_NOFILE */
	uint32_t executes;   /* 1: init forks the first process; 0: a Python zygote does */
	uint32_t tmp_files;
	uint32_t group_count;
	uint32_t rlimit_count;
	uint32_t place_count; /* mounts of its root, at the first places of PACKET_BEGIN */
	uint64_t tmp_bytes;  /* of /tmp and of the home directory, each */
	struct limit rlimits[MAX_RLIMITS];
};

struct spawn {
	struct packet packet;
	uint32_t number;
	uint32_t arg_count, env_count; /* strings with a NUL each */
};

struct made {
	struct packet packet;
	uint32_t number;
	uint32_t error; /* errno; 0: a pidfd comes along */
};

#endif
