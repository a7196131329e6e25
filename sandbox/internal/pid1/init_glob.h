/* Patterns of file names among the arguments of a command. */
#ifndef SKILLRUN_INIT_GLOB_H
#define SKILLRUN_INIT_GLOB_H

#include "init_program.h"

enum {
	MAX_MATCHES = 32768,       /* arguments of a command with patterns, and paths of one expansion */
	MAX_MATCH_BYTES = 8 << 20, /* of those paths */
};

int glob_expand(const struct command *cmd, char ***argv);

#endif
