package bench

import (
	"fmt"
	"time"

	"github.com/docker/go-units"
)

// groups returns all measurements in the order of the table. A row's name never changes, since
// reports are compared by it. A ratio is to the bare program of the same turn, or to the baseline
// that against names. The number after the program is the number of samples at full scale. A row
// from free has no target: it is shown for comparison. Rows with "idle" pause before each
// request.
// A target is a limit on the ratio, or on the value in the row's unit. Most targets are ratios,
// because they hold on fast and slow machines alike. They stand for effects that a caller notices: a warm
// script should start sooner than a bare Python, and a tail should not be many times the median.
func groups(s scale) []group {
	gap := func(d time.Duration) string { return fmt.Sprintf("%d ms idle before each", d.Milliseconds()) }
	count := func(n int) string { return grouped(n) }
	return []group{
		{"warm true, back to back", []Row{
			ratioAtMost(2.0).row("true-p50", "warm `true`, p50", "ms"),
			ratioAtMost(4.0).row("true-p95", "warm `true`, p95", "ms"),
		}, latency("true", trueProgram, 400, 0)},
		{"warm true, " + gap(s.idle[0]), []Row{
			ratioAtMost(3).row("true-idle100-p50", "warm `true`, "+gap(s.idle[0])+", p50", "ms"),
			ratioAtMost(6).row("true-idle100-p95", "warm `true`, "+gap(s.idle[0])+", p95", "ms"),
		}, latency("true-idle100", trueProgram, 200, s.idle[0])},
		{"warm true, " + gap(s.idle[1]), []Row{
			free("true-idle300-p50", "warm `true`, "+gap(s.idle[1])+", p50", "ms"),
			free("true-idle300-p95", "warm `true`, "+gap(s.idle[1])+", p95", "ms"),
		}, latency("true-idle300", trueProgram, 100, s.idle[1])},
		{"warm Python, back to back", []Row{
			ratioAtMost(0.35).row("python-p50", "warm Python `print(2+2)`, p50", "ms"),
			ratioAtMost(0.7).row("python-p95", "warm Python `print(2+2)`, p95", "ms"),
		}, python(latency("python", sum, 300, 0))},
		{"warm Python, " + gap(s.idle[1]), []Row{
			free("python-idle300-p50", "warm Python `print(2+2)`, "+gap(s.idle[1])+", p50", "ms"),
			free("python-idle300-p95", "warm Python `print(2+2)`, "+gap(s.idle[1])+", p95", "ms"),
		}, python(latency("python-idle300", sum, 100, s.idle[1]))},
		{"warm pandas, back to back", []Row{
			ratioAtMost(0.08).row("pandas-p50", "warm Python that imports pandas, p50", "ms"),
			free("pandas-p95", "warm Python that imports pandas, p95", "ms"),
		}, python(pandas(latency("pandas", pandasSum, 40, 0)))},
		{"warm pandas, " + gap(s.idle[1]), []Row{
			free("pandas-idle300-p50", "warm Python that imports pandas, "+gap(s.idle[1])+", p50", "ms"),
		}, python(pandas(latency("pandas-idle300", pandasSum, 20, s.idle[1])))},
		{"warm Python of a virtual environment", []Row{
			free("venv-p50", "warm Python of a skill's venv that imports 200 modules, p50", "ms"),
			free("venv-p95", "warm Python of a skill's venv that imports 200 modules, p95", "ms"),
			valueAtMost(50).row("venv-overhead-p95", "time that skillrun adds to that, p95", "ms"),
			valueAtMost(200).row("venv-overhead-max", "the same, the largest", "ms"),
			free("venv-first", "first execution of it after the import", "ms"),
		}, venv},
		{"cold true", []Row{
			ratioAtMost(0.6).row("cold-true-p50", "cold `true`, p50", "ms").against("runc run"),
			free("cold-true-bare-p50", "cold `true`, p50", "ms"),
			free("cold-true-idle300-p50", "cold `true`, "+gap(s.idle[1])+", p50", "ms").against("runc run"),
			free("no-zygote-true-p50", "cold `true` without a zygote, p50", "ms").against("runc run"),
			free("unseen-true-p50", "`true` with limits that no request had before, p50", "ms").against("runc run"),
		}, cold},
		{"cold true in an image", []Row{
			ratioAtMost(1.2).row("cold-true-image-p50", "cold `true` in an image, p50", "ms").against("the host's root"),
		}, inImage},
		{"sustained true, 8 clients", []Row{
			ratioAtLeast(0.20).row("sustained-true", "`true` per second, 8 clients, "+s.load.String(), "1/s"),
		}, sustained("sustained-true", trueProgram)},
		{"sustained Python, 8 clients", []Row{
			ratioAtLeast(1.5).row("sustained-python", "Python `print(2+2)` per second, 8 clients, "+s.load.String(), "1/s"),
		}, python(sustained("sustained-python", sum))},
		{"32 clients, true", []Row{
			ratioAtMost(6).row("load-true-p99", "`true` by 32 clients, p99 against p50", "ms").against("its own p50"),
		}, tail("load-true-p99", trueProgram)},
		{"32 clients, Python", []Row{
			ratioAtMost(6).row("load-python-p99", "Python `print(2+2)` by 32 clients, p99 against p50", "ms").against("its own p50"),
		}, python(tail("load-python-p99", sum))},
		{"first byte", []Row{
			valueAtMost(1).row("first-byte-p50", "first byte of output after the script wrote it, p50", "ms"),
			free("first-byte-p95", "first byte of output after the script wrote it, p95", "ms"),
		}, python(firstByte)},
		{"streaming", []Row{
			valueAtLeast(400).row("stream-rate", "one script's "+units.CustomSize("%g %s", float64(s.streamBytes), 1024, []string{"B", "KiB", "MiB", "GiB"})+" of output", "MiB/s"),
			valueAtMost(16).row("stream-memory", "growth of the daemon's memory during that output", "MiB"),
		}, python(streaming)},
		{"ready", []Row{
			valueAtMost(300).row("ready-p50", "from the daemon's start until it serves, p50", "ms"),
		}, ready},
		{"idle daemon", []Row{
			valueAtMost(64).row("memory-idle", "memory of an idle daemon", "MiB"),
		}, idleMemory},
		{"prewarmed sandboxes", []Row{
			valueAtMost(2).row("memory-prewarmed", "memory of each prewarmed sandbox without a Python", "MiB"),
			valueAtMost(8).row("memory-prewarmed-python", "memory of each prewarmed sandbox with a Python", "MiB"),
		}, prewarmedMemory},
		{"tenants", []Row{
			free("tenants-memory-1", "memory of the daemon for one idle tenant", "KiB"),
			free("tenants-memory-10", "memory of the daemon for each of 10 idle tenants", "KiB"),
			valueAtMost(256).row("tenants-memory-100", "memory of the daemon for each of 100 idle tenants", "KiB"),
			free("tenants-waiting", "memory of all zygotes and prewarmed sandboxes, with 100 tenants", "MiB"),
			free("tenants-back-1", "warm `true` of one tenant, p50", "ms"),
			free("tenants-back-10", "`true` of a tenant that comes back after 9 others, p50", "ms"),
			free("tenants-back-100", "`true` of a tenant that comes back after 99 others, p50", "ms"),
		}, tenants},
		{"a tenant and its neighbours", []Row{
			free("neighbour-alone-p99", "`true` of a tenant with one client, p99", "ms"),
			ratioAtMost(2).row("neighbour-crowd-p99", "the same beside 50 clients of another tenant", "ms").against("alone"),
			ratioAtMost(2).row("neighbour-attacks-p99", "the same beside a tenant that forks, fills memory and spins up to its limits", "ms").against("alone"),
			ratioAtMost(2).row("neighbour-calls-p99", "the same beside a tenant that cancels, attaches, lists and retries without a pause", "ms").against("alone"),
			ratioAtMost(2).row("neighbour-state-p99", "the same beside a tenant that fills its quota of state again and again", "ms").against("alone"),
			ratioAtMost(2).row("neighbour-churn-p99", "the same while "+count(churnTenants)+" tenants are added and removed", "ms").against("alone"),
			ratioAtMost(2).row("neighbour-handshakes-p99", "the same beside TLS handshakes that stall", "ms").against("alone"),
		}, neighbours},
		{"secrets of another tenant", secretRows(), secrecy},
		{"traces", []Row{
			ratioAtMost(1.03).row("traces-true", "warm `true`, every trace recorded and sent, p50", "ms").against("no traces"),
			ratioAtMost(1.03).row("traces-processor", "processor time of the daemon for that", "ms").against("no traces"),
		}, traces},
		{"the audit log", []Row{
			ratioAtMost(1.03).row("audit-true", "warm `true` with the audit log, p50", "ms").against("no audit log"),
			ratioAtMost(1.03).row("audit-processor", "processor time of the daemon for that", "ms").against("no audit log"),
		}, auditLog},
		{"a network", []Row{
			valueAtLeast(600).row("network-out", "one connection through a sandbox's network, out", "MiB/s").against("no sandbox"),
			valueAtLeast(600).row("network-in", "the same, in", "MiB/s").against("no sandbox"),
			valueAtMost(0.3).row("network-connect-p50", "time that a network adds to a connection, p50", "ms").against("no sandbox"),
			valueAtMost(1.5).row("network-connect-p95", "the same, p95", "ms").against("no sandbox"),
			valueAtMost(0.3).row("network-refuse-p50", "a connection that the rules refuse, p50", "ms").against("no listener"),
			valueAtMost(0.5).row("network-start-true", "time that a network adds to warm `true`, p50", "ms").against("no network"),
			valueAtMost(0.5).row("network-start-python", "time that a network adds to warm Python `print(2+2)`, p50", "ms").against("no network"),
			valueAtMost(1000).row("network-many", "the slowest of "+count(s.connections)+" connections through one network", "ms"),
			free("network-closing", "connections to one destination, each ended by the program first, until the ports run out", "connections"),
		}, networking},
		{"many networks", []Row{
			valueAtLeast(float64(s.sleeping)).row("networks", count(s.sleeping)+" networks at once: how many carried a connection", "networks"),
			free("networks-start", "time until the executions with these networks run", "ms"),
			valueAtMost(128).row("network-memory", "memory of the helper for each idle network", "KiB"),
			valueAtMost(64).row("network-connection-memory", "memory of the helper for each open connection", "KiB"),
		}, manyNetworks},
		{"sleeping executions", []Row{
			valueAtLeast(float64(s.sleeping)).row("sleeping", count(s.sleeping)+" sleeping executions at once: how many ran", "executions"),
			valueAtMost(256).row("memory-running", "memory of each running execution in the daemon", "KiB"),
			valueAtMost(400).row("sleeping-memory", "memory of the daemon with "+count(s.sleeping)+" running executions", "MiB"),
			valueAtMost(2000).row("sleeping-cancel", "time to cancel "+count(s.sleeping)+" executions", "ms"),
			free("sleeping-start", "time until "+count(s.sleeping)+" executions run", "ms"),
		}, sleeping},
		{"a long record", []Row{
			ratioAtMost(1.2).row("grow-record", "warm `true` with "+count(s.records)+" executions in the record, p50", "ms").against("an empty record"),
			free("grow-record-ready", "from the daemon's start until it serves, with "+count(s.records)+" executions in the record", "ms").against("an empty record"),
		}, growRecord},
		{"many skills", []Row{
			ratioAtMost(1.2).row("grow-skills", "warm `true` with "+count(s.skills)+" skills, p50", "ms").against("10 skills"),
			free("grow-skills-ready", "from the daemon's start until it serves, with "+count(s.skills)+" skills", "ms").against("10 skills"),
		}, growSkills},
		{"a large skill", []Row{
			ratioAtMost(1.2).row("grow-snapshot", "warm `true` of a skill of "+count(s.snapshotBytes/1_000_000)+" MB, p50", "ms").against("one of 1 MB"),
		}, growSnapshot},
		{"a session", []Row{
			valueAtMost(1).row("session-true", "time that a session of "+count(sessionFiles)+" files adds to warm `true`, p50", "ms").against("no session"),
			free("session-commit", "the same for a program that changes one of its files", "ms").against("no session"),
		}, inSession},
	}
}

// secretRows returns two rows for each question of the group: the ratio of the medians, the larger divided
// by the smaller, and the z of a rank test. Of two equal things z exceeds 3 once in 370 tests.
func secretRows() (rows []Row) {
	for _, q := range []struct{ name, title, unknown string }{
		{"get", "GetExecution of another tenant's execution", "an unknown id"},
		{"running", "the same of one that runs", "an unknown id"},
		{"attach", "AttachExecution of another tenant's execution that runs", "an unknown id"},
		{"cancel", "CancelExecution of another tenant's execution that runs", "an unknown id"},
		{"signal", "SignalExecution of another tenant's execution that runs", "an unknown id"},
		{"delete", "DeleteExecution of another tenant's execution", "an unknown id"},
		{"artifacts", "ListArtifacts of another tenant's execution", "an unknown id"},
		{"artifact", "GetArtifact of another tenant's execution", "an unknown id"},
		{"session", "GetSession of another tenant's session", "an unknown id"},
		{"session-files", "ListSessionFiles of another tenant's session", "an unknown id"},
		{"session-use", "Execute in another tenant's session", "an unknown id"},
		{"skill", "GetSkill of another tenant's skill", "an unknown name"},
		{"pinned", "the same by name and digest", "an unknown name"},
		{"environment", "PrepareSkill of another tenant's skill", "an unknown name"},
	} {
		rows = append(rows,
			ratioAtMost(1.05).row("secrecy-"+q.name+"-p50", q.title+", p50", "ms").against(q.unknown),
			valueAtMost(3).row("secrecy-"+q.name+"-rank", q.title+": z of the rank test", "z").against(q.unknown))
	}
	return rows
}

// grouped formats a number with commas.
func grouped(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
