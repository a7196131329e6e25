#!/usr/bin/env bash
# Runs skillrun on a machine with cgroup v2 only, whatever this one has: boots
# Debian's kernel in qemu with a small Debian of this machine's own files, runs
# smoke.sh in it, prints its report, and succeeds only if every check passed.
# plan.sh lists the tests. In the form systemd, the guest's first process is systemd, and
# systemd.sh checks the units of deploy/.
#
# Expects bin/skillrund, bin/skillrun and bin/skillrun-network, and in .cache/cgroup2 sandbox.test, cgroup.test,
# mount.test, preflight.test, pyzygote.test, network.test, gateway.test, helper.test and skillrund.test (the tests of
# packages sandbox, sandbox/internal/{cgroup,mount,preflight,pyzygote}, internal/network,
# internal/network/{gateway,helper} and cmd/skillrund), faulty/skillrund and faulty/skillrun-network (for the mutations) and
# faulty/sandbox.test (the tests of package sandbox, with the tag skillrun_faults), all static:
# `make test-cgroup2` builds them. The form systemd needs only the first three. Needs root, because the image's files belong to
# root.
#
# The guest is emulated in software, because in a virtual machine /dev/kvm may open
# and then fail on the guest's instructions. So the guest is slow, and no check
# judges a time.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."

# The form: short, full or all (plan.sh), or systemd (systemd.sh).
form=${CGROUP2_FORM:-full}
init=/opt/skillrun/guest.sh
case $form in
short | full) limit=540 ;;
all) limit=1500 ;;
systemd)
	limit=1500
	init='/lib/systemd/systemd systemd.unit=checks.service systemd.show_status=false'
	;;
*)
	echo "cgroup2: CGROUP2_FORM=$form: take short, full, all or systemd" >&2
	exit 2
	;;
esac
# Seconds for the whole guest. If a required part has not ended by then, the run fails.
# Other parts are left out, and the report says so.
limit=${CGROUP2_TIMEOUT:-$limit}
# If set, only the tests that this pattern names run (go test -run).
run=${CGROUP2_RUN:-}
# With run: more flags for package sandbox's tests.
flags=${CGROUP2_FLAGS:-}
cache=$PWD/.cache/cgroup2
report=$cache/report
console=$cache/console

mkdir -p "$cache"
exec 9>"$cache/lock"
flock --nonblock 9 || {
	echo "cgroup2: another run uses $cache; waiting for its end"
	flock 9
}
# shellcheck source=image.sh
source "$here/image.sh"
find_kernel
make_initramfs
make_image

# Features that are slow in emulation and therefore off: copying by single bytes (erms,
# fsrm) or words (112 is rep_good), page tables of five levels, protection keys and other
# state that changes at each entry into the kernel, clocks that are a device (with one,
# starting a sandbox takes three times as long), and timers that are set again for each
# sleep. Instead the kernel ticks 250 times a second, and sleeps end at a tick.
cpu=max,-erms,-fsrm,-la57,-pku,-smap,-smep,-umip
cheap='clearcpuid=112 init_on_alloc=0 tsc=reliable mitigations=off nohz=off highres=off'

# The guest's first serial port is its console; the second takes the report,
# so that it is here even if the guest hangs.
machine=(
	-machine q35 -accel tcg,thread=multi -cpu "$cpu" -smp 2 -m 3072
	-nodefaults -no-user-config -display none -no-reboot
	-serial "file:$console" -serial "file:$report"
	-kernel "$kernel" -initrd "$initramfs"
	-append "console=ttyS0 quiet panic=-1 cgroup_no_v1=all $cheap skillrun.init=$init"
	-drive "file=$image,if=virtio,format=raw,cache=unsafe"
)
echo "==> boot, at most ${limit}s"
rm -f "$report" "$console"
touch "$report"
timeout --kill-after=10 "$limit" qemu-system-x86_64 "${machine[@]}" &
qemu=$!
tail -n +1 -f --pid="$qemu" "$report" &
tail=$!
# An interrupt also ends the virtual machine: timeout passes TERM on.
trap 'kill "$qemu" "$tail" 2>/dev/null || true' EXIT
status=0
wait "$qemu" || status=$?
wait "$tail" || true
trap - EXIT

# The complete logs of the tests, from the guest's disk.
rm -rf "$cache/logs"
debugfs -R "rdump /var/tmp/logs $cache" "$image" 2>/dev/null || true

end=$(tr -d '\r' <"$report" | tail -n 1)
if [[ $end =~ ^END\ passed=[1-9][0-9]*\ failed=0\  ]]; then
	exit 0
fi
if [[ $end != END* ]]; then
	echo "cgroup2: the guest did not report its end (qemu's status $status; 124 is the time limit); its console said:" >&2
	tail -n 40 "$console" >&2
fi
exit 1
