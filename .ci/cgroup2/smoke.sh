#!/bin/bash
# What must hold on cgroup v2, run in the guest, in /opt/skillrun. Prints a line
# for each check and, last, END with the counts. No check judges a time.
set -u
# From the kernel's command line: which of package sandbox's tests, and for how
# many seconds at most.
: "${tests:=.}" "${timeout:=300}"
cgroups=/sys/fs/cgroup
slice=$cgroups/system.slice
user_slice=$cgroups/user.slice
passed=0 failed=0

# check NAME COMMAND...: the check passes if the command does; its output is
# shown if not. Returns whether.
check() {
	local name=$1 out=/var/tmp/out
	shift
	if "$@" >$out 2>&1; then
		passed=$((passed + 1))
		echo "ok   $name"
	else
		failed=$((failed + 1))
		echo "FAIL $name"
		sed 's/^/     /' $out
		return 1
	fi
}

# within GROUP COMMAND...: executes the command in that cgroup.
within() {
	local group=$1
	shift
	mkdir -p "$group"
	exec bash -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" "$@"
}

only_v2() { [[ $(stat -f -c %T $cgroups) == cgroup2fs && $(</proc/self/cgroup) == 0::/ ]]; }

# Package sandbox's own tests, each a check.
sandbox_tests() {
	local log=/var/tmp/sandbox.log line
	while IFS= read -r line; do
		echo "$line" >>$log
		if [[ $line =~ ^---\ (PASS|FAIL|SKIP):\ (.*) ]]; then
			check "sandbox ${BASH_REMATCH[2]}" [ "${BASH_REMATCH[1]}" != FAIL ]
		fi
	done < <(
		# Not on /tmp: id-mapped mounts of a tmpfs need Linux 6.3.
		cd src/sandbox && TMPDIR=/var/tmp within $slice/sandbox-test.service \
			../../sandbox.test -test.v -test.run "$tests" -test.timeout "${timeout}s" 2>&1
	)
	wait $! || {
		check 'sandbox tests end well' false
		cat $log
	}
}

source ./daemon.sh
check 'cgroup v2 only' only_v2
echo "     Linux $(uname -r), controllers: $(<$cgroups/cgroup.controllers)"
# As systemd leaves it: controllers passed on to slices, and from there to
# services, of which some delegate, and to sessions.
mkdir $slice $user_slice
echo '+cpu +io +memory +pids' >$cgroups/cgroup.subtree_control
echo '+cpu +io +memory +pids' >$slice/cgroup.subtree_control
echo '+memory +pids' >$user_slice/cgroup.subtree_control
daemon_checks
sandbox_tests
echo "END passed=$passed failed=$failed"
