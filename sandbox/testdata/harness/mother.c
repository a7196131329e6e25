/* The zygote of sandboxes. */
#include "../../mother.c"

_Noreturn void harness_mother(void) {
	memset(&self, 0, sizeof self);
	run();
}
