/* The interface between the parts of the sandbox's own init. See init.c. */
#ifndef SKILLRUN_INIT_H
#define SKILLRUN_INIT_H

#include <linux/filter.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Bounds. The daemon refuses larger programs before it sends them. A message above
 * a bound therefore comes from a broken peer, and ends the sandbox. */
enum {
	CONTROL_FD = 3,
	SCRIPT_ID = 1000,           /* uid and gid of the script in the sandbox */
	MAX_PAYLOAD = 16 << 20,     /* one message, so also one here-document */
	MAX_COMMANDS = 64,          /* of one pipeline */
	MAX_FILTER = 4096,          /* BPF_MAXINSNS of the kernel */
	MAX_MATCHES = 32768,        /* arguments of a command with patterns, and paths of one expansion */
	MAX_MATCH_BYTES = 8 << 20,  /* of those paths */
	MAX_MOUNTS = 80,            /* of one execution */
	REAP_AT_ONCE = 64,
	TIMER_SLACK = 50000,        /* nanoseconds; the kernel's default, which the daemon changes for itself (isolate.go) */
};

/* Frames: this header, then length bytes. All integers are little endian. */
struct frame {
	uint32_t magic;   /* FRAME_MAGIC, which holds the version */
	uint32_t type;
	uint32_t length;
};
#define FRAME_MAGIC 0x32726b73u /* "skr2" */

enum frame_type {
	/* from the daemon */
	FRAME_PROGRAM = 1, /* deadline, directory, steps */
	FRAME_FILTERS,     /* open files, init's filter, the script's filter; only to an init that libcontainer made */
	FRAME_SIGNAL,      /* u32 signal, to the main process */
	FRAME_TERM,        /* SIGTERM to all; no further step starts */
	FRAME_KILL,        /* SIGKILL to all; no further step starts */
	FRAME_MOUNTS,      /* before PROGRAM or FORKED: a name, then targets with a descriptor for each */
	FRAME_FORKED,      /* u32 pid (in the sandbox) of the forked process, which is the main one, u32 deadline in ms */
	FRAME_FINISH,      /* the forked process has ended */
	/* to the daemon */
	FRAME_HELLO = 16,  /* init waits for a forked process */
	FRAME_READY,       /* u32 pid (in the sandbox) of the first child, which waits for its program */
	FRAME_STARTED,     /* the first child's exec succeeded */
	FRAME_FAILED,      /* u32 enum stage, u32 errno: the sandbox could not be set up */
	FRAME_MOUNTED,     /* after FORKED: the mounts are attached */
	FRAME_END,         /* u32 wait status of the last command, u32 1 if by init's own deadline */
};

/* How far a child came. A report of a failure has a stage and an errno. The names in
 * control.go must keep this order. */
enum stage {
	STAGE_NONE,
	STAGE_PROTOCOL,
	STAGE_FILTER,
	STAGE_FORK,
	STAGE_DESCRIPTORS,
	STAGE_CAPABILITIES,
	STAGE_IDS,
	STAGE_DIRECTORY,
	STAGE_EXEC,
	STAGE_CGROUP,
	STAGE_MOUNTS,
	STAGE_NETWORK,
	STAGE_LIMITS,
	STAGE_READY, /* not a failure: the child has dropped its privileges and waits */
};

enum when { WHEN_ALWAYS, WHEN_SUCCEEDED, WHEN_FAILED };
enum redirect_kind { REDIRECT_READ, REDIRECT_WRITE, REDIRECT_APPEND, REDIRECT_DUP, REDIRECT_TEXT };

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

struct command {
	char **argv;
	char **env; /* the whole environment, NULL-terminated */
	struct glob *globs; /* in the order of argv */
	struct redirect *redirects;
	uint32_t glob_count;
	uint32_t redirect_count;
	uint32_t pipe_stderr;
};

struct step {
	uint32_t when;
	uint32_t command_count;
	struct command *commands;
};

struct program {
	struct sock_fprog init_filter, script_filter;
	uint64_t deadline_ms; /* from receipt */
	uint32_t open_files;  /* the script's RLIMIT_NOFILE; init's is larger. Like the filters not in the program frame */
	const char *dir;      /* beneath /workspace */
	uint32_t step_count;
	struct step *steps;
};

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
	int spare;        /* of the first child: its stdout if the command is not the last of its pipeline */
};

/* A program message, in memory that init and the first child share. */
struct payload {
	size_t length;
	unsigned char bytes[MAX_PAYLOAD];
};

int glob_expand(const struct command *cmd, char ***argv);
_Noreturn void send_failed(enum stage stage, int error);
int filters_decode(const void *payload, size_t length, struct program *out);
int program_decode(const void *payload, size_t length, struct program *out);
void make_proc_read_only(void);
void give_up_mounting(void);
_Noreturn void child_run(struct launch *l);
int filter_load(const struct sock_fprog *filter);

#endif
