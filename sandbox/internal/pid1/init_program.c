/* Decodes the program message into one mapping and checks every length. The encoder
 * is in program.go; both follow the order below. */
#include "init_program.h"
#include "wire.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

/* A position in the message, and the free part of the mapping for the decoded program. After the first
 * error bad is set, and every take_* function returns 0 or an empty value. So only the end of a
 * decoding needs a check. */
struct cursor {
	const unsigned char *at, *end;
	unsigned char *arena, *arena_end;
	int bad;
};

/* Reads an integer, in little endian like every processor that skillrun supports. */
static uint32_t take_u32(struct cursor *c) {
	uint32_t v;
	if (c->bad || (size_t)(c->end - c->at) < sizeof v) {
		c->bad = 1;
		return 0;
	}
	memcpy(&v, c->at, sizeof v);
	c->at += sizeof v;
	return v;
}

/* Reads the count of a list. An element takes at least four bytes, so a count that the
 * rest of the message can't hold is refused before any allocation. */
static uint32_t take_count(struct cursor *c) {
	uint32_t n = take_u32(c);
	if ((size_t)(c->end - c->at) / 4 < n)
		c->bad = 1;
	return c->bad ? 0 : n;
}

/* Takes count elements of size bytes from the mapping. They are zero and never freed. Returns
 * NULL if there is no room. */
static void *allocate(struct cursor *c, size_t count, size_t size) {
	size_t bytes = (count * size + 15) & ~(size_t)15; /* count is bounded by MAX_PAYLOAD */
	if (c->bad || (size_t)(c->arena_end - c->arena) < bytes) {
		c->bad = 1;
		return NULL;
	}
	void *p = c->arena;
	c->arena += bytes;
	return p;
}

/* Reads a string: its length, its bytes, a NUL, and padding to four bytes. */
static const char *take_string(struct cursor *c, size_t *length) {
	size_t n = take_u32(c);
	size_t padded = (n + 4) & ~(size_t)3;
	if (c->bad || n > MAX_PAYLOAD || (size_t)(c->end - c->at) < padded || c->at[n] != 0) {
		c->bad = 1;
		return "";
	}
	const char *s = (const char *)c->at;
	c->at += padded;
	if (length)
		*length = n;
	return s;
}

/* Reads a list of strings, for execve(2): the pointers lead into the message, and the last one is
 * NULL. */
static char **take_vector(struct cursor *c, uint32_t *count) {
	uint32_t n = *count = take_count(c);
	char **v = allocate(c, (size_t)n + 1, sizeof *v);
	for (uint32_t i = 0; i < n && !c->bad; i++)
		v[i] = (char *)take_string(c, NULL);
	return v; /* the mapping is zero, so v ends with NULL */
}

/* Reads a filter. The kernel checks its instructions when init loads it (seccomp(2)). */
static void take_filter(struct cursor *c, struct sock_fprog *f) {
	uint32_t n = take_count(c);
	size_t bytes = (size_t)n * sizeof(struct sock_filter);
	if (c->bad || n == 0 || n > MAX_FILTER || (size_t)(c->end - c->at) < bytes) {
		c->bad = 1;
		return;
	}
	f->len = (unsigned short)n;
	f->filter = (struct sock_filter *)c->at;
	c->at += bytes;
}

/* Reads the patterns of a command. Their indices must ascend, so that one pass over the
 * arguments finds them all. */
static void take_globs(struct cursor *c, struct command *cmd, uint32_t argc) {
	uint32_t before = 0; /* the name of the command is no pattern */
	cmd->glob_count = take_count(c);
	cmd->globs = allocate(c, cmd->glob_count, sizeof *cmd->globs);
	for (uint32_t i = 0; i < cmd->glob_count && !c->bad; i++) {
		struct glob *g = &cmd->globs[i];
		g->arg = take_u32(c);
		g->pattern = take_string(c, NULL);
		if (g->arg <= before || g->arg >= argc)
			c->bad = 1;
		before = g->arg;
	}
}

/* Reads a command. Its name, argv[0], must be there. */
static void take_command(struct cursor *c, struct command *cmd) {
	uint32_t argc, envc;
	cmd->argv = take_vector(c, &argc);
	take_globs(c, cmd, argc);
	cmd->env = take_vector(c, &envc);
	cmd->pipe_stderr = take_u32(c);
	cmd->redirect_count = take_count(c);
	cmd->redirects = allocate(c, cmd->redirect_count, sizeof *cmd->redirects);
	for (uint32_t i = 0; i < cmd->redirect_count && !c->bad; i++) {
		struct redirect *r = &cmd->redirects[i];
		r->fd = take_u32(c);
		r->kind = take_u32(c);
		r->from = take_u32(c);
		r->text = take_string(c, &r->length);
	}
	if (!c->bad && cmd->argv[0] == NULL)
		c->bad = 1;
}

/* Reads a step: a pipeline of 1 to MAX_COMMANDS commands. */
static void take_step(struct cursor *c, struct step *s) {
	s->when = take_u32(c);
	s->command_count = take_count(c);
	if (s->command_count == 0 || s->command_count > MAX_COMMANDS)
		c->bad = 1;
	s->commands = allocate(c, s->command_count, sizeof *s->commands);
	for (uint32_t i = 0; s->commands && i < s->command_count && !c->bad; i++)
		take_command(c, &s->commands[i]);
}

/* filters_decode sets the fields of out that FRAME_FILTERS contains. The filters point
 * into payload, which must stay mapped. Returns 0 or an errno. */
int filters_decode(const void *payload, size_t length, struct program *out) {
	struct cursor c = { .at = payload, .end = (const unsigned char *)payload + length };
	out->open_files = take_u32(&c);
	out->rlimit_count = take_u32(&c);
	if (out->rlimit_count > MAX_RLIMITS)
		return EBADMSG;
	for (uint32_t i = 0; i < out->rlimit_count; i++) {
		out->rlimits[i].resource = take_u32(&c);
		out->rlimits[i].value = take_u32(&c);
		out->rlimits[i].value |= (uint64_t)take_u32(&c) << 32;
	}
	take_filter(&c, &out->init_filter);
	take_filter(&c, &out->script_filter);
	return c.bad || c.at != c.end ? EBADMSG : 0;
}

/* program_decode sets the fields of out that FRAME_PROGRAM contains. They point into payload
 * and into a private mapping; both must stay mapped until the process ends. Returns 0 or an
 * errno. */
int program_decode(const void *payload, size_t length, struct program *out) {
	/* A command grows the most: from 20 encoded bytes to 48, and 32 for two empty
	 * vectors. Untouched pages cost nothing. */
	size_t room = 8 * length + 65536;
	void *arena = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (arena == MAP_FAILED)
		return errno;
	struct cursor c = {
		.at = payload, .end = (const unsigned char *)payload + length,
		.arena = arena, .arena_end = (unsigned char *)arena + room,
	};
	out->deadline_ms = take_u32(&c);
	out->dir = take_string(&c, NULL);
	out->step_count = take_count(&c);
	out->steps = allocate(&c, out->step_count, sizeof *out->steps);
	for (uint32_t i = 0; i < out->step_count && !c.bad; i++)
		take_step(&c, &out->steps[i]);
	if (c.bad || c.at != c.end || out->step_count == 0)
		return EBADMSG;
	return 0;
}
