/* The setup of a sandbox that the zygote has cloned. */
#ifndef SKILLRUN_INIT_CLONED_H
#define SKILLRUN_INIT_CLONED_H

#include "packets.h"

#include <linux/filter.h>
#include <stdint.h>

/* The contents of PACKET_BEGIN, which every clone inherits. */
struct zygote {
	struct sock_fprog filters[FILTERS];
	uint32_t mask_count;
	struct {
		const char *path;
		int is_dir;
	} masks[MAX_MASKS];
	uint32_t place_count;
	const char *places[MAX_PLACES]; /* "/", "/dev", then the others of the host's root, each before what is in it */
};

/* Sets up the sandbox of the calling process, its PID 1. fds are the descriptors of
 * PACKET_MAKE. mapped delivers a byte after the zygote has set the id maps. */
void cloned_set_up(const struct zygote *zygote, const struct make *make, int *fds, int count, int mapped);

#endif
