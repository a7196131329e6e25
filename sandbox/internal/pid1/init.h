/* The sandbox's init (init.c), for the zygote. */
#ifndef SKILLRUN_INIT_H
#define SKILLRUN_INIT_H

#include "init_cloned.h"

enum { TIMER_SLACK = 50000 }; /* nanoseconds; the kernel's default, which the daemon changes for itself (sandbox/isolate.go) */

/* Calls cloned_set_up and serves one execution. It has the arguments of cloned_set_up. */
_Noreturn void cloned_run(const struct zygote *zygote, const struct make *make, int *fds, int count, int mapped);

#endif
