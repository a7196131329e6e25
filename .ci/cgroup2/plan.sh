# What runs in the guest: what must, and, as time allows, what else, in the order of
# its weight. For smoke.sh, and for whoever wants to know what is left out and why. On
# two free processors the whole of it takes about 15 minutes, so that in the usual nine
# (CGROUP2_TIMEOUT) the last parts are left out, which the report says.
# shellcheck shell=bash

# What is asked for by make test-cgroup2 RUN=PATTERN, of both packages. One of them
# may have nothing of that name.
asked() {
	# shellcheck disable=SC2086 # several flags
	sandbox_tests '!sandbox' -test.run "$run" $flags
	daemon_tests '!daemon' -test.run "$run"
	nothing_is_left
}

# The sandbox's tests on which the rest stands.
short='^(TestTrue|TestEnds|TestOutOfMemory|TestProcesses|TestSweep|TestPosture|TestUnified)'

# Those of them for sandboxes that a mother makes ahead, which enter their cgroups
# otherwise.
prepared='^(TestTrue|TestEnds|TestOutOfMemory|TestProcesses|TestPosture|TestUnified|TestPool|TestMother|TestPrepared)'

# Of the faults those of a daemon that was killed or stopped, of cgroups that it left
# and of what it refuses. The others have nothing to do with cgroups, and start many
# daemons.
faults='^TestHostileFault$/^fault-(02|04|12|14)-'
other_faults='^TestHostileFault$/^fault-(05|06|07|09|13|15|16|17|18)-'
crowds='faults 01, 03, 08 and 10'

# They take much and say the same on every kernel: output and input of 50 MiB, patterns
# of file names, a start for each number of descriptors.
elsewhere='^(TestMuchOutputAndInput|TestGlob.*|TestStartWithoutDescriptors)$'

planned() {
	daemon_checks
	if [[ $form == short ]]; then
		sandbox_tests '!sandbox' -test.run "$short"
		nothing_is_left
		leave_out 'the catalogue and most tests of the sandbox: this is the short form'
		return
	fi
	daemon_tests '!catalogue, kernel and processes' -test.run '^TestHostile(Kernel|ProcSys|Network)$'
	daemon_tests 'catalogue, resources' -test.run '^TestHostileResource$'
	daemon_tests 'catalogue, files and leaks' -test.run '^TestHostile(Leak|Filesystem)$'
	daemon_tests 'catalogue, faults of the machine' -test.run '^TestHostileMachine$'
	sandbox_tests 'sandbox' -test.run "$short"
	sandbox_tests 'sandbox, prepared' -test.run "$prepared" -prepared=2
	daemon_tests 'catalogue, faults' -test.run "$faults"
	sandbox_tests 'boundaries' -test.run '^TestProbe'
	daemon_tests 'doctor' -test.run '^TestDoctor'
	sandbox_tests 'sandbox, all else' -test.run . -test.skip "$short|^TestProbe|$elsewhere"
	daemon_tests 'catalogue, faults without cgroups' -test.run "$other_faults"
	nothing_is_left
	leave_out "sandbox, $elsewhere: much work that cgroups have no part in"
	leave_out "$crowds: more starts at once than emulation makes within a daemon's own deadlines"
	leave_out 'TestHostileAPI: requests are answered before there is a cgroup'
	leave_out 'the embedded Python: to unpack it takes two minutes in emulation'
}
