package record

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// usagesOf returns the counts of all tenants that have any.
func usagesOf(s *Store) map[string][2]int64 {
	all := map[string][2]int64{}
	s.usages.Range(func(tenant, u any) bool {
		if n := [2]int64{u.(*usage).all.Load(), u.(*usage).ended.Load()}; n != [2]int64{} {
			all[tenant.(string)] = n
		}
		return true
	})
	return all
}

// summed is usagesOf, from the rows and the files of spools and artifacts. Of spools in the database it
// takes the lengths of their frames.
func summed(t testing.TB, s *Store) map[string][2]int64 {
	t.Helper()
	s.flushForQuery(t.Context())
	rows, err := s.db.queries.Query(`
		SELECT id, tenant, state = 3, in_file, length(detail) + length(header) + length(outcome) + length(spool_index) +
				(SELECT coalesce(sum(length(path) + 4096), 0) FROM artifacts WHERE execution = n),
			length(header) + (SELECT coalesce(sum(length(data)), 0) FROM frames WHERE execution = n) FROM executions`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	all := map[string][2]int64{}
	for rows.Next() {
		var id, tenant string
		var ended, inFile bool
		var bytes, frames int64
		if err := rows.Scan(&id, &tenant, &ended, &inFile, &bytes, &frames); err != nil {
			t.Fatal(err)
		}
		switch fi, err := os.Stat(s.spoolPath(id)); {
		case !inFile:
			bytes += frames + frameSize + int64(len(spoolMagic))
		case err != nil:
			t.Fatal(err)
		default:
			bytes += fi.Size()
		}
		entries, _ := os.ReadDir(s.ArtifactDir(id)) // there may be none
		for _, e := range entries {
			fi, err := e.Info()
			if err != nil {
				t.Fatal(err)
			}
			bytes += fi.Size()
		}
		sum := all[tenant]
		sum[0] += bytes
		if ended {
			sum[1] += bytes
		}
		all[tenant] = sum
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// Whatever happens to executions, the counts are the sums over the disk, also after a restart.
func TestUsageIsTheSum(t *testing.T) {
	const seed = 7
	random := rand.New(rand.NewPCG(seed, seed))
	s := openStore(t, Config{MaxBytes: 2_000_000})
	open := map[string]*Log{}
	at := start
	pick := func() *Log {
		ids := slices.Sorted(maps.Keys(open))
		return open[ids[random.IntN(len(ids))]]
	}
	for i := range 2000 {
		at = at.Add(time.Second)
		switch n := random.IntN(100); {
		case n < 20 || len(open) == 0:
			x := Execution{ID: fmt.Sprint("e", i), Tenant: fmt.Sprint("t", random.IntN(3)), Detail: make([]byte, random.IntN(2000)), Created: at}
			if n%3 == 0 {
				x.Key = x.ID
			}
			open[x.ID] = create(t, s, x)
		case n < 60:
			appendOutput(t, pick(), strings.Repeat("x", random.IntN(20_000)))
		case n < 75:
			l := pick()
			if err := os.RemoveAll(s.ArtifactDir(l.id)); err != nil { // the last ones of this execution
				t.Fatal(err)
			}
			writeArtifacts(t, s, l, map[string]string{"a": strings.Repeat("y", random.IntN(30_000)), "b": "z"})
		case n < 92:
			l := pick()
			delete(open, l.id)
			if err := l.End(t.Context(), "EXITED", make([]byte, random.IntN(3000)), at); err != nil {
				t.Fatal(err)
			}
			if n == 80 {
				if err := s.Remove(t.Context(), l.tenant, l.id); err != nil {
					t.Fatal(err)
				}
			}
		case n < 94:
			sweep(t, s, at)
		case n < 95:
			if _, _, err := s.MakeRoom(t.Context(), "t1", 300_000); err != nil {
				t.Fatal(err)
			}
		case n < 96:
			for id, l := range open {
				if l.tenant == "t2" {
					delete(open, id)
					end(t, l, "CANCELLED", at)
				}
			}
			if _, _, err := s.Purge(t.Context(), "t2"); err != nil {
				t.Fatal(err)
			}
		case n < 97:
			s = reopenStore(t, s)
			for id := range open {
				open[id] = reopenLog(t, s, id)
			}
		}
		if i%10 == 0 {
			if got, want := usagesOf(s), summed(t, s); !maps.Equal(got, want) {
				t.Fatalf("seed %d, step %d: got %v, want %v", seed, i, got, want)
			}
		}
	}
	total := int64(0)
	for tenant, n := range summed(t, s) {
		if total += n[0]; s.BytesOf(tenant) != n[0] {
			t.Errorf("%s: got %d, want %d", tenant, s.BytesOf(tenant), n[0])
		}
	}
	if s.Bytes() != total || s.BytesOf("nobody") != 0 {
		t.Errorf("got %d in all, want %d", s.Bytes(), total)
	}
}

// At its limit a tenant loses its oldest ended executions, to 95 % of the limit. The other tenants lose
// nothing, and open executions stay.
func TestMakeRoom(t *testing.T) {
	s := openStore(t, Config{})
	for i, tenant := range []string{"full", "other", "full", "full", "full"} {
		l := createInFile(t, s, Execution{ID: fmt.Sprint("e", i), Tenant: tenant})
		writeArtifacts(t, s, l, map[string]string{"x": strings.Repeat("x", 10_000-artifactOverhead)})
		end(t, l, "EXITED", start.Add(time.Duration(i)*time.Minute))
	}
	runs := createInFile(t, s, Execution{ID: "runs", Tenant: "full", Created: start.Add(-time.Hour)})
	before := s.BytesOf("full")
	if before < 40_000 || before > 45_000 {
		t.Fatalf("%d bytes", before)
	}
	for limit, gone := range map[int64]int{before + 1: 0, 1 << 50: 0} {
		if removed, used, err := s.MakeRoom(t.Context(), "full", limit); removed != gone || used != before || err != nil {
			t.Errorf("limit %d: got %d, %d bytes, %v", limit, removed, used, err)
		}
	}
	each := s.BytesOf("other")
	// Exactly at the limit, one execution goes. Beyond it by one execution, two go.
	removed, used, err := s.MakeRoom(t.Context(), "full", before)
	if removed != 1 || used > before-10_000 || used < before-11_000 || used != s.BytesOf("full") || err != nil {
		t.Errorf("got %d, %d bytes, %v; want 1", removed, used, err)
	}
	if removed, _, err := s.MakeRoom(t.Context(), "full", used-each); removed != 2 || err != nil {
		t.Errorf("got %d, %v; want 2", removed, err)
	}
	if got, want := files(t, s), []string{"spool/e1", "spool/e4", "spool/runs", "artifacts/e1", "artifacts/e4"}; !slices.Equal(got, want) {
		t.Errorf("left %v, want %v", got, want)
	}
	// What runs counts and stays, even alone above the limit.
	writeArtifacts(t, s, runs, map[string]string{"x": strings.Repeat("x", 50_000)})
	removed, used, err = s.MakeRoom(t.Context(), "full", 20_000)
	if removed != 1 || used < 50_000 || err != nil {
		t.Errorf("got %d, %d bytes, %v; want 1", removed, used, err)
	}
	if removed, _, err := s.MakeRoom(t.Context(), "full", 20_000); removed != 0 || err != nil {
		t.Errorf("got %d, %v; want 0", removed, err)
	}
	end(t, runs, "EXITED", start.Add(time.Hour))
	if removed, used, err := s.MakeRoom(t.Context(), "full", 20_000); removed != 1 || used != 0 || err != nil {
		t.Errorf("got %d, %d bytes, %v; want 1, 0", removed, used, err)
	}
	if _, err := os.Stat(filepath.Join(s.config.Dir, spoolsName, "e1")); err != nil {
		t.Error(err)
	}
	if removed, _, err := s.MakeRoom(t.Context(), "", 1); removed != 0 || err != nil {
		t.Errorf("the tenant without a name: got %d, %v", removed, err)
	}
}

// An index answers each query of the sweeps and of the sums.
func TestUsagePlans(t *testing.T) {
	s := openStore(t, Config{})
	plan := explain(t, s, "SELECT tenant, sum(spool_bytes + artifact_bytes + row_bytes) FROM executions WHERE state = 3 GROUP BY tenant")
	if !strings.Contains(plan, "COVERING INDEX executions_usage") || strings.Contains(plan, "TEMP B-TREE") {
		t.Errorf("got %s", plan)
	}
	for tenant, index := range map[string]string{"": "executions_ended", "acme": "executions_usage"} {
		query, args := oldestQuery(tenant, 1)
		if plan := explain(t, s, query, args...); !strings.Contains(plan, "INDEX "+index+" ") || strings.Contains(plan, "TEMP B-TREE") {
			t.Errorf("tenant %q: got %s", tenant, plan)
		}
	}
}

// To ask for room costs nothing while there is room.
func BenchmarkMakeRoom(b *testing.B) {
	s := openStore(b, Config{})
	l := create(b, s, Execution{Tenant: "acme"})
	end(b, l, "EXITED", start)
	for b.Loop() {
		if removed, _, err := s.MakeRoom(b.Context(), "acme", 1<<30); removed != 0 || err != nil {
			b.Fatal(removed, err)
		}
	}
}
