/* The lowest layer of init: frames on the control socket. Init reads the daemon's frames
 * whole. If the daemon is gone or breaks the protocol, init exits, and the sandbox ends. */
#define _GNU_SOURCE
#include "wire.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The kernel kills every process of a PID namespace whose init exits, also those in the PID
 * namespaces beneath it (pid_namespaces(7)). */
_Noreturn void give_up(void) {
	_exit(1);
}

/* Reads exactly length bytes from the control socket and blocks until they are there. During
 * that time init serves neither its deadline nor its children. */
void read_full(void *buffer, size_t length) {
	for (char *p = buffer; length > 0;) {
		ssize_t n = read(CONTROL_FD, p, length);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			give_up();
		p += n;
		length -= (size_t)n;
	}
}

/* Sends a frame of at most two words. The message fits in the socket's buffer, so send does not
 * block while the daemon reads. */
void send_frame(enum frame_type type, const uint32_t *words, uint32_t count) {
	uint32_t message[5] = { FRAME_MAGIC, type, count * 4, 0, 0 };
	size_t length = sizeof(struct frame) + count * 4;
	for (uint32_t i = 0; i < count; i++)
		message[3 + i] = words[i];
	if (send(CONTROL_FD, message, length, MSG_NOSIGNAL) != (ssize_t)length)
		give_up();
}

/* Reports that the sandbox can't be set up, and ends it. wire.go turns the stage and the errno
 * into the error of the request. */
_Noreturn void send_failed(enum stage stage, int error) {
	uint32_t words[] = { stage, (uint32_t)error };
	send_frame(FRAME_FAILED, words, 2);
	give_up();
}

/* Reads the header of the next frame. The payload, at most MAX_PAYLOAD bytes, is still in the
 * socket. */
struct frame read_header(void) {
	struct frame f;
	read_full(&f, sizeof f);
	if (f.magic != FRAME_MAGIC || f.length > MAX_PAYLOAD)
		give_up();
	return f;
}
