package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// keyModel is one idempotency key: a register that the first request sets and that nothing changes
// afterwards. The state is the ID of the key's execution: "" before any, unnamed if a request whose
// client got no answer may have made it.
//
// An unanswered request has taken effect or not, so it leads to two states, and it is open until the end
// of the history: the daemon may have recorded it later.
var keyModel = porcupine.NondeterministicModel{
	Init: func() []any { return []any{""} },
	Step: func(state, _, output any) []any {
		id, answer := state.(string), output.(keyAnswer)
		switch {
		case answer.refused && id == "":
			return []any{""}
		case answer.refused:
			return nil
		case answer.id == "" && id == "":
			return []any{"", unnamed}
		case answer.id == "":
			return []any{id}
		case !answer.deduplicated && id == "":
			return []any{answer.id}
		case answer.deduplicated && (id == unnamed || id == answer.id):
			return []any{answer.id}
		}
		return nil
	},
	Equal: func(a, b any) bool { return a == b },
}

const unnamed = "?"

// A keyAnswer is the answer to a request with a key. The zero keyAnswer: there was no answer.
type keyAnswer struct {
	id           string
	deduplicated bool
	refused      bool // because of its session; a key that has an execution is never refused so
}

// isLinearizable reports whether some order of the operations of each history explains all that they have seen, as
// if each operation had happened at one moment between its call and its return. The time for the search is bounded,
// because the search can take exponential time.
func isLinearizable(t *testing.T, histories [][]porcupine.Operation, model porcupine.NondeterministicModel) bool {
	t.Helper()
	for _, history := range histories {
		switch porcupine.CheckOperationsTimeout(model.ToModel(), history, patience) {
		case porcupine.Illegal:
			t.Log("no order explains these operations:" + listOperations(history))
			return false
		case porcupine.Unknown:
			t.Errorf("the search for an order of %d operations was given up after %v:%s", len(history), patience, listOperations(history))
		}
	}
	return true
}

// listOperations returns a line for each operation, in the order of their calls.
func listOperations(history []porcupine.Operation) string {
	history = slices.SortedFunc(slices.Values(history), func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	var b strings.Builder
	for _, o := range history {
		end := "ever"
		if o.Return != math.MaxInt64 {
			end = time.Duration(o.Return).String()
		}
		fmt.Fprintf(&b, "\nfrom %v to %s, client %d: %+v", time.Duration(o.Call), end, o.ClientId, o.Output)
	}
	return b.String()
}

// histories returns the requests with each key, for keyModel.
func (l *faultLoad) histories() [][]porcupine.Operation {
	type place struct {
		tenant int
		key    string
	}
	histories := map[place][]porcupine.Operation{}
	for _, op := range l.ops {
		o := porcupine.Operation{ClientId: op.client, Call: int64(op.call), Return: int64(op.answer), Output: keyAnswer{op.id, op.deduplicated, op.refused != ""}}
		if op.answer == 0 {
			o.Return = math.MaxInt64
		}
		at := place{op.tenant, op.key}
		histories[at] = append(histories[at], o)
	}
	return slices.Collect(maps.Values(histories))
}

// The model itself refuses what must not happen.
func TestKeyModel(t *testing.T) {
	const ms = time.Millisecond
	answered := func(key string, client int, call, answer time.Duration, id string, deduplicated bool) *faultOp {
		return &faultOp{client: client, key: key, call: call, answer: answer, id: id, deduplicated: deduplicated}
	}
	silent := func(key string, client int, call time.Duration) *faultOp {
		return &faultOp{client: client, key: key, call: call}
	}
	refused := func(key string, client int, call, answer time.Duration) *faultOp {
		return &faultOp{client: client, key: key, call: call, answer: answer, refused: sessionIsBusy}
	}
	for _, tt := range []struct {
		name string
		ops  []*faultOp
		want bool
	}{
		{"one request", []*faultOp{answered("k", 0, 1*ms, 2*ms, "a", false)}, true},
		{"a repeated one", []*faultOp{answered("k", 0, 1*ms, 2*ms, "a", false), answered("k", 1, 3*ms, 4*ms, "a", true)}, true},
		{"two keys", []*faultOp{answered("k", 0, 1*ms, 2*ms, "a", false), answered("l", 1, 3*ms, 4*ms, "b", false)}, true},
		{"two executions", []*faultOp{answered("k", 0, 1*ms, 2*ms, "a", false), answered("k", 1, 3*ms, 4*ms, "b", false)}, false},
		{"two executions at the same time", []*faultOp{answered("k", 0, 1*ms, 4*ms, "a", false), answered("k", 1, 2*ms, 3*ms, "b", false)}, false},
		{"another's execution", []*faultOp{answered("k", 0, 1*ms, 2*ms, "a", false), answered("k", 1, 3*ms, 4*ms, "b", true)}, false},
		{"the answer of a later request", []*faultOp{answered("k", 0, 3*ms, 4*ms, "a", false), answered("k", 1, 1*ms, 2*ms, "a", true)}, false},
		{"nobody's execution", []*faultOp{answered("k", 0, 1*ms, 2*ms, "a", true)}, false},
		{"the execution of a silent request", []*faultOp{silent("k", 0, 1*ms), answered("k", 0, 3*ms, 4*ms, "a", true)}, true},
		{"a silent request without effect", []*faultOp{silent("k", 0, 1*ms), answered("k", 0, 3*ms, 4*ms, "a", false)}, true},
		{"a refused request that is repeated", []*faultOp{refused("k", 0, 1*ms, 2*ms), answered("k", 0, 3*ms, 4*ms, "a", false), answered("k", 1, 5*ms, 6*ms, "a", true)}, true},
		{"a refused request with an execution", []*faultOp{refused("k", 0, 1*ms, 2*ms), answered("k", 0, 3*ms, 4*ms, "a", true)}, false},
		{"a refusal after the execution", []*faultOp{answered("k", 0, 1*ms, 2*ms, "a", false), refused("k", 1, 3*ms, 4*ms)}, false},
		{"a refusal after a silent request without effect", []*faultOp{silent("k", 0, 1*ms), refused("k", 0, 3*ms, 4*ms), answered("k", 0, 5*ms, 6*ms, "a", false)}, true},
		{"two executions after a silent request", []*faultOp{silent("k", 0, 1*ms), answered("k", 0, 3*ms, 4*ms, "a", true), answered("k", 0, 5*ms, 6*ms, "b", true)}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := isLinearizable(t, (&faultLoad{ops: tt.ops}).histories(), keyModel); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}
