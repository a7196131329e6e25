/* The program that init runs, decoded. program.go encodes it. */
#ifndef SKILLRUN_INIT_PROGRAM_H
#define SKILLRUN_INIT_PROGRAM_H

#include "wire.h"

#include <linux/filter.h>
#include <stddef.h>
#include <stdint.h>

/* The daemon refuses larger programs before it sends them. */
enum { MAX_COMMANDS = 64 }; /* of one pipeline */

/* On which result of the step before a step runs: ";", "&&", "||". */
enum when { WHEN_ALWAYS, WHEN_SUCCEEDED, WHEN_FAILED };
/* "<", ">", ">>", "2>&1" and here-documents. */
enum redirect_kind { REDIRECT_READ, REDIRECT_WRITE, REDIRECT_APPEND, REDIRECT_DUP, REDIRECT_TEXT };

/* A redirect of one command. from is the descriptor that REDIRECT_DUP copies. */
struct redirect {
	uint32_t fd, kind, from;
	const char *text; /* a path, or the text itself; NUL-terminated */
	size_t length;    /* of text, without the NUL */
};

/* An argument that is a pattern. A backslash marks the next character of pattern as
 * literal. */
struct glob {
	uint32_t arg; /* its index in argv, never 0 */
	const char *pattern;
};

/* One command of a pipeline. */
struct command {
	char **argv;
	char **env; /* the whole environment, NULL-terminated */
	struct glob *globs; /* in the order of argv */
	struct redirect *redirects;
	uint32_t glob_count;
	uint32_t redirect_count;
	uint32_t pipe_stderr;
};

/* A pipeline, with the condition on which it runs. */
struct step {
	uint32_t when;
	uint32_t command_count;
	struct command *commands;
};

/* The orders of an init for its execution. Two frames, or the zygote, deliver the parts. */
struct program {
	struct sock_fprog init_filter, script_filter;
	uint64_t deadline_ms; /* from receipt */
	struct limit rlimits[MAX_RLIMITS]; /* of an init that libcontainer made */
	uint32_t rlimit_count;
	uint32_t open_files;  /* the script's RLIMIT_NOFILE; init's is larger. Like the filters not in the program frame */
	const char *dir;      /* beneath /workspace */
	uint32_t step_count;
	struct step *steps;
};

int filters_decode(const void *payload, size_t length, struct program *out);
int program_decode(const void *payload, size_t length, struct program *out);

#endif
