#!/bin/bash
# Runs in the guest as a service of systemd, in /opt/skillrun: installs skillrun as
# docs/operating.md says, and checks what its units promise. No check judges a time.
set -u
source ./settings
source ./report.sh
export PATH=/usr/local/bin:/usr/bin:/usr/sbin HOME=/root LANG=C.UTF-8
group=/sys/fs/cgroup/system.slice/skillrund.service
loops=2

# prints TEXT ARG...: checks that `skillrun run calculator ARG...` prints TEXT and succeeds.
prints() {
	local want=$1 got
	shift
	got=$(skillrun run --wait 5m calculator "$@" 2>&1) && [[ $got == "$want" ]] && return
	echo "status $?, output '$got', want '$want'"
	return 1
}

main_pid() { systemctl show --property MainPID --value skillrund.service; }
active() { [[ $(systemctl is-active skillrund.service) == active ]]; }

# until_is COMMAND...: waits for the command to succeed, as long as the guest has time.
until_is() {
	until "$@"; do
		(($(cut -d . -f 1 /proc/uptime) < seconds)) || return 1
		sleep 0.2
	done
}

install_it() {
	systemd-sysusers /usr/lib/sysusers.d/skillrun.conf && getent group skillrun &&
		sed -i 's|^skills:.*|skills: [/opt/skills]|' /etc/skillrun/skillrund.yaml &&
		grep -q '^skills: \[/opt/skills\]' /etc/skillrun/skillrund.yaml &&
		# The emulated processor needs longer for a script, and for each Python zygote.
		sed -i 's/^\( *wall_time: \)30s/\1300s/; s/^\( *python_zygotes: \).*/\10/' /etc/skillrun/skillrund.yaml &&
		sed -i '/^max_execution_time:/d' /opt/skills/calculator/SKILL.md
}

# The sockets are there before the daemon is, and a call waits for it.
socket_first() {
	systemctl start skillrund.socket && [[ -S /run/skillrun/skillrun.sock && -S /run/skillrun/mcp.sock ]] &&
		[[ $(stat -c '%a %G' /run/skillrun/skillrun.sock) == '660 skillrun' ]] && ! active && prints 42 --language bash -c 'echo 42' && active
}

# The daemon in $1 has ended, another one is the main process, and the service is active.
is_followed() { local now; now=$(main_pid) && [[ $now != 0 && $now != "$1" ]] && [[ ! -e /proc/$1 ]] && active; }

# Clients run a script again and again in the background; each writes a line for each run.
begin_load() {
	local i
	rm -f /run/load.*
	for ((i = 0; i < loops; i++)); do
		while [[ ! -e /run/load.end ]]; do
			prints 42 --language bash -c 'echo 42' >/run/load.$i.out 2>&1 && echo ok || cat /run/load.$i.out
		done >/run/load.$i &
	done
	# Each has begun.
	for ((i = 0; i < loops; i++)); do
		until_is test -s /run/load.$i || return
	done
}

end_load() {
	touch /run/load.end
	wait
	echo "$(cat /run/load.[0-9] | wc -l) runs"
	! grep -v '^ok$' /run/load.[0-9]
}

reloads() {
	local before i restarts
	restarts=$(systemctl show --property NRestarts --value skillrund.service)
	begin_load || return
	for ((i = 0; i < 3; i++)); do
		before=$(main_pid)
		systemctl reload skillrund.service && until_is is_followed "$before" || return
		# systemd has put the new daemon into the service's cgroup.
		grep -q '^0::/system.slice/skillrund.service/' "/proc/$(main_pid)/cgroup" || return
	done
	end_load && [[ $restarts == "$(systemctl show --property NRestarts --value skillrund.service)" ]]
}

# A new configuration that is wrong: the daemon stays.
bad_reload() {
	local before
	before=$(main_pid)
	cp /etc/skillrun/skillrund.yaml /run/good.yaml
	echo 'no_such_key: 1' >>/etc/skillrun/skillrund.yaml
	systemctl reload skillrund.service
	until_is said 'no_such_key'
	cp /run/good.yaml /etc/skillrun/skillrund.yaml
	[[ $(main_pid) == "$before" ]] && active && prints 42 --language bash -c 'echo 42'
}

said() { journalctl --no-pager --unit skillrund.service | grep -q "$1"; }

# No connection is refused in a restart, because systemd keeps the sockets.
restarts() {
	begin_load && systemctl restart skillrund.service && end_load && active
}

killed() {
	local before
	before=$(main_pid)
	systemctl kill --kill-whom=main --signal=KILL skillrund.service
	until_is is_followed "$before" && prints 42 --language bash -c 'echo 42'
}

stopped() {
	systemctl stop skillrund.service skillrund.socket &&
		[[ $(systemctl is-failed skillrund.service) == inactive && ! -e $group ]] &&
		! grep /run/skillrun/ /proc/self/mountinfo && ! pgrep skillrun
}

check 'units without a fault' systemd-analyze verify --man=no /etc/systemd/system/skillrund.service /etc/systemd/system/skillrund.socket
check 'installation' install_it
check 'the configuration' skillrund --check --config /etc/skillrun/skillrund.yaml
check 'a call starts the daemon through its socket' socket_first
check 'boundaries' skillrun doctor
check 'three reloads under load refuse nothing' reloads
check 'a reload that fails leaves the daemon as it is' bad_reload
check 'a restart of a daemon that has taken over refuses nothing, under load' restarts
check 'a restart under load refuses nothing' restarts
check 'the service comes back after SIGKILL' killed
check 'a reload under load refuses nothing' reloads
check 'the service comes back after SIGKILL of a daemon that has taken over' killed
check 'the stop leaves nothing' stopped
((failed == 0)) || journalctl --no-pager --unit skillrund.service | tail -n 60
end
