#!/usr/bin/env bash
# Draws the Grafana dashboard into the file $1, with the data of a real Prometheus and of a daemon that three
# tenants use for $2 minutes (default 4). SKILLRUN_BIN is the directory of the binaries (default bin/),
# PROMETHEUS the program (default .tools/prometheus).
set -euo pipefail
out=$(realpath "${1:?usage: deploy/dashboard.sh FILE [MINUTES]}")
minutes=${2:-4}
cd "$(dirname "$0")/.."
prometheus=${PROMETHEUS:-$PWD/.tools/prometheus}

. deploy/daemon.sh
tokens=$(mktemp /var/tmp/skillrun-tokens.XXXXXX)
start_daemon "skills: [$PWD/skills]
identity: {tokens: $tokens.json}
concurrency: {running: 3, queued: 40}
tenants:
  acme: {quotas: {weight: 2, queued: 20}}
  globex: {quotas: {queued: 10}}
  initech: {quotas: {starts_per_second: 1, burst: 2}}" "metrics_tcp: '127.0.0.1:0'"

jobs=()
end() {
	kill "${jobs[@]}" 2>/dev/null || true
	wait "${jobs[@]}" 2>/dev/null || true
	stop_daemon
	rm -f "$tokens" "$tokens".*
}
trap end EXIT

# address_of prints the address in the line of a log that has a text. It waits for the line while the process runs.
address_of() {
	local process=$1 log=$2 text=$3
	until grep -q "$text" "$log"; do
		kill -0 "$process" || { cat "$log" >&2; exit 1; }
		sleep 0.1
	done
	sed -n "s/.*$text.*address=\([^ ]*\).*/\1/p" "$log" | head -1
}

# start_prometheus starts one that scrapes the daemon once a second.
start_prometheus() {
	local target
	target=$(address_of "$daemon" "$dir/log" 'listening for Prometheus')
	cat >"$dir/prometheus.yml" <<-END
		global: {scrape_interval: 1s, evaluation_interval: 1s}
		rule_files: ['$PWD/deploy/prometheus/skillrund.rules.yml']
		scrape_configs: [{job_name: skillrund, static_configs: [{targets: ['$target']}]}]
	END
	"$prometheus" --config.file="$dir/prometheus.yml" --storage.tsdb.path="$dir/prometheus" \
		--web.listen-address=127.0.0.1:0 2>"$dir/prometheus.log" &
	jobs+=($!)
}

# use_as keeps $2 programs of a tenant running, one after the other, with a pause of $3 seconds. Their output
# and their ends are only for the daemon's counters.
use_as() {
	local tenant=$1 clients=$2 pause=$3
	"$bin/skillrund" --config "$dir/skillrund.yaml" token create --tenant "$tenant" --name load --role invoke >"$tokens.$tenant" 2>/dev/null
	for ((i = 0; i < clients; i++)); do
		while true; do
			for program in 'print(6*7)' 'import time; time.sleep(0.3)' 'sum(range(3000000))' 'print("x" * 100000)' 'raise SystemExit(1)' \
				'import time; time.sleep(9)' 'open("result", "w").write("y" * 50000)'; do
				"$bin/skillrun" --token-file "$tokens.$tenant" run -q --timeout 2s calculator -c "$program" || true
				sleep "$pause"
			done
		done >/dev/null 2>&1 &
		jobs+=($!)
	done
}

start_prometheus
use_as globex 1 2
use_as initech 2 0.2
url=$(address_of "${jobs[0]}" "$dir/prometheus.log" 'Listening on')
echo "the daemon serves three tenants for $minutes minutes"
sleep $((minutes * 30))
use_as acme 6 0 # the machine is full from here on
sleep $((minutes * 30))
python3 deploy/grafana/draw.py "http://$url" "$minutes" >"$dir/dashboard.svg"
cp "$dir/dashboard.svg" "$out"
