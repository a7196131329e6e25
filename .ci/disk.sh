#!/usr/bin/env bash
# Runs a command with an ext4 file system of its own at /var/tmp, and with TMPDIR there. Only the command and its
# children see it, and it ends with them. It lies in memory, of which the tests need less than 2 GiB.
#
# The tests make and remove many files. An ext4 without a journal, which some virtual machines have as their root, takes
# no inode that was freed in the last minutes (recently_deleted in fs/ext4/ialloc.c). The search for another one took
# 6 % of the processor time of make test.
set -euo pipefail

if [[ ${1-} != --inside ]]; then
	if ((EUID != 0)); then
		echo "the tests make sandboxes, which needs root" >&2
		exit 1
	fi
	if [[ $PWD/ == /var/tmp/* ]]; then
		echo "==> the tests use the machine's disk, because the source code is in /var/tmp"
		exec "$@"
	fi
	exec unshare --mount --propagation slave bash "$0" --inside "$@"
fi
shift
mount -t tmpfs -o size=6g,mode=700 skillrun-test /var/tmp
truncate -s 5G /var/tmp/disk
mkfs.ext4 -q -m 0 -E nodiscard /var/tmp/disk
# noinit_itable: no thread of the kernel fills the tables of inodes while the tests run.
mount -o loop,noatime,discard,noinit_itable /var/tmp/disk /var/tmp
chmod 1777 /var/tmp
export TMPDIR=/var/tmp
exec "$@"
