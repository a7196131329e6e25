package record

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// listAll returns the IDs on all of f's pages.
func listAll(t testing.TB, s *Store, f Filter) []string {
	t.Helper()
	ids := []string{}
	for {
		page, next, err := s.List(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		if f.PageSize > 0 && len(page) > f.PageSize {
			t.Fatalf("got a page of %d, want %d", len(page), f.PageSize)
		}
		for _, x := range page {
			ids = append(ids, x.ID)
		}
		if f.PageToken = next; next == "" {
			return ids
		}
	}
}

func TestList(t *testing.T) {
	s := openStore(t, Config{})
	hour := func(n int) time.Time { return start.Add(time.Duration(n) * time.Hour) }
	for i, x := range []struct {
		Execution
		end   string
		state State
	}{
		{Execution: Execution{ID: "e1", Skill: "hello", Labels: map[string]string{"team": "x", "run": "1"}}, end: "EXITED"},
		{Execution: Execution{ID: "e2", Skill: "hello", Labels: map[string]string{"team": "y", "run": "1"}}, end: "TIMED_OUT"},
		{Execution: Execution{ID: "e3", Skill: "data", Labels: map[string]string{"team": "x"}}, state: Running},
		{Execution: Execution{ID: "e4", Skill: "data", Labels: map[string]string{"team": "x", "run": "2"}}, state: Queued},
		{Execution: Execution{ID: "e5", Skill: "hello", Principal: "bob"}, end: "EXITED"},
		{Execution: Execution{ID: "b1", Tenant: "b", Skill: "hello", Labels: map[string]string{"team": "x", "run": "1"}}, end: "EXITED"},
	} {
		x.Created = hour(i)
		l := create(t, s, x.Execution)
		if x.state != Queued {
			if err := l.Started(t.Context(), hour(i), nil); err != nil {
				t.Fatal(err)
			}
		}
		if x.end != "" {
			end(t, l, x.end, hour(i))
		}
	}
	for _, test := range []struct {
		name string
		f    Filter
		want string
	}{
		{"all", Filter{}, "e5 e4 e3 e2 e1"},
		{"other tenant", Filter{Tenant: "b"}, "b1"},
		{"no tenant", Filter{Tenant: "none"}, ""},
		{"skill", Filter{Skill: "hello"}, "e5 e2 e1"},
		{"skill's prefix", Filter{Skill: "hell"}, ""},
		{"queued", Filter{States: []State{Queued}}, "e4"},
		{"live", Filter{States: []State{Queued, Running}}, "e4 e3"},
		{"ended", Filter{States: []State{Ended}}, "e5 e2 e1"},
		{"ended or running", Filter{States: []State{Ended, Running}}, "e5 e3 e2 e1"},
		{"label", Filter{Labels: map[string]string{"team": "x"}}, "e4 e3 e1"},
		{"labels", Filter{Labels: map[string]string{"team": "x", "run": "1"}}, "e1"},
		{"label that none has", Filter{Labels: map[string]string{"team": ""}}, ""},
		{"quoting", Filter{Labels: map[string]string{"' OR 1=1 --": "x"}}, ""},
		{"label of another tenant", Filter{Tenant: "b", Labels: map[string]string{"run": "1"}}, "b1"},
		{"all tenants", Filter{AllTenants: true}, "b1 e5 e4 e3 e2 e1"},
		{"labels of all tenants", Filter{AllTenants: true, Labels: map[string]string{"team": "x", "run": "1"}}, "b1 e1"},
		{"end", Filter{Ends: []string{"TIMED_OUT"}}, "e2"},
		{"ends", Filter{Ends: []string{"TIMED_OUT", "EXITED"}}, "e5 e2 e1"},
		{"created at or after", Filter{CreatedAfter: hour(3)}, "e5 e4"},
		{"created after", Filter{CreatedAfter: hour(3).Add(1)}, "e5"},
		{"created before", Filter{CreatedBefore: hour(2)}, "e2 e1"},
		{"created between", Filter{CreatedAfter: hour(1), CreatedBefore: hour(3)}, "e3 e2"},
		{"principal", Filter{Principal: "bob"}, "e5"},
		{"principal that none has", Filter{Principal: "nobody"}, ""},
		{"principal of another tenant", Filter{Tenant: "b", Principal: "bob"}, ""},
		{"oldest first", Filter{OldestFirst: true}, "e1 e2 e3 e4 e5"},
		{"oldest first, by label", Filter{OldestFirst: true, Labels: map[string]string{"team": "x"}}, "e1 e3 e4"},
		{"oldest first, by time", Filter{OldestFirst: true, CreatedAfter: hour(1), CreatedBefore: hour(4)}, "e2 e3 e4"},
		{"everything", Filter{Skill: "hello", States: []State{Ended}, Ends: []string{"EXITED"}, Labels: map[string]string{"run": "1"}, CreatedAfter: hour(0)}, "e1"},
	} {
		for _, size := range []int{0, 1, 2, 3, 5, MaxPage + 1} {
			f := test.f
			f.PageSize = size
			if f.Tenant == "" {
				f.Tenant = "a"
			}
			if got := strings.Join(listAll(t, s, f), " "); got != test.want {
				t.Errorf("%s, pages of %d: got %q, want %q", test.name, size, got, test.want)
			}
		}
	}
	page, _, err := s.List(t.Context(), Filter{Tenant: "a"})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range page {
		if got := get(t, s, "a", x.ID); fmt.Sprint(got) != fmt.Sprint(x) {
			t.Errorf("listed %v, got %v", x, got)
		}
	}
}

// Executions keep their order of creation if the clock goes back. The time filter
// uses the time of creation.
func TestListWhileTheClockJumps(t *testing.T) {
	s := openStore(t, Config{})
	var want []string
	for i, at := range []time.Duration{0, time.Hour, -time.Hour, 0, 0, 2 * time.Hour} {
		x := Execution{ID: fmt.Sprint("e", i), Created: start.Add(at)}
		create(t, s, x)
		want = append([]string{x.ID}, want...)
	}
	if got := listAll(t, s, Filter{Tenant: "a", PageSize: 1}); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := listAll(t, s, Filter{Tenant: "a", CreatedAfter: start}); !slices.Equal(got, []string{"e5", "e4", "e3", "e1", "e0"}) {
		t.Errorf("got %v", got)
	}
}

// Pages stay where they are while executions are created, end and are removed.
func TestListIsStable(t *testing.T) {
	s := openStore(t, Config{MaxAge: time.Nanosecond})
	const n = 20
	logs := make([]*Log, n)
	var want []string
	for i := range logs {
		logs[i] = create(t, s, Execution{ID: fmt.Sprintf("e%02d", i), Labels: map[string]string{"k": "v"}})
		want = append([]string{logs[i].ID()}, want...)
	}
	f := Filter{Tenant: "a", Labels: map[string]string{"k": "v"}, PageSize: 3}
	var got []string
	for page := 0; ; page++ {
		executions, next, err := s.List(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range executions {
			got = append(got, x.ID)
		}
		if f.PageToken = next; next == "" {
			break
		}
		create(t, s, Execution{Labels: f.Labels})
		end(t, logs[n-1-page], "EXITED", start) // an execution on an earlier page
		if _, _, err := s.Sweep(t.Context(), start.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestListTokens(t *testing.T) {
	s := openStore(t, Config{})
	for range 3 {
		create(t, s, Execution{Skill: "hello"})
		create(t, s, Execution{Skill: "hello", Tenant: "b"})
	}
	f := Filter{Tenant: "a", Skill: "hello", PageSize: 1}
	_, token, err := s.List(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Filter){
		"garbage":      func(f *Filter) { f.PageToken = "garbage" },
		"not base64":   func(f *Filter) { f.PageToken = "!!!" },
		"cut":          func(f *Filter) { f.PageToken = base64.RawURLEncoding.EncodeToString(raw[:len(raw)-1]) },
		"longer":       func(f *Filter) { f.PageToken = base64.RawURLEncoding.EncodeToString(append(raw, 0)) },
		"other tenant": func(f *Filter) { f.Tenant = "b" },
		"other skill":  func(f *Filter) { f.Skill = "" },
		"other states": func(f *Filter) { f.States = []State{Ended} },
		"other ends":   func(f *Filter) { f.Ends = []string{"EXITED"} },
		"other labels": func(f *Filter) { f.Labels = map[string]string{"a": "b"} },
		"other time":   func(f *Filter) { f.CreatedAfter = start },
	} {
		f := f
		f.PageToken = token
		change(&f)
		_, _, err := s.List(t.Context(), f)
		if _, ok := errors.AsType[*TokenError](err); !ok {
			t.Errorf("%s: got %v", name, err)
		}
	}
	f.PageToken, f.PageSize = token, 2 // the size may change
	if page, _, err := s.List(t.Context(), f); len(page) != 2 || err != nil {
		t.Errorf("got %d, %v", len(page), err)
	}
}

// Each listing goes along an index, in its order: none sorts, none reads the
// whole table.
func TestListPlans(t *testing.T) {
	s := openStore(t, Config{})
	for _, test := range []struct {
		name string
		f    Filter
		want string
	}{
		{"all", Filter{}, "USING INDEX executions_tenant (tenant=?)"},
		{"page", Filter{PageToken: Filter{Tenant: "a"}.token().encode(1)}, "USING INDEX executions_tenant (tenant=? AND n<?)"},
		{"time", Filter{CreatedAfter: start}, "USING INDEX executions_tenant (tenant=? AND n>?)"},
		{"skill", Filter{Skill: "s"}, "USING INDEX executions_skill (tenant=? AND skill=?)"},
		{"live", Filter{States: []State{Queued, Running}}, "USING INDEX executions_live (tenant=?)"},
		{"label", Filter{Labels: map[string]string{"a": "b", "c": "d"}, CreatedAfter: start},
			"PRIMARY KEY (tenant=? AND key=? AND value=? AND execution>?)"},
	} {
		f := test.f
		f.Tenant = "a"
		query, args, err := f.query(10)
		if err != nil {
			t.Fatal(err)
		}
		plan := explain(t, s, query, args...)
		if !strings.Contains(plan, test.want) || strings.Contains(plan, "SCAN") || strings.Contains(plan, "TEMP B-TREE") {
			t.Errorf("%s: got\n%s", test.name, plan)
		}
	}
}

// explain returns how SQLite goes about a query.
func explain(t testing.TB, s *Store, query string, args ...any) string {
	t.Helper()
	rows, err := s.db.queries.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+query, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var plan strings.Builder
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&plan, detail)
	}
	return plan.String()
}
