set -eu
cd "$TMPDIR"
cat >main.c <<'C'
#include <math.h>
#include <pthread.h>
#include <stdio.h>
static void *half(void *n) { *(double *)n = sqrt(*(double *)n); return 0; }
int main(void) {
	double n = 1764;
	pthread_t t;
	if (pthread_create(&t, 0, half, &n)) return 1;
	pthread_join(t, 0);
	printf("%g\n", n);
	return 0;
}
C
gcc -O2 -Wall -Werror -o main main.c -lm -pthread
[ "$(./main)" = 42 ]
gcc -O2 -static -o static main.c -lm -pthread
[ "$(./static)" = 42 ]
cp main /workspace/main && [ "$(/workspace/main)" = 42 ]
rm /workspace/main
echo 'int twice(int n) { return 2 * n; }' >lib.c
gcc -shared -fPIC -o libtwice.so lib.c
[ "$(python3 -c 'import ctypes; print(ctypes.CDLL("./libtwice.so").twice(21))')" = 42 ]
gcc -c -o lib.o lib.c && ar rcs libtwice.a lib.o && nm libtwice.a | grep -q twice
if command -v make >/dev/null; then
	printf 'all: made\nmade: main.c\n\tgcc -o made main.c -lm -pthread\n' >Makefile
	make -s -j2 && [ "$(./made)" = 42 ]
fi
echo ok
