/* The sandbox's init. Its state belongs to one sandbox, so each run resets it. */
#include "../../init.c"

void harness_reset_init(void) {
	memset(&self, 0, sizeof self);
}

_Noreturn void harness_init(void) {
	harness_reset_init();
	run();
}
