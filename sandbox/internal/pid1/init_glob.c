/* Expands the file name patterns among a command's arguments, as bash without options
 * does: * ? and [...] match within one component of a path, only a dot matches a leading
 * dot, the results are in the order of their bytes, and a pattern without a match stays
 * as it was written. Two things differ. A result that begins with "-" gets "./" in front,
 * so that no file name becomes an option. Named classes such as [:alpha:] know ASCII only.
 *
 * The code runs in the command's process after the process has become the script. So it
 * sees the files that the script sees, and the script is charged for its memory and time.
 * It keeps everything in one mapping and opens one directory at a time. It expands a
 * pattern component by component, each for all paths of the components before. */
#define _GNU_SOURCE
#include "init_glob.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- one component and one name ---- */

/* A piece of a pattern. A backslash makes the next character literal. */
struct piece {
	const char *at, *end;
};

/* The next character: a UTF-8 sequence if utf8 is set, else a byte. */
static uint32_t take_character(const char **s, int utf8) {
	unsigned char c = (unsigned char)*(*s)++;
	if (!utf8 || c < 0x80)
		return c;
	int more = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : 1;
	uint32_t code = c & (0x3fu >> more);
	while (more-- > 0)
		code = code << 6 | ((unsigned char)*(*s)++ & 0x3f);
	return code;
}

/* Whether s is UTF-8 throughout, without overlong forms and surrogates. */
static int is_utf8(const char *s, const char *end) {
	static const uint32_t least[] = { 0, 0x80, 0x800, 0x10000 };
	while (s < end) {
		unsigned char c = (unsigned char)*s;
		int more = c < 0x80 ? 0 : c >= 0xc0 && c < 0xe0 ? 1 : c >= 0xe0 && c < 0xf0 ? 2 : c >= 0xf0 && c < 0xf8 ? 3 : -1;
		if (more < 0 || end - s <= more)
			return 0;
		for (int i = 1; i <= more; i++)
			if ((s[i] & 0xc0) != 0x80)
				return 0;
		uint32_t code = take_character(&s, 1);
		if (code < least[more] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
			return 0;
	}
	return 1;
}

static int is_ascii(int c) { return c < 0x80; }
static int is_word(int c) { return isalnum(c) || c == '_'; }

/* Whether c is in a named class. No character is in an unknown class. */
static int in_class(const char *name, size_t length, uint32_t c) {
	static const struct { const char *name; int (*has)(int); } classes[] = {
		{ "alnum", isalnum }, { "alpha", isalpha }, { "ascii", is_ascii }, { "blank", isblank }, { "cntrl", iscntrl },
		{ "digit", isdigit }, { "graph", isgraph }, { "lower", islower }, { "print", isprint }, { "punct", ispunct },
		{ "space", isspace }, { "upper", isupper }, { "word", is_word }, { "xdigit", isxdigit },
	};
	for (size_t i = 0; c < 0x80 && i < sizeof classes / sizeof *classes; i++)
		if (strlen(classes[i].name) == length && memcmp(classes[i].name, name, length) == 0)
			return classes[i].has((int)c) != 0;
	return 0;
}

/* Reads [:class:], [=x=] or [.x.] inside a set, moves *p past it and reports whether c
 * is in it. Returns -1 if *p is at something else. */
static int match_named(struct piece *p, uint32_t c, int utf8) {
	if (p->end - p->at < 4 || p->at[0] != '[' || !strchr(":=.", p->at[1]))
		return -1;
	char close[2] = { p->at[1], ']' };
	const char *name = p->at + 2;
	const char *end = memmem(name, (size_t)(p->end - name), close, sizeof close);
	if (!end)
		return -1;
	p->at = end + 2;
	if (close[0] == ':')
		return in_class(name, (size_t)(end - name), c);
	return name < end && take_character(&name, utf8) == c && name == end;
}

/* The next character of a pattern, without the backslash before it. A backslash at the end of the
 * pattern is an ordinary character. */
static uint32_t take_escaped(struct piece *p, int utf8) {
	if (*p->at == '\\' && p->at + 1 < p->end)
		p->at++;
	return take_character(&p->at, utf8);
}

/* Reads a set, [...], moves *p past it and reports whether c is in it. Without a closing
 * ] the bracket is an ordinary character: returns -1 and leaves *p. */
static int match_set(struct piece *p, uint32_t c, int utf8) {
	struct piece q = { p->at + 1, p->end };
	int negated = q.at < q.end && (*q.at == '!' || *q.at == '^');
	int found = 0;
	q.at += negated;
	for (const char *first = q.at; q.at < q.end;) {
		if (*q.at == ']' && q.at != first) {
			p->at = q.at + 1;
			return found != negated;
		}
		int named = match_named(&q, c, utf8);
		if (named >= 0) {
			found |= named;
			continue;
		}
		uint32_t low = take_escaped(&q, utf8), high = low;
		if (q.end - q.at >= 2 && q.at[0] == '-' && q.at[1] != ']') {
			q.at++;
			high = take_escaped(&q, utf8);
		}
		found |= low <= c && c <= high;
	}
	return -1;
}

/* Matches c with the next element of the pattern, which is not a *. */
static int match_character(struct piece *p, uint32_t c, int utf8) {
	if (*p->at == '?') {
		p->at++;
		return 1;
	}
	int in_set = *p->at == '[' ? match_set(p, c, utf8) : -1;
	return in_set >= 0 ? in_set : take_escaped(p, utf8) == c;
}

/* Matches a whole component. It backtracks only to the last *, which loses no match and
 * keeps the time polynomial. */
static int match(struct piece p, const char *name) {
	int utf8 = is_utf8(name, strchr(name, 0)) && is_utf8(p.at, p.end);
	const char *star = NULL, *retry = NULL;
	if (*name == '.' && *p.at != '.' && (*p.at != '\\' || p.at[1] != '.'))
		return 0;
	for (;;) {
		if (p.at < p.end && *p.at == '*') {
			star = ++p.at;
			retry = name;
			continue;
		}
		if (*name == 0 && p.at == p.end)
			return 1;
		if (*name != 0 && p.at < p.end && match_character(&p, take_character(&name, utf8), utf8))
			continue;
		if (!star || *retry == 0)
			return 0;
		take_character(&retry, utf8);
		p.at = star;
		name = retry;
	}
}

/* Whether a component needs its directory read. A bracket without its partner is no wildcard. */
static int has_wildcard(struct piece p) {
	while (p.at < p.end) {
		if (*p.at == '*' || *p.at == '?' || (*p.at == '[' && match_set(&p, 0, 0) >= 0))
			return 1;
		take_escaped(&p, 0);
	}
	return 0;
}

/* ---- paths ---- */

/* A list of paths with room for MAX_MATCHES. The texts are elsewhere. */
struct paths {
	char **at;
	uint32_t count;
};

/* The state of one command's expansion. The text of a path is never freed, so the text of all
 * paths, also of intermediate ones, counts towards MAX_MATCH_BYTES. */
struct globber {
	char *room, *room_end;   /* for the text of paths */
	struct paths now, next;  /* paths of the components so far, and with the next one */
	struct paths out;        /* the new arguments */
	int matching;            /* a component with a wildcard was met */
	int unseen;              /* the last component has no wildcard, or has a slash after it */
	int error;
};

/* Adds the path a b c, concatenated. It skips paths longer than PATH_MAX, which name no
 * file. */
static void add(struct globber *g, struct paths *to, const char *a, struct piece b, const char *c) {
	size_t n = strlen(a), m = (size_t)(b.end - b.at), o = strlen(c);
	if (n + m + o >= PATH_MAX)
		return;
	if (to->count == MAX_MATCHES || (size_t)(g->room_end - g->room) < n + m + o + 1) {
		g->error = E2BIG;
		return;
	}
	to->at[to->count++] = g->room;
	memcpy(g->room, a, n);
	memcpy(g->room + n, b.at, m);
	memcpy(g->room + n + m, c, o + 1);
	g->room += n + m + o + 1;
}

/* struct linux_dirent64 of getdents64(2). readdir(3) would need a heap. */
struct entry {
	uint64_t inode;
	int64_t offset;
	uint16_t length;
	uint8_t type;
	char name[];
};

/* Adds the matching names of one directory. Before a slash only names that can be
 * directories count. */
static void add_matches(struct globber *g, const char *path, struct piece p, const char *slash) {
	char buffer[32768] __attribute__((aligned(8)));
	int fd = open(*path ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	long n = 0;
	while (fd >= 0 && !g->error && (n = syscall(SYS_getdents64, fd, buffer, sizeof buffer)) > 0) {
		for (long at = 0; at < n && !g->error;) {
			const struct entry *e = (const struct entry *)(buffer + at);
			at += e->length;
			int directory = e->type == DT_DIR || e->type == DT_LNK || e->type == DT_UNKNOWN;
			if (strcmp(e->name, ".") != 0 && strcmp(e->name, "..") != 0 && (directory || !*slash) && match(p, e->name))
				add(g, &g->next, path, (struct piece){ e->name, strchr(e->name, 0) }, slash);
		}
	}
	if (fd >= 0)
		close(fd);
}

/* Expands one component with the slashes after it. */
static void take_component(struct globber *g, struct piece p, struct piece slashes) {
	char literal[PATH_MAX];
	size_t n = 0;
	int wild = has_wildcard(p);
	g->matching |= wild;
	g->unseen = !wild || slashes.at < slashes.end;
	g->next.count = 0;
	/* After the first wildcard bash replaces several slashes by one. */
	const char *slash = slashes.at < slashes.end ? "/" : "";
	while (!wild && p.at < p.end && n < sizeof literal) {
		if (*p.at == '\\' && p.at + 1 < p.end)
			p.at++;
		literal[n++] = *p.at++;
	}
	while (!g->matching && slashes.at < slashes.end && n < sizeof literal) {
		slash = "";
		if (*slashes.at != '\\')
			literal[n++] = '/';
		slashes.at++;
	}
	for (uint32_t i = 0; i < g->now.count && !g->error; i++) {
		if (wild)
			add_matches(g, g->now.at[i], p, slash);
		else
			add(g, &g->next, g->now.at[i], (struct piece){ literal, literal + n }, slash);
	}
	struct paths swap = g->now;
	g->now = g->next;
	g->next = swap;
}

/* The length of the slash at p, which may have a backslash before it, or 0. */
static size_t slash_at(const char *p) {
	return *p == '/' ? 1 : p[0] == '\\' && p[1] == '/' ? 2 : 0;
}

/* Sets g->now to the paths that pattern may match. */
static void expand(struct globber *g, const char *pattern) {
	g->matching = 0;
	g->next.count = g->now.count = 0;
	add(g, &g->now, "", (struct piece){ "", "" }, "");
	while (*pattern && !g->error) {
		struct piece p = { pattern, pattern };
		while (*p.end && !slash_at(p.end))
			p.end += p.end[0] == '\\' && p.end[1] ? 2 : 1;
		struct piece slashes = { p.end, p.end };
		for (size_t n; (n = slash_at(slashes.end)) > 0;)
			slashes.end += n;
		take_component(g, p, slashes);
		pattern = slashes.end;
	}
	if (!g->matching)
		g->now.count = 0;
}

/* Removes paths that do not exist: without a wildcard in the last component no directory
 * was read for it. A slash at the end makes lstat follow links and want a directory. */
static void keep_existing(struct paths *l) {
	struct stat st;
	uint32_t kept = 0;
	for (uint32_t i = 0; i < l->count; i++)
		if (lstat(l->at[i], &st) == 0)
			l->at[kept++] = l->at[i];
	l->count = kept;
}

/* Moves the element at root down until both of its children are smaller. */
static void sift(char **at, size_t root, size_t count) {
	for (size_t child; (child = 2 * root + 1) < count; root = child) {
		if (child + 1 < count && strcmp(at[child], at[child + 1]) < 0)
			child++;
		if (strcmp(at[root], at[child]) >= 0)
			return;
		char *swap = at[root];
		at[root] = at[child];
		at[child] = swap;
	}
}

/* A heap sort: it works in place, and no choice of names makes it slow. */
static void sort(struct paths *l) {
	for (size_t i = l->count / 2; i-- > 0;)
		sift(l->at, i, l->count);
	for (size_t i = l->count; i-- > 1;) {
		char *swap = l->at[0];
		l->at[0] = l->at[i];
		l->at[i] = swap;
		sift(l->at, 0, i);
	}
}

/* Adds one argument. If there are too many, the expansion fails with E2BIG, as exec would. */
static void append(struct globber *g, char *word) {
	if (g->out.count == MAX_MATCHES)
		g->error = E2BIG;
	else
		g->out.at[g->out.count++] = word;
}

/* Adds the results, or the word as written if no path matches. */
static void append_results(struct globber *g, char *written) {
	if (g->unseen)
		keep_existing(&g->now);
	sort(&g->now);
	if (g->now.count == 0 && !g->error)
		append(g, written);
	for (uint32_t i = 0; i < g->now.count && !g->error; i++) {
		g->next.count = 0;
		if (g->now.at[i][0] == '-') {
			add(g, &g->next, "./", (struct piece){ g->now.at[i], strchr(g->now.at[i], 0) }, "");
			if (g->next.count == 1)
				append(g, g->next.at[0]);
		} else {
			append(g, g->now.at[i]);
		}
	}
}

/* glob_expand sets *argv to the arguments with their patterns expanded. It returns 0 or
 * an errno: E2BIG if there are too many. */
int glob_expand(const struct command *cmd, char ***argv) {
	*argv = cmd->argv;
	if (cmd->glob_count == 0)
		return 0;
	size_t list = (MAX_MATCHES + 1) * sizeof(char *);
	char *room = mmap(NULL, 3 * list + MAX_MATCH_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (room == MAP_FAILED)
		return errno;
	struct globber g = {
		.now.at = (char **)room, .next.at = (char **)(room + list), .out.at = (char **)(room + 2 * list),
		.room = room + 3 * list, .room_end = room + 3 * list + MAX_MATCH_BYTES,
	};
	uint32_t done = 0;
	for (uint32_t i = 0; cmd->argv[i] && !g.error; i++) {
		if (done < cmd->glob_count && cmd->globs[done].arg == i) {
			expand(&g, cmd->globs[done++].pattern);
			append_results(&g, cmd->argv[i]);
		} else {
			append(&g, cmd->argv[i]);
		}
	}
	*argv = g.out.at; /* the mapping is zero after the last argument */
	return g.error;
}
