# The tests that run in the guest, by form. The form short has the tests on which all
# others depend. The form full also has the whole catalogue and the tests that depend on
# how a sandbox is made. The form all also has the other tests of package sandbox.
# smoke.sh reads this file, and the reasons for tests that are left out are in it. A part
# with a ! fails if the time (CGROUP2_TIMEOUT) is too short for it, for example on a busy
# machine. Of the other parts, the last ones are then left out, and the report says so.
# shellcheck shell=bash

# What is asked for by make test-cgroup2 RUN=PATTERN, of all three packages.
# Some of them may have nothing of that name.
asked() {
	# shellcheck disable=SC2086 # several flags
	sandbox_tests '!sandbox' -test.run "$run" $flags
	cgroup_tests '!cgroup' -test.run "$run"
	daemon_tests '!daemon' -test.run "$run"
	nothing_is_left
}

# The sandbox's tests on which the rest stands.
short='^(TestTrue|TestEnds|TestOutOfMemory|TestProcesses|TestSweep|TestPosture|TestUnified|TestGoldenPosture)'

# Tests that prewarm sandboxes and start Python zygotes, whatever flags they have.
prewarmed='^(TestPrepare|TestPool|TestZygote|TestWaiting|TestDiscard|TestAssign|TestChild|TestPythonZygote|TestForkServer(Commands|Fresh|Posture|Ends|Survives))'

# A script after the other, each in a forked Python and in one that is started. Of
# those in sandbox/testdata/forkserver the ones that look at what the kernel has of a
# process, and at how it ends.
scripts='^TestForkServerScripts$'
scripts_of_kernel="$scripts/^(abort|exit|flags|fork|multiprocessing|os_|process|segv|sig|stdin|stdout|subprocess|threads)"

# They take much and say the same on every kernel: output and input of 50 MiB, patterns
# of file names, a start for each number of descriptors. Or need a compiler.
elsewhere='^(TestMuchOutputAndInput|TestGlob.*|TestManyMatches|TestStartWithoutDescriptors|FuzzInit|FuzzZygote|TestSeedsOfFuzzZygote|TestCompiledGuards)$'

# What the kernel does otherwise for sandboxes that enter their cgroups otherwise: limits,
# counters, ends, what is read back and what is left. Each runs for every way to make a
# sandbox.
makers='^(TestTrue|TestEnds|TestOutOfMemory|TestProcesses|TestPosture|TestDeadlines|TestUsage|TestSignal|TestStop|TestClose|TestTooLittleMemory|TestDaemonDeath|TestView|TestNothingElse|TestFilterInside)'

# Those of the faults in which a daemon is killed, stopped or starved, or refuses to
# start, come before those that have nothing to do with cgroups.
faults='^TestHostileFault$/^fault-(01|02|03|04|08|10|12|14)-'
other_faults='^TestHostileFault$/^fault-(05|06|07|09|13|15|16|17|18)-'

planned() {
	daemon_checks
	cgroup_tests '!cgroup' -test.run .
	if [[ $form == short ]]; then
		sandbox_tests '!sandbox' -test.run "$short"
		nothing_is_left
		leave_out 'the catalogue and most tests of the sandbox: this is the short form'
		return
	fi
	# These tests run first, and no other test runs at the same time.
	daemon_tests '!catalogue, faults of the machine' -test.run '^TestHostileMachine$'
	beside second_lane
	daemon_tests '!catalogue, kernel and processes' -test.run '^TestHostile(Kernel|ProcSys|Network)$'
	daemon_tests '!catalogue, resources' -test.run '^TestHostileResource$'
	daemon_tests '!catalogue, files and leaks' -test.run '^TestHostile(Leak|Filesystem)$'
	daemon_tests '!catalogue, faults' -test.run "$faults"
	daemon_tests 'doctor' -test.run '^TestDoctor'
	joined
	if [[ $form == all ]]; then
		beside sandbox_made
		sandbox_prewarmed
		joined
	else
		leave_out 'other tests of the sandbox, of the pool, of Python zygotes: CGROUP2_FORM=all has them'
	fi
	nothing_is_left
	leave_out "sandbox, $elsewhere: much work that cgroups have no part in"
	leave_out "sandbox, scripts of Python zygotes that are not $scripts_of_kernel: what Python does is the same on every kernel"
	leave_out 'TestHostileAPI: requests are answered before there is a cgroup'
	leave_out 'the embedded Python: to unpack it takes two minutes in emulation'
}

# Beside the rest of the catalogue, as the guest has two processors.
second_lane() {
	sandbox_tests '!sandbox' -test.run "$short"
	daemon_tests '!catalogue, faults without cgroups' -test.run "$other_faults"
	sandbox_tests 'boundaries' -test.run '^TestProbe'
	sandbox_tests 'sandbox, for every maker' -test.run "$makers"
}

# The tests of package sandbox, each in a sandbox that is made when it is asked for.
sandbox_made() {
	sandbox_tests 'sandbox, all else' -test.run . -test.skip "$short|$prewarmed|^TestProbe|$scripts|$elsewhere"
}

# The tests of prewarmed sandboxes.
sandbox_prewarmed() {
	sandbox_tests 'sandbox, prewarmed' -test.run "$prewarmed"
	sandbox_tests 'scripts of Python zygotes' -test.run "$scripts_of_kernel"
}
