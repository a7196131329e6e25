/* The program file of a Python zygote. */
#ifndef SKILLRUN_PYTHON_PROGRAM_H
#define SKILLRUN_PYTHON_PROGRAM_H

#include <stddef.h>

/* Finds the program by name on the search path and hides its file from the processes that will
 * run it. Stores the path to execute in path, which has room for size bytes. Returns 0 or -1. */
int program_cover(const char *name, const char *search, char *path, size_t size);

#endif
