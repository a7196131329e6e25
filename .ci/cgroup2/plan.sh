# The tests that run in the guest, by form. The form short has the tests on which all
# others depend. The form full also has the catalogue without TestHostileAPI, the tests
# that depend on how a sandbox is made, and the daemon's tests of networks. The form all also has the other
# tests of package sandbox, the mutations, and the other tests of networks.
# smoke.sh reads this file, and the reasons for tests that are left out are in it. A part
# with a ! fails if the time (CGROUP2_TIMEOUT) is too short for it, for example on a busy
# machine. Of the other parts, the last ones are then left out, and the report says so.
# shellcheck shell=bash

# The tests of make test-cgroup2 RUN=PATTERN, in all packages. A package may have no test of
# that name.
asked() {
	# shellcheck disable=SC2086 # several flags
	sandbox_tests '!sandbox' -test.run "$run" $flags
	if [[ $run == *TestProbeNamesWhatIsWeak* ]]; then
		faulty_tests '!sandbox with faults' -test.run "$run"
	fi
	for room in cgroup mount preflight pyzygote; do
		room_tests $room "!$room" -test.run "$run"
	done
	network_tests '!network' -test.run "$run"
	gateway_tests '!gateway' -test.run "$run"
	helper_tests '!helper' -test.run "$run"
	daemon_tests '!daemon' -test.run "$run"
	nothing_is_left
}

# The basic tests of package sandbox.
short='^(TestTrue|TestEnds|TestOutOfMemory|TestProcesses|TestSweep|TestPosture|TestUnified|TestGoldenPosture)'

# Tests that prewarm sandboxes and start Python zygotes, whatever flags they have.
prewarmed='^(TestPrewarm|TestPool|TestZygote|TestWaiting|TestDiscard|TestAssign|TestPythonZygote)'

# The fork server itself.
fork_server='^TestForkServer(Commands|Fresh|Posture|Ends|Survives)$'

# Compares each script in a forked and in a started Python. Of the scripts in
# sandbox/internal/pyzygote/testdata/forkserver, these read the kernel's state of a process or its end.
scripts='^TestForkServerScripts$'
scripts_of_kernel="$scripts/^(abort|exit|flags|fork|multiprocessing|os_|process|segv|sig|stdin|stdout|subprocess|threads)"

# These take long and have the same result on every kernel: output and input of 50 MiB,
# patterns of file names, a start for each number of descriptors.
elsewhere='^(TestMuchOutputAndInput|TestGlob.*|TestManyMatches|TestStartWithoutDescriptors)$'

# Tests whose result may depend on the way in which a sandbox enters its cgroups: limits,
# counters, ends, posture and leftovers. Each runs for both makers of sandboxes.
makers='^(TestTrue|TestEnds|TestOutOfMemory|TestProcesses|TestPosture|TestDeadlines|TestUsage|TestSignal|TestStop|TestClose|TestTooLittleMemory|TestDaemonDeath|TestView|TestNothingElse|TestFilterInside)'

# Faults in which a daemon is killed, stopped or starved, or refuses to start. They run
# before other_faults, which do not depend on cgroups.
faults='^TestHostileFault$/^fault-(01|02|03|04|08|10|12|14)-'
other_faults='^TestHostileFault$/^fault-(05|06|07|09|13|15|16|17|18)-'

# Tests of networks with servers, or other programs, that the guest does not have.
servers='^TestNetwork(Bypasses|Clients|Credentials|Flood|Rules)$'

planned() {
	daemon_checks
	room_tests cgroup '!cgroup' -test.run .
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
	daemon_tests 'network' -test.run '^TestNetwork' -test.skip "$servers"
	joined
	if [[ $form == all ]]; then
		beside sandbox_made
		sandbox_prewarmed
		joined
		daemon_tests 'mutations' -test.run '^TestMutation'
		network_tests 'network helpers' -test.run .
		gateway_tests 'gateways' -test.run .
		helper_tests 'network helpers, confined' -test.run .
	else
		leave_out 'other tests of the sandbox, of the pool, of Python zygotes: CGROUP2_FORM=all has them'
	fi
	nothing_is_left
	leave_out "sandbox, $elsewhere: much work that cgroups have no part in"
	leave_out "sandbox, scripts of Python zygotes that are not $scripts_of_kernel: what Python does is the same on every kernel"
	leave_out "$servers: they need programs that the guest lacks, such as nginx and git"
	leave_out "TestHostileAPI: its cases attack the daemon's own code, which is the same on every machine; other cases test limits and ends of sandboxes"
	leave_out 'the embedded Python: to unpack it takes two minutes in emulation'
}

# Runs at the same time as the rest of the catalogue: the guest has two processors.
second_lane() {
	sandbox_tests '!sandbox' -test.run "$short"
	daemon_tests '!catalogue, faults without cgroups' -test.run "$other_faults"
	sandbox_tests 'boundaries' -test.run '^TestProbe'
	faulty_tests 'missing boundaries' -test.run '^TestProbeNamesWhatIsWeak$'
	sandbox_tests 'sandbox, for every maker' -test.run "$makers"
}

# The tests of packages mount and preflight, and the tests of package sandbox with sandboxes
# that are made on request.
sandbox_made() {
	room_tests mount mount -test.run .
	room_tests preflight preflight -test.run .
	sandbox_tests 'sandbox, all else' -test.run . -test.skip "$short|$prewarmed|^TestProbe|$elsewhere"
}

# The tests of prewarmed sandboxes.
sandbox_prewarmed() {
	sandbox_tests 'sandbox, prewarmed' -test.run "$prewarmed"
	room_tests pyzygote 'fork server' -test.run "$fork_server"
	room_tests pyzygote 'scripts of Python zygotes' -test.run "$scripts_of_kernel"
}
