package executor

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/skillrun/skillrun/internal/audit"
	"github.com/skillrun/skillrun/internal/network/credential"
	"github.com/skillrun/skillrun/internal/network/policy"
	"github.com/skillrun/skillrun/internal/record"
	"github.com/skillrun/skillrun/sandbox"
)

// Networks opens the network of one execution. credentials may be nil. to receives the network's events.
type Networks interface {
	Open(tenant, execution string, rules *policy.Rules, credentials *credential.Set, to policy.DaemonSink) sandbox.Network
}

// Bounds on the stored events of the network of one execution; the contract publishes them.
const (
	MaxDeniedEvents      = 100
	MaxListedConnections = 100
	maxListedDenials     = 20
)

// maxMissingRules is how many missing rules the advice on an outcome names.
const maxMissingRules = 3

// A networkSink receives the events of the network of one execution. It stores the first refusals as
// events, and counts all. Like the methods of sink, its methods never fail and never block on a reader.
type networkSink struct {
	log     *record.Log
	started func() // records the start first, if it is not recorded yet
	logger  *slog.Logger
	audit   func(*audit.Network) // writes an entry about a running execution

	writing sync.Mutex // held while audit writes; before mu

	narrowed bool   // by the allow rules of the request
	allowKey string // see permission.Grant

	mu      sync.Mutex
	denied  int64         // all refusals, also refusals that were only counted
	learned *destinations // nil: the execution does not learn
	audited int           // connections in usage that an entry of the audit log has
	timer   *time.Timer   // of the next entry; nil: no connection waits for one
	ended   bool          // no further entry follows
	missing []string      // rules that would have allowed the first refusals, without duplicates
	reason  string        // of the first refusal that no rule would have allowed
	usage   NetworkUsage
	err     error // the reason why events are no longer stored
}

// openNetwork returns the network for the execution's sandbox, with the rules of its grant. Nil: the
// grant has none.
func (x *Executor) openNetwork(r *run) sandbox.Network {
	rules := r.grant.Network()
	if rules == nil {
		return nil
	}
	r.network = &networkSink{log: r.log, started: r.recordStarted, logger: r.logger.With("execution", r.id), narrowed: r.grant.Narrowed(), allowKey: r.grant.AllowKey(),
		audit: func(n *audit.Network) { x.auditConnections(r.grant.Principal(), r.id, n) }}
	if r.grant.Learns() {
		r.network.learned = &destinations{}
	}
	return x.Networks.Open(r.grant.Principal().Tenant, r.id, rules, r.credentials, r.network)
}

// Denied implements [policy.Sink].
func (s *networkSink) Denied(d policy.Denial) {
	s.started()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denied++
	if s.noteMissing(d.Missing); d.Missing == "" && s.reason == "" {
		s.reason = d.Reason
	}
	if len(s.usage.Denials) < maxListedDenials {
		s.usage.Denials = append(s.usage.Denials, d)
	}
	if s.err != nil || s.denied > MaxDeniedEvents {
		return
	}
	data, err := json.Marshal(d)
	if err == nil {
		_, err = s.log.Append(record.Event{Time: d.Time, Kind: record.KindDenied, Data: data})
	}
	if s.err = err; err != nil {
		s.logger.Error("refusal of the network not recorded", "err", err)
	}
}

func (s *networkSink) noteMissing(rule string) {
	if rule == "" || len(s.missing) > maxMissingRules {
		return
	}
	for _, known := range s.missing {
		if known == rule {
			return
		}
	}
	s.missing = append(s.missing, rule)
}

// Closed implements [policy.Sink].
func (s *networkSink) Closed(c policy.Connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.usage.Count++
	s.usage.Sent += c.Sent
	s.usage.Received += c.Received
	s.learned.note(c)
	c.Names, c.Claimed = nil, false // only for learned
	if len(s.usage.Connections) < MaxListedConnections {
		s.usage.Connections = append(s.usage.Connections, c)
		if s.timer == nil && !s.ended {
			s.timer = time.AfterFunc(auditPause, s.writeConnections)
		}
	}
}

// auditPause is how long a connection of a running execution has ended, at most, before the audit log has it. The entry
// about the execution's end has all connections, so a short execution needs no other entry.
const auditPause = 10 * time.Second

// writeConnections writes the connections that have ended since the last call to the audit log: if the daemon dies, it
// writes no end. MaxListedConnections bounds these entries.
func (s *networkSink) writeConnections() {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	usage, ended := s.usage, s.ended
	usage.Connections = usage.Connections[s.audited:]
	denied := s.denied
	s.audited, s.timer = len(s.usage.Connections), nil
	s.mu.Unlock()
	if !ended && len(usage.Connections) > 0 {
		s.audit(auditNetwork(&usage, denied))
	}
}

// end waits until an entry is written. None comes after it.
func (s *networkSink) end() {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended = true; s.timer != nil {
		s.timer.Stop()
	}
}

// Dropped implements [policy.Sink].
func (s *networkSink) Dropped(d policy.Dropped) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denied += d.Denials
	s.usage.Count += d.Connections
	s.usage.Sent += d.Sent
	s.usage.Received += d.Received
	s.learned.miss(d.Connections)
}

// Lost implements [policy.DaemonSink].
func (s *networkSink) Lost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.usage.Incomplete = true
	s.learned.miss(1)
}

// into ends the sink, and adds the counts and connections of the network to an outcome. A nil sink adds nothing.
func (s *networkSink) into(out *Outcome) {
	if s == nil {
		return
	}
	s.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	usage := s.usage
	out.Usage.Network, out.Evidence.NetworkDenied, out.Learned = &usage, s.denied, s.learned.rules()
}

// advise names the missing rules. Empty: the network refused nothing.
func (s *networkSink) advise() string {
	if s == nil {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	text := fmt.Sprintf("Its network refused something %d times", s.denied)
	if s.denied == 1 {
		text = "Its network refused something once"
	}
	switch {
	case s.denied == 0:
		return ""
	case len(s.missing) == 0 && s.reason != "":
		return text + ". The first reason: " + s.reason + "."
	case len(s.missing) == 0:
		return text + "; the denied events say what."
	}
	rules, more := s.missing, ""
	where := s.allowKey + " in the daemon's configuration, and in the tenant's policy if that has rules for the network"
	if s.narrowed {
		where = "the allow rules of the request (--network). It must also be in " + where
	}
	if len(rules) > maxMissingRules {
		rules, more = rules[:maxMissingRules], " and more (see the denied events)"
	}
	return fmt.Sprintf("%s. If it is wanted, add %s%s to %s.", text, quotedList(rules), more, where)
}

func quotedList(rules []string) string {
	text := ""
	for i, rule := range rules {
		if i > 0 {
			text += ", "
		}
		text += `"` + rule + `"`
	}
	return text
}
