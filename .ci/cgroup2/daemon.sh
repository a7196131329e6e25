# The daemon on cgroup v2, through its client. For smoke.sh.
# shellcheck shell=bash

service=$slice/skillrund.service
log=/var/tmp/skillrund.log
run_dir=/run/skillrun
first_id=268435456
export SKILLRUN_ADDRESS=unix:///run/skillrund.sock
PATH=/opt/skillrun/bin:$PATH

# In emulation a skill's time limit is too short: remove the calculator's.
configure() {
	mkdir -p /var/tmp/skills
	cp -r skills/calculator /var/tmp/skills/
	sed -i '/^max_execution_time:/d; s/^max_memory:.*/max_memory: 512/' /var/tmp/skills/calculator/SKILL.md
	cat >/var/tmp/skillrund.yaml <<-YAML
		state_dir: /var/lib/skillrun
		# Without prewarmed sandboxes, a cgroup has its execution's name, and no waiting
		# sandbox looks like a leftover. sandbox/ has the tests of prewarmed sandboxes.
		prepared: {zygote: false, sandboxes: 0, python_zygotes: 0}
		run_dir: $run_dir
		skills: [/var/tmp/skills]
		listen:
		  unix: ${SKILLRUN_ADDRESS#unix://}
		limits:
		  default:
		    wall_time: 120s
	YAML
}

# start COMMAND...: starts a daemon with the command and sets $daemon. Fails if the
# daemon ends before it listens.
start() {
	rm -f "${SKILLRUN_ADDRESS#unix://}"
	"$@" skillrund --config /var/tmp/skillrund.yaml >$log 2>&1 &
	daemon=$!
	until [[ -S ${SKILLRUN_ADDRESS#unix://} ]]; do
		if ! kill -0 $daemon 2>/dev/null; then
			cat $log
			return 1
		fi
		sleep 0.1
	done
}

stop() {
	kill -TERM "$daemon" && wait "$daemon" && return
	cat $log
	return 1
}

# prints TEXT ARG...: checks that `skillrun run calculator ARG...` prints TEXT and
# succeeds.
prints() {
	local want=$1 got
	shift
	got=$(skillrun run calculator "$@") && [[ $got == "$want" ]] && return
	echo "status $?, output '$got', want '$want'"
	tail -n 5 $log
	return 1
}

# ends STATUS PATTERN ARG...: checks the exit status of `skillrun run`, and that the
# pattern matches its last event.
ends() {
	local want=$1 pattern=$2 got status event
	shift 2
	got=$(skillrun run --json calculator "$@")
	status=$?
	event=$(tail -n 1 <<<"$got")
	[[ $status == "$want" && $event =~ $pattern ]] && return
	echo "status $status, want $want; last event, want $pattern: $event"
	tail -n 5 $log
	return 1
}

# Prints the cgroups of the daemon's instances.
instances() { find "${1:-$service}" -mindepth 1 -maxdepth 1 -name 'skillrun-*' ! -name skillrun-daemon; }

# Checks that no execution has left a cgroup in the daemon's cgroup $1, a process or a
# mount of the daemon.
nothing_left() {
	local group=${1:-$service} left
	left=$(instances "$group" | xargs -I{} find {} -mindepth 1 -type d)
	left+=$(ps -e -o uid=,pid=,args= | awk -v first=$first_id '$1 >= first')
	left+=$(grep -E ' (overlay|tmpfs) ' "/proc/$daemon/mountinfo" | grep -F " $run_dir/" | grep -vE '/((rootfs|links)[ /]|sandboxes )')
	[[ -z $left ]] && return
	echo "left: $left"
	return 1
}

# begin VARIABLE ARG...: starts an execution, sets the variable to its id and
# $attached to a descriptor of its output, and returns when it has begun to print.
begin() {
	local -n id=$1
	shift
	id=$(skillrun run --detach "$@" calculator -c 'print("ready", flush=True); import time; time.sleep(600)') || return
	exec {attached}< <(skillrun attach "$id" 2>/dev/null)
	attach=$!
	local line
	read -r line <&$attached
	[[ $line == ready ]]
}

# Checks that the kernel's limits of a running execution are the requested ones.
limits_are_set() {
	local running init group file want status
	begin running --memory 64m --processes 9 || return
	# The init of a sandbox has the last 15 characters of the execution's ID as its name.
	init=$(ps -e -o pid=,comm= | awk -v name="${running: -15}" '$2 == name { print $1 }')
	group=$cgroups$(sed -n s/^0:://p "/proc/$init/cgroup")
	while read -r file want; do
		[[ $(<"$group/$file") == "$want" ]] || echo "$file is $(<"$group/$file"), want $want"
	done <<-LIMITS >/var/tmp/differences
		memory.max $((64 << 20))
		memory.swap.max 0
		memory.oom.group 1
		pids.max 11
		cgroup.max.descendants 0
	LIMITS
	skillrun cancel "$running"
	wait "$attach"
	status=$?
	cat /var/tmp/differences
	echo "attach exits with $status after a cancel, want 143"
	[[ ! -s /var/tmp/differences && $status == 143 ]]
}

in_its_leaf() {
	[[ $(<"/proc/$daemon/cgroup") == 0::${service#"$cgroups"}/skillrun-daemon ]] && return
	cat "/proc/$daemon/cgroup"
	return 1
}

# A killed daemon leaves an execution. The next daemon, which systemd starts in the same
# cgroup, ends the execution and reports it.
lost_with_the_daemon() {
	local running old
	begin running || return
	old=$(instances)
	kill -KILL "$daemon"
	wait "$daemon"
	start within "$service/skillrun-daemon" || return
	skillrun show --json "$running" >/var/tmp/shown
	cat /var/tmp/shown
	[[ ! -e $old ]] && grep -q '"end":"EXECUTION_END_DAEMON_LOST"' /var/tmp/shown
}

# A daemon that was started in a terminal shares its cgroup with a shell.
in_a_session() {
	local session=$user_slice/session-1.scope shell
	within "$session" sleep infinity &
	shell=$!
	until grep -qx $shell "$session/cgroup.procs" 2>/dev/null; do
		sleep 0.1
	done
	start within "$session" && prints 4 -c 'print(2 + 2)' && stop
	set -- $?
	kill $shell
	return "$1"
}

# The daemon of a container is its first process, at the root of a cgroup
# namespace.
in_a_container() {
	start within "$slice"/container.scope unshare --cgroup --mount bash -c \
		'umount /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec "$@"' bash &&
		prints 4 -c 'print(2 + 2)' && stop
}

# The ends of executions, through the client. The catalogue tests them as well.
ends_checks() {
	check 'exit code' ends 7 '"EXECUTION_END_EXITED","exitCode":7' -c 'raise SystemExit(7)'
	check 'signal' ends 137 '"EXECUTION_END_SIGNALED","exitCode":-9' -c 'import os; os.kill(os.getpid(), 9)'
	check 'out of memory' ends 137 '"EXECUTION_END_OOM_KILLED".*"oomKillCount":"[1-9]' --memory 64m -c 'x = bytearray(256 << 20)'
	check 'out of memory in a child' ends 137 '"EXECUTION_END_OOM_KILLED"' --memory 64m --language bash \
		-c 'python3 -c "x = bytearray(256 << 20)"; echo survived; sleep 600'
	check 'files count as memory' ends 137 '"EXECUTION_END_OOM_KILLED"' --memory 64m --language bash \
		-c 'head -c 200M /dev/zero >big; sleep 600'
	check 'process limit' ends 3 '"pidsMaxCount":"[1-9]' --processes 9 -c '
import os, time
try:
    while True:
        if os.fork() == 0:
            time.sleep(600)
except BlockingIOError:
    raise SystemExit(3)'
	check 'fork bomb' ends 124 '"EXECUTION_END_TIMED_OUT".*"pidsMaxCount":"[1-9]' --processes 32 --timeout 5s --language bash \
		-c 'bomb() { bomb | bomb & }; bomb; while :; do sleep 1; done'
	check 'timeout' ends 124 '"EXECUTION_END_TIMED_OUT".*"EXECUTION_DEADLINE_WALL"' --timeout 2s -c 'import time; time.sleep(600)'
	check 'CPU limit' ends 124 '"EXECUTION_END_TIMED_OUT".*"EXECUTION_DEADLINE_CPU"' --cpu-time 1s -c 'while True: pass'
	check 'background processes end' ends 0 '"EXECUTION_END_EXITED","exitCode":0' --language bash -c 'sleep 600 & setsid sleep 600 & true'
}

# The places to start a daemon: a service that delegates, a session, a container. The
# service gets more checks than the others.
daemon_checks() {
	configure
	check 'daemon as a service' start within "$service" || return
	check 'daemon in a leaf of its own' in_its_leaf
	check 'boundaries' skillrun doctor
	check 'script' prints 42 scripts/calc.py '6 * 7'
	check 'command' prints 42 -- python /skills/calculator/scripts/calc.py '6 * 7'
	check 'code in bash' prints 42 --language bash -c 'echo $((6 * 7))'
	[[ $form != short ]] || ends_checks
	check 'limits as the kernel has them' limits_are_set
	check 'nothing is left' nothing_left
	check 'execution lost with its daemon' lost_with_the_daemon
	check 'nothing is left of a killed daemon' nothing_left
	check 'end of the daemon' stop
	check 'daemon in a session' in_a_session
	check 'daemon in a container' in_a_container
	nothing_is_left
}

nothing_is_left() {
	[[ $cut ]] || check 'no cgroup is left of any' [ -z "$(find "$cgroups" -name 'skillrun-*' ! -name skillrun-daemon)" ]
}
