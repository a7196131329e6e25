# To be sourced: start_daemon starts a daemon in a temporary directory and waits for its socket.
# $1 is the configuration without state_dir, run_dir and listen, $2 more of listen. dir is then the directory, which has
# the daemon's log, and SKILLRUN_ADDRESS is set. At exit the daemon ends and dir is removed.
# SKILLRUN_BIN is the directory of the binaries (default bin/).

bin=${SKILLRUN_BIN:-$PWD/bin}

stop_daemon() {
	kill -TERM "$daemon" 2>/dev/null || true
	wait "$daemon" 2>/dev/null || true
	rm -rf "$dir"
}

start_daemon() {
	if ((EUID != 0)); then
		echo "the daemon makes sandboxes as root: run sudo make ${0##*/}" | sed 's/\.sh$//' >&2
		exit 1
	fi
	dir=$(mktemp -d "/var/tmp/skillrun-${0##*/}.XXXXXX")
	chmod 0711 "$dir"
	{
		printf 'state_dir: %s/state\nrun_dir: %s/run\nlisten: {unix: %s/skillrun.sock%s}\n' "$dir" "$dir" "$dir" "${2:+, $2}"
		printf '%s\n' "$1"
	} >"$dir/skillrund.yaml"
	"$bin/skillrund" --config "$dir/skillrund.yaml" >"$dir/log" 2>&1 &
	daemon=$!
	trap stop_daemon EXIT
	# The first start unpacks a Python, and many skills take time.
	until [[ -S $dir/skillrun.sock ]]; do
		if ! kill -0 "$daemon" 2>/dev/null; then
			cat "$dir/log" >&2
			exit 1
		fi
		sleep 0.1
	done
	export SKILLRUN_ADDRESS=unix://$dir/skillrun.sock
}
