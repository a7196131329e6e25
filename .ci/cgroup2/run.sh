#!/usr/bin/env bash
# Runs skillrun on a machine with cgroup v2 only, whatever this one has: boots
# Debian's kernel in qemu with a small Debian of this machine's own files, runs
# smoke.sh in it, prints its report, and succeeds only if every check passed.
#
# Expects bin/skillrund, bin/skillrun and .cache/cgroup2/sandbox.test (package
# sandbox's tests), all static: `make test-cgroup2` builds them. Needs root,
# because the image's files belong to root.
#
# Emulated in software: a virtual machine's /dev/kvm may open and then fail on
# the guest's instructions. So it is slow, and nothing here judges a time.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."

# Seconds for the whole guest, and which of package sandbox's tests run in it
# (a regular expression without blanks).
limit=${CGROUP2_TIMEOUT:-540}
tests=${CGROUP2_TESTS:-.}
cache=$PWD/.cache/cgroup2
report=$cache/report
console=$cache/console

mkdir -p "$cache"
# shellcheck source=image.sh
source "$here/image.sh"
find_kernel
make_initramfs
make_image

# The guest's first serial port is its console; the second takes the report,
# so that it is here even if the guest hangs.
machine=(
	-machine q35,accel=tcg -cpu max -smp 2 -m 2048
	-nodefaults -no-user-config -display none -no-reboot
	-serial "file:$console" -serial "file:$report"
	-kernel "$kernel" -initrd "$initramfs"
	-append "console=ttyS0 quiet panic=-1 cgroup_no_v1=all mitigations=off tests=$tests timeout=$((limit - 120))"
	-drive "file=$image,if=virtio,format=raw,cache=unsafe"
)
echo "==> boot, at most ${limit}s"
rm -f "$report" "$console"
touch "$report"
timeout --kill-after=10 "$limit" qemu-system-x86_64 "${machine[@]}" &
qemu=$!
tail -n +1 -f --pid="$qemu" "$report" &
tail=$!
# Interrupted, it leaves no machine running behind; timeout passes TERM on.
trap 'kill "$qemu" "$tail" 2>/dev/null || true' EXIT
status=0
wait "$qemu" || status=$?
wait "$tail" || true
trap - EXIT

end=$(tr -d '\r' <"$report" | tail -n 1)
if [[ $end =~ ^END\ passed=[1-9][0-9]*\ failed=0$ ]]; then
	exit 0
fi
if [[ $end != END* ]]; then
	echo "cgroup2: the guest did not report its end (qemu's status $status; 124 is the time limit); its console said:" >&2
	tail -n 40 "$console" >&2
fi
exit 1
