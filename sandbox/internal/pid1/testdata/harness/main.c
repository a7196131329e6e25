/* Reads inputs of a Go fuzz test from a pipe, each after its length, and answers each with
 * one byte: what harness_run answers. It also runs variants of each input. It keeps a variant that reaches new code
 * and changes it further. The current input is in the file at descriptor 3, where the Go
 * test finds it after a crash. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

uint8_t harness_run(const uint8_t *input, size_t length); /* see harness.h */

enum { MAX_INPUT = 1 << 16, MAX_KEPT = 4096, EDGES = 1 << 13, PATIENCE = 20 };

static uint8_t edges[EDGES], seen[EDGES];
static uintptr_t before;
static uint64_t state;
static struct kept {
	uint8_t *bytes;
	size_t length;
} kept[MAX_KEPT];
static size_t kept_count;

/* gcc's -fsanitize-coverage=trace-pc adds a call of it to every branch. */
void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void) {
	uintptr_t here = (uintptr_t)__builtin_return_address(0);
	edges[(here ^ before >> 1) % EDGES] = 1;
	before = here;
}

static uint32_t any(uint32_t below) {
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 32) % below;
}

static int reaches_more(void) {
	int more = 0;
	for (size_t i = 0; i < EDGES; i++) {
		more |= edges[i] & !seen[i];
		seen[i] |= edges[i];
	}
	return more;
}

/* The file: a length and the bytes. */
static uint8_t run_one(uint8_t *file, const uint8_t *input, size_t length) {
	uint32_t head = (uint32_t)length;
	memcpy(file, &head, sizeof head);
	memcpy(file + sizeof head, input, length);
	/* The sanitizer guards the end of this copy. */
	uint8_t *copy = malloc(length ? length : 1);
	memcpy(copy, input, length);
	memset(edges, 0, sizeof edges);
	before = 0;
	alarm(PATIENCE);
	uint8_t reached = harness_run(copy, length);
	alarm(0);
	free(copy);
	if (reaches_more() && kept_count < MAX_KEPT) {
		kept[kept_count].bytes = malloc(length ? length : 1);
		memcpy(kept[kept_count].bytes, input, length);
		kept[kept_count++].length = length;
	}
	return reached;
}

static size_t change(uint8_t *b, size_t length) {
	static const uint32_t odd[] = { 0, 1, 2, 3, 4, 16, 63, 64, 65, 255, 4095, 4096, 65535, 1 << 24, 0x7fffffff, 0x80000000, 0xfffffffc, 0xffffffff };
	uint32_t word = odd[any(sizeof odd / sizeof *odd)];
	size_t at = 1 + any((uint32_t)length - 1), n; /* the first byte selects init or the zygote */
	switch (any(6)) {
	case 0:
		b[at] ^= (uint8_t)(1u << any(8));
		break;
	case 1:
		b[at] = (uint8_t)any(256);
		break;
	case 2:
		at &= ~(size_t)3;
		if (at >= 4 && at + sizeof word <= length)
			memcpy(b + at, &word, sizeof word);
		break;
	case 3: /* removes bytes */
		n = 1 + any(8);
		if (at + n < length && length - n > 8) {
			memmove(b + at, b + at + n, length - at - n);
			return length - n;
		}
		break;
	case 4: /* repeats bytes */
		n = 1 + any(32);
		if (at + n <= length && length + n <= MAX_INPUT) {
			memmove(b + at + n, b + at, length - at);
			return length + n;
		}
		break;
	case 5: { /* copies bytes of another input */
		const struct kept *k = &kept[any((uint32_t)kept_count)];
		size_t from = any((uint32_t)k->length);
		n = 1 + any(64);
		if (k->bytes[0] == b[0] && from + n <= k->length && at + n <= length)
			memcpy(b + at, k->bytes + from, n);
	}
	}
	return length;
}

static int read_whole(void *to, size_t length) {
	for (size_t done = 0; done < length;) {
		ssize_t n = read(0, (char *)to + done, length - done);
		if (n <= 0)
			return 0;
		done += (size_t)n;
	}
	return 1;
}

int main(int argc, char **argv) {
	static uint8_t input[MAX_INPUT], variant[MAX_INPUT];
	uint8_t *file = mmap(NULL, sizeof(uint32_t) + MAX_INPUT, PROT_READ | PROT_WRITE, MAP_SHARED, 3, 0);
	long variants = argc > 1 ? strtol(argv[1], NULL, 10) : 0;
	uint32_t length;
	if (file == MAP_FAILED)
		return 2;
	while (read_whole(&length, sizeof length) && length <= MAX_INPUT && read_whole(input, length)) {
		for (uint32_t i = 0; i < length; i++)
			state = (state ^ input[i]) * 0x100000001b3u + 1;
		uint8_t answer = run_one(file, input, length);
		for (long i = 0; i < variants && length > 8 && kept_count > 0; i++) {
			const struct kept *k = &kept[any((uint32_t)kept_count)];
			size_t n = k->length;
			if (n <= 8)
				continue;
			memcpy(variant, k->bytes, n);
			for (uint32_t changes = 1 + any(6); changes > 0; changes--)
				n = change(variant, n);
			run_one(file, variant, n);
		}
		if (write(1, &answer, 1) != 1)
			return 1;
	}
	return 0;
}
