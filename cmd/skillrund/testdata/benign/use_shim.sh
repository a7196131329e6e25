# Published skills build a small library and preload it, LD_PRELOAD in ld.so(8).
set -eu
cat >"$TMPDIR/shim.c" <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/socket.h>
#include <unistd.h>
int socket(int domain, int type, int protocol) {
	int (*real)(int, int, int) = (int (*)(int, int, int))dlsym(RTLD_NEXT, "socket");
	write(2, "shim\n", 5);
	return real(domain, type, protocol);
}
C
gcc -shared -fPIC -o "$TMPDIR/shim.so" "$TMPDIR/shim.c" -ldl
LD_PRELOAD=$TMPDIR/shim.so python3 -c 'import socket; socket.socket(socket.AF_UNIX)' 2>"$TMPDIR/said"
grep -q shim "$TMPDIR/said"
echo ok
