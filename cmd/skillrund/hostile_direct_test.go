package main

import (
	"testing"
)

// waiting has the cases that need a feature which the daemon does not have yet. Each is
// skipped with its reason.
var waiting = map[string]string{
	"leak-10-skill-of-other-tenant": "waits for skills that belong to one tenant: there are none",
	"api-22-noisy-neighbour":        "waits for tenants with quotas: they have none",
}

// directCases has the cases that are requests of clients or faults of the host. d is the
// daemon of the group. Faults start their own daemons and get a nil d.
var directCases = map[string]func(t *testing.T, d *running, c hostileCase){
	"leak-11-execution-of-other-tenant": foreignExecution,
	"leak-12-error-and-log-hygiene":     errorAndLogHygiene,
	"leak-16-random-state":              randomState,
	"leak-17-bytes-in-zygotes":          bytesInZygotes,
	"res-32-slow-reader":                slowReader,
	"res-33-stdin-flood":                stdinFlood,

	"api-01-huge-message":       hugeMessage,
	"api-02-gzip-bomb":          gzipBomb,
	"api-03-path-traversal":     pathTraversal,
	"api-04-nul-and-utf8":       nulAndUTF8,
	"api-05-env-injection":      envInjection,
	"api-06-cwd-tricks":         cwdTricks,
	"api-07-entrypoint-tricks":  entrypointTricks,
	"api-08-archives":           unpackedArchives,
	"api-09-skill-ids":          skillIDs,
	"api-10-slow-loris":         slowLoris,
	"api-11-stream-flood":       streamFlood,
	"api-12-http2-abuse":        http2Abuse,
	"api-13-cancel-storm":       cancelStorm,
	"api-14-disconnect":         disconnect,
	"api-15-replay":             replay,
	"api-16-limit-overflow":     limitOverflow,
	"api-17-bad-credentials":    badCredentials,
	"api-18-tenant-spoof":       spoofedTenant,
	"api-19-proto-fuzz":         protoFuzz,
	"api-20-quota-race":         quotaRace,
	"api-21-skill-swap-toctou":  skillSwap,
	"api-23-connection-hogs":    connectionHogs,
	"api-24-crowd-of-hogs":      crowdOfHogs,
	"api-25-connections-in-use": connectionsInUse,
	"api-26-slot-hog":           slotHog,
	"api-27-session-hogs":       sessionHogs,
	"api-28-line-hogs":          lineHogs,
	"api-29-budget-hog":         budgetHog,
	"api-30-lying-index":        lyingIndex,
	"api-31-around-the-rules":   aroundTheRules,
	"api-32-unpacked-git":       unpackedRepository,
	"api-33-deep-input":         deepInput,
	"api-34-python-hog":         pythonHog,

	"fault-01-sigkill-midrun":                killedMidRun,
	"fault-02-pdeathsig-cleared":             parentDeathSignalCleared,
	"fault-03-kill-between-create-and-start": killedWhileStarting,
	"fault-04-stale-cgroup":                  frozenLeftovers,
	"fault-05-disk-full":                     diskFull,
	"fault-06-store-power-cut":               powerCut,
	"fault-07-corrupt-state":                 corruptState,
	"fault-08-daemon-oom":                    daemonOutOfMemory,
	"fault-09-fd-exhaustion":                 descriptorsExhausted,
	"fault-10-pid-exhaustion":                processesExhausted,
	"fault-11-clock-jump":                    func(t *testing.T, _ *running, _ hostileCase) { t.Skip(changesTheMachine) },
	"fault-12-fail-closed":                   failClosed,
	"fault-13-binary-replaced":               binaryReplaced,
	"fault-14-sigstop-daemon":                daemonStopped,
	"fault-15-graceful-drain":                drainOfMany,
	"fault-16-init-failure":                  initFailures,
	"fault-17-slow-disk":                     frozenDisk,
	"fault-18-leak-soak":                     leakSoak,
}
