# The lines of the guest's report, and their counts. For smoke.sh and systemd.sh.
# shellcheck shell=bash

passed=0 failed=0 skipped=0 left_out=0

pass() { passed=$((passed + 1)) && echo "ok   $1"; }
fail() { failed=$((failed + 1)) && echo "FAIL $1"; }
skip() { skipped=$((skipped + 1)) && echo "skip $1"; }
leave_out() { left_out=$((left_out + 1)) && echo "LEFT OUT $1"; }

# check NAME COMMAND...: passes if the command succeeds, else fails and prints the
# command's output. Returns the result.
check() {
	local name=$1 out=/var/tmp/out.$BASHPID
	shift
	if "$@" >$out 2>&1; then
		pass "$name"
	else
		fail "$name"
		sed 's/^/     /' $out
		return 1
	fi
}

# end prints the last line of the report, by which run.sh sees that the guest came to its end.
end() { echo "END passed=$passed failed=$failed skipped=$skipped left_out=$left_out"; }
