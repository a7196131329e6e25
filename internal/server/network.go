package server

import (
	"context"
	"fmt"
	"net/netip"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/ingress/identity"
	"github.com/skillrun/skillrun/internal/network/policy"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// Bounds on the rules of a request. A tenant's policy may have more. The record keeps the rules of each execution,
// and the helper compares each connection with them. A domain name has at most 253 bytes, so 300 are enough for
// each rule.
const (
	maxRules     = 100
	maxRuleBytes = 300
)

// newNetwork takes an unset field for the skill's and the policy's choice, and an empty list of allow
// rules for the policy's list.
func newNetwork(m *pb.NetworkRules) (*policy.Config, error) {
	if m == nil {
		return nil, nil
	}
	if err := boundRules("network_rules.allow", m.GetAllow()); err != nil {
		return nil, err
	}
	if err := boundRules("network_rules.deny", m.GetDeny()); err != nil {
		return nil, err
	}
	return &policy.Config{Allow: m.GetAllow(), Deny: m.GetDeny(), Learn: m.GetLearn()}, nil
}

// checkLearn refuses a request that learns, unless the caller is an administrator: the rules of the policy
// do not hold for it.
func checkLearn(ctx context.Context, m *pb.ExecuteRequest) error {
	if role := roleOf(ctx); m.GetNetworkRules().GetLearn() && !role.Covers(identity.Admin) {
		return &roleError{identity.Identity{Principal: caller(ctx), Role: role}, identity.Admin}
	}
	return nil
}

// boundRules checks only sizes. Whether a rule can be parsed, package permission finds out, with the skill's and the
// tenant's rules.
func boundRules(field string, list []string) error {
	if len(list) > maxRules {
		return invalid(field, "%d rules; at most %d", len(list), maxRules)
	}
	for i, rule := range list {
		if len(rule) > maxRuleBytes {
			return invalid(fmt.Sprintf("%s[%d]", field, i), "%d bytes; at most %d", len(rule), maxRuleBytes)
		}
	}
	return nil
}

// fromNetwork and fromLearned return nil for nil, which means no network.
func fromNetwork(n *executor.Network) *pb.NetworkRules {
	if n == nil {
		return nil
	}
	return &pb.NetworkRules{Allow: texts(n.Allow), Deny: texts(n.Deny), Learn: n.Learn}
}

func fromLearned(l *executor.Learned) *pb.LearnedRules {
	if l == nil {
		return nil
	}
	return &pb.LearnedRules{Allow: texts(l.Allow), Incomplete: l.Incomplete}
}

// fromDenial: names and rules come from programs and callers.
func fromDenial(d policy.Denial) *pb.NetworkDenial {
	m := &pb.NetworkDenial{
		Protocol: text(d.Protocol), Name: text(d.Name), Reason: text(d.Reason), Rule: text(d.Rule), MissingRule: text(d.Missing),
	}
	m.Address, m.Port = fromAddress(d.To)
	return m
}

// fromAddress returns "" for the refusal of a name, which has no address.
func fromAddress(a netip.AddrPort) (string, uint32) {
	if !a.IsValid() {
		return "", 0
	}
	return a.Addr().String(), uint32(a.Port())
}

func fromNetworkUsage(u *executor.NetworkUsage) *pb.NetworkUsage {
	if u == nil {
		return nil
	}
	m := &pb.NetworkUsage{ConnectionCount: uint64(u.Count), SentBytes: uint64(u.Sent), ReceivedBytes: uint64(u.Received), Incomplete: u.Incomplete}
	for _, c := range u.Connections {
		one := &pb.NetworkConnection{
			StartTime: timestamppb.New(c.Start), Duration: durationpb.New(c.Took), Protocol: text(c.Protocol), Name: text(c.Name),
			SentBytes: uint64(c.Sent), ReceivedBytes: uint64(c.Received), Credentials: texts(c.Credentials), Error: text(c.Error),
		}
		one.Address, one.Port = fromAddress(c.To)
		m.Connections = append(m.Connections, one)
	}
	for _, d := range u.Denials {
		m.Denials = append(m.Denials, fromDenial(d))
	}
	return m
}

// networkMode says whether an execution that asks for a network can get one.
func networkMode(rules bool) pb.NetworkMode {
	if rules {
		return pb.NetworkMode_NETWORK_MODE_RULES
	}
	return pb.NetworkMode_NETWORK_MODE_NONE
}
