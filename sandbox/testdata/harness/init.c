/* The sandbox's init, whose state is of one sandbox. */
#include "../../init.c"

_Noreturn void harness_init(void) {
	memset(&self, 0, sizeof self);
	run();
}
