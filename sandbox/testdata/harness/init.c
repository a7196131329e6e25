/* The sandbox's init. Its state belongs to one sandbox, so each run resets it. */
#include "../../init.c"

_Noreturn void harness_init(void) {
	memset(&self, 0, sizeof self);
	run();
}
