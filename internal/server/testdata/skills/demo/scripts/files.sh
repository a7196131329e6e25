# Leaves files in its workspace.
mkdir -p out
printf 'first' > out/a.txt
head -c 600000 /dev/zero > out/big.bin
printf 'odd' > "$(printf 'out/\377.txt')"
: > out/empty
