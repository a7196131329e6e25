/* What init, the zygote and their children give up for good. */
#ifndef SKILLRUN_CONFINE_H
#define SKILLRUN_CONFINE_H

#include "wire.h"

#include <linux/filter.h>
#include <stdint.h>

int filter_load(const struct sock_fprog *filter);
void set_limits(const struct limit *limits, uint32_t count);
int set_capabilities(uint64_t permitted, uint64_t effective);
void keep_init_capabilities(void);
void make_proc_read_only(void);
void give_up_mounting(void);

#endif
