#ifndef SKILLRUN_HARNESS_H
#define SKILLRUN_HARNESS_H

#include "fake.h"

#include <stddef.h>

/* Runs init or the zygote to its end. The input: which of them, the number of choices
 * in two bytes, a byte for nothing, the choices, and what peers send. Answers how far the
 * program came: the zygote's answers in the low four bits, and above them a bit each for
 * init's frames HELLO or READY, STARTED or MOUNTED, END. */
uint8_t harness_run(const uint8_t *input, size_t length);

#endif
