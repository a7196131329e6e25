/* The program file of a Python zygote. */
#ifndef SKILLRUN_PYTHON_PROGRAM_H
#define SKILLRUN_PYTHON_PROGRAM_H

#include <stddef.h>

int program_cover(const char *name, const char *search, char *path, size_t size);

#endif
