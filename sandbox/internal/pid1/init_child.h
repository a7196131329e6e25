/* A command, from init's fork to its exec. */
#ifndef SKILLRUN_INIT_CHILD_H
#define SKILLRUN_INIT_CHILD_H

#include "init_program.h"
#include "wire.h"

/* A report of a child to init, through a pipe that closes on exec. */
struct report {
	uint32_t stage;
	uint32_t error;
};

/* The arguments of a child. Unused descriptors are -1. */
struct launch {
	const struct program *program;
	const struct command *command;
	int in, out;      /* stdin and stdout, if not init's own */
	int report;       /* written to: struct report */
	int only_command; /* init reports a failure of exec to the daemon; the child prints none */
	/* The first child is forked before its program arrives. It waits, and reads the
	 * program here. NULL: not the first child. */
	const struct payload *later;
	int barrier;      /* of the first child: its read returns when the child may touch the skill's files */
	int pipe;         /* of the first child: its stdout if the command is not the last of its pipeline */
};

/* A program message, in memory that init and the first child share. */
struct payload {
	size_t length;
	unsigned char bytes[MAX_PAYLOAD];
};

_Noreturn void child_run(struct launch *l);

#endif
