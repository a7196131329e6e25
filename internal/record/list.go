package record

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	// defaultPage is how many items a page has if nothing else is asked for.
	defaultPage = 100
	// MaxPage bounds what can be asked for.
	MaxPage = 1000
	// pageBytes bounds the details and outcomes on a page; the last item may exceed it.
	// A response of gRPC has at most 4 MiB by default at the receiver.
	pageBytes = 2 << 20
)

// Filter selects executions for List. A zero field selects all, but an empty Tenant
// selects none: only AllTenants crosses tenants.
type Filter struct {
	Tenant string
	// AllTenants is for operators, whose listings may take longer: the indexes are by tenant.
	AllTenants bool

	Principal string
	Skill     string
	States    []State
	// Labels selects executions that have all of these.
	Labels map[string]string
	Ends   []string
	// Executions created at CreatedAfter or later, and before CreatedBefore.
	CreatedAfter, CreatedBefore time.Time
	// OldestFirst reverses the order.
	OldestFirst bool
	// PageSize is clamped to MaxPage; zero or less: defaultPage.
	PageSize int
	// PageToken is the token from the last List with this filter.
	PageToken string
}

// List returns the executions that f selects, newest first unless OldestFirst is set, and the token of the next
// page, which is empty on the last one. Large executions make a page shorter. New
// executions don't move the pages. A token of another filter is a *TokenError.
func (s *Store) List(ctx context.Context, f Filter) (page []Execution, next string, err error) {
	size := pageSize(f.PageSize)
	query, args, err := f.query(size + 1) // one more row tells whether another page follows
	if err != nil {
		return nil, "", err
	}
	s.flushForQuery(ctx)
	rows, err := s.db.queries.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, "", ofAll("list", err)
	}
	all, more, err := scanPage(rows, size)
	if err != nil {
		return nil, "", ofAll("list", err)
	}
	if more {
		next = f.token().encode(all[len(all)-1].n)
	}
	for _, x := range all {
		s.refresh(ctx, x)
		page = append(page, x.Execution)
	}
	return page, next, nil
}

// scanPage reads at most size rows, fewer if they are large. more is true if it left a
// row.
func scanPage(rows *sql.Rows, size int) (page []*row, more bool, err error) {
	defer rows.Close()
	bytes := 0
	for rows.Next() {
		if len(page) == size || bytes >= pageBytes {
			return page, true, rows.Close()
		}
		x, err := scanRow(rows.Scan)
		if err != nil {
			return nil, false, err
		}
		page = append(page, x)
		bytes += len(x.Detail) + len(x.Outcome)
	}
	return page, false, rows.Err()
}

func pageSize(asked int) int {
	if asked <= 0 {
		return defaultPage
	}
	return min(asked, MaxPage)
}

// query is f as SQL, for at most limit rows. A filter with labels searches the index
// of the first label, which has the same order.
// n is the primary key and grows with time, so both orders and the page token need no sort. Values only come in as
// arguments; the text has no part of a request.
func (f Filter) query(limit int) (string, []any, error) {
	var q strings.Builder
	var args []any
	where := func(condition string, values ...any) {
		q.WriteString(condition)
		args = append(args, values...)
	}
	q.WriteString(selectColumns)
	order, lead := "e.n", "executions AS e WHERE true"
	if len(f.Labels) > 0 && !f.AllTenants {
		// CROSS JOIN, in SQLite, keeps the order.
		order, lead = "l0.execution", "labels AS l0 CROSS JOIN executions AS e ON e.n = l0.execution WHERE true"
	}
	q.WriteString(" FROM " + lead)
	for i, name := range slices.Sorted(maps.Keys(f.Labels)) {
		if f.AllTenants {
			where(" AND EXISTS (SELECT 1 FROM labels WHERE execution = e.n AND tenant = e.tenant AND key = ? AND value = ?)", name, f.Labels[name])
			continue
		}
		if i == 0 {
			where(" AND l0.tenant = ? AND l0.key = ? AND l0.value = ?", f.Tenant, name, f.Labels[name])
			continue
		}
		where(" AND EXISTS (SELECT 1 FROM labels WHERE execution = e.n AND tenant = ? AND key = ? AND value = ?)",
			f.Tenant, name, f.Labels[name])
	}
	if !f.AllTenants {
		where(" AND e.tenant = ?", f.Tenant)
	}
	if f.PageToken != "" {
		last, err := f.token().decode(f.PageToken)
		if err != nil {
			return "", nil, err
		}
		where(" AND "+order+f.past(), last)
	}
	if f.Principal != "" {
		where(" AND e.principal = ?", f.Principal)
	}
	if f.Skill != "" {
		where(" AND e.skill = ?", f.Skill)
	}
	if len(f.States) > 0 {
		where(" AND e.state IN ("+placeholders(len(f.States))+")", anys(f.States)...)
		if !slices.Contains(f.States, Ended) {
			where(" AND e.state < 3") // as in the index executions_live
		}
	}
	if len(f.Ends) > 0 {
		where(" AND e.ending IN ("+placeholders(len(f.Ends))+")", anys(f.Ends)...)
	}
	if !f.CreatedAfter.IsZero() {
		// The first bounds the search, the second decides: n >= created.
		where(" AND "+order+" >= ? AND e.created >= ?", nanos(f.CreatedAfter), nanos(f.CreatedAfter))
	}
	if !f.CreatedBefore.IsZero() {
		where(" AND e.created < ?", nanos(f.CreatedBefore))
	}
	direction := "DESC"
	if f.OldestFirst {
		direction = "ASC"
	}
	fmt.Fprintf(&q, " ORDER BY %s %s LIMIT %d", order, direction, limit)
	return q.String(), args, nil
}

// past compares a row with the last one of the page before.
func (f Filter) past() string {
	if f.OldestFirst {
		return " > ?"
	}
	return " < ?"
}

// placeholders is "?, ?, ?" for n values.
func placeholders(n int) string {
	return strings.TrimSuffix(strings.Repeat("?, ", n), ", ")
}

// anys makes arguments of a query from values.
func anys[T any](values []T) []any {
	var all []any
	for _, v := range values {
		all = append(all, v)
	}
	return all
}
