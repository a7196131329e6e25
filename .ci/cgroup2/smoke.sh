#!/bin/bash
# Runs in the guest, in /opt/skillrun: the checks on cgroup v2. Prints a line for each
# check and for each part that was left out, and at last END with the counts. No
# check judges a time.
set -u
# From run.sh: $form (short or full), $run (a pattern of tests, or nothing), $flags
# for these, and $seconds for all of it.
source ./settings
cgroups=/sys/fs/cgroup
slice=$cgroups/system.slice
user_slice=$cgroups/user.slice
logs=/var/tmp/logs
cut='' # a part that was killed at its time limit, so its cgroups may remain

# Waits and deadlines of the tests are this many times longer here. The emulated
# processor is about fifteen times slower; the waits are generous enough for the rest.
export SKILLRUN_TEST_SLOWER=4
# For the tests of cmd/skillrund: the binaries and the kernel's modules. The second
# variable also allows tests that change the machine.
export SKILLRUN_BIN=$PWD/bin SKILLRUN_OWN_MACHINE=$PWD/modules SKILLRUN_HOSTILE_BUILT=$PWD/built
# The daemon that can leave a layer off: the guest has no Go to build it with.
export SKILLRUN_FAULTY_BIN=$PWD/faulty
# In this slice each daemon under test gets its own cgroup, like a service.
export SKILLRUN_TEST_SLICE=$slice
# Not on /tmp: id-mapped mounts of a tmpfs need Linux 6.3.
export TMPDIR=/var/tmp

source ./report.sh

# within GROUP COMMAND...: executes the command in the cgroup.
within() {
	local group=$1
	shift
	exec bash -c "$within" "$group" "$@"
}
within='mkdir -p "$0" && echo $$ >"$0/cgroup.procs" && exec "$@"'

only_v2() { [[ $(stat -f -c %T $cgroups) == cgroup2fs && $(</proc/self/cgroup) == 0::/ ]]; }

uptime() { cut -d . -f 1 /proc/uptime; }
left() { echo $((seconds - $(uptime))); }

# tests NAME DIRECTORY BINARY ARG...: runs the tests of a binary in the directory of
# their sources. Each test and each case of the catalogue is a check. A part with a ! in
# its NAME must end in time; of other parts, late tests are left out.
tests() {
	local name=${1#!} must=${1%"${1#!}"} dir=$2 budget log began status line at=''
	local -A said=()
	shift 2
	budget=$(($(left) - 15)) log=$logs/${name//[^a-z]/-} began=$(uptime)
	if ((budget < 20)); then
		too_late "$must" "$name: no time is left for it (CGROUP2_TIMEOUT=1800 gives it some)"
		return
	fi
	while IFS= read -r line; do
		echo "$line" >>"$log"
		case $line in
		'=== '*) at=${line##* } ;;
		*_test.go:*) said[$at]=${line#*_test.go:*: } ;;
		*'--- '[FPS]*) result "$line" ;;
		esac
	done < <(
		cd "$dir" && timeout --kill-after=5 $budget bash -c "$within" "$slice/tests-${log##*/}.service" "$@" 2>&1
		echo $? >"$log.status"
	)
	status=$(<"$log.status")
	echo "     $name: $(($(uptime) - began)) s"
	sync
	case $status in
	0) ;;
	124 | 137)
		cut=$name
		too_late "$must" "$name: what had not ended after $budget s (CGROUP2_TIMEOUT=1800 gives it more)"
		;;
	*)
		fail "$name ends with $status"
		tail -n 300 "$log"
		;;
	esac
}

too_late() { if [[ $1 ]]; then fail "$2"; else leave_out "$2"; fi; }

# beside COMMAND runs the command in the background and prints its lines as they come.
# joined waits for its end and adds its counts.
beside() {
	(
		passed=0 failed=0 skipped=0 left_out=0 cut=''
		"$@"
		echo "$passed $failed $skipped $left_out $cut" >/var/tmp/counts
	) &
	besides=$!
}

joined() {
	local counts
	wait "$besides"
	if ! read -r -a counts </var/tmp/counts; then
		fail 'what ran beside the others has not come to its end'
		return
	fi
	passed=$((passed + counts[0])) failed=$((failed + counts[1]))
	skipped=$((skipped + counts[2])) left_out=$((left_out + counts[3]))
	cut+=${counts[*]:4}
}

# result LINE: counts one test. Of subtests it counts the catalogue's cases, failures
# and skipped tests.
result() {
	[[ $1 =~ ^(\ *)---\ (PASS|FAIL|SKIP):\ ([^ ]+)\ (.*) ]] || return
	local depth=$((${#BASH_REMATCH[1]} / 4)) how=${BASH_REMATCH[2]} test=${BASH_REMATCH[3]} took=${BASH_REMATCH[4]}
	case $how in
	FAIL) fail "$test $took" ;;
	SKIP) skip "$test: ${said[$test]:-no reason}" ;;
	PASS) if ((depth == 0)) || [[ $depth == 1 && $test == TestHostile* ]]; then pass "$test $took"; fi ;;
	esac
}

# sandbox_tests NAME ARG..., daemon_tests NAME ARG...: tests of packages sandbox and
# cmd/skillrund. faulty_tests NAME ARG...: package sandbox, built with the tag skillrun_faults.
# room_tests PACKAGE NAME ARG...: tests of a package of sandbox/internal. network_tests NAME ARG...,
# gateway_tests NAME ARG..., helper_tests NAME ARG...: packages internal/network, internal/network/gateway and
# internal/network/helper.
sandbox_tests() { tests "$1" src/sandbox "$PWD/sandbox.test" -test.v "${@:2}"; }
faulty_tests() { tests "$1" src/sandbox "$PWD/faulty/sandbox.test" -test.v "${@:2}"; }
room_tests() { tests "$2" "src/sandbox/internal/$1" "$PWD/$1.test" -test.v "${@:3}"; }
network_tests() { tests "$1" src/internal/network "$PWD/network.test" -test.v "${@:2}"; }
gateway_tests() { tests "$1" src/internal/network/gateway "$PWD/gateway.test" -test.v "${@:2}"; }
helper_tests() { tests "$1" src/internal/network/helper "$PWD/helper.test" -test.v "${@:2}"; }
daemon_tests() { tests "$1" src/cmd/skillrund "$PWD/skillrund.test" -test.v "${@:2}"; }

source ./daemon.sh
source ./plan.sh
mkdir -p $logs
check 'cgroup v2 only' only_v2
echo "     Linux $(uname -r), controllers: $(<$cgroups/cgroup.controllers)"
# The cgroups that systemd would make: controllers are delegated to slices, and from
# there to services (of which some delegate in turn) and to sessions.
mkdir $slice $user_slice
echo '+cpu +io +memory +pids' >$cgroups/cgroup.subtree_control
echo '+cpu +io +memory +pids' >$slice/cgroup.subtree_control
echo '+memory +pids' >$user_slice/cgroup.subtree_control
if [[ $run ]]; then
	asked
else
	planned
fi
echo "     $(uptime) s since the boot, of $seconds"
end
