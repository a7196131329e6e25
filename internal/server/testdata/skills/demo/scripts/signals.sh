# Says which signal it got, and ends after as many as the first argument says.
left=${1:-1}
trap 'echo got USR1; left=$((left - 1)); [ $left -gt 0 ] || exit 0' USR1
echo "ready"
while :; do sleep 0.05; done
