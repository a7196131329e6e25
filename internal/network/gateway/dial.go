package gateway

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/skillrun/skillrun/internal/network/dial"
	"github.com/skillrun/skillrun/internal/network/policy"
)

// missed reports an allowed connection that its destination did not accept. It reports no faults of the proxy, the
// helper or the machine, because dial has reported these as refusals.
func (g *Gateway) missed(start time.Time, d decision, err error) {
	if _, proxy := errors.AsType[dial.ProxyError](err); proxy || dial.Fault(err) != "" || g.life.Err() != nil {
		return
	}
	g.report.closed(d.connection(start, policy.Connection{Error: dial.Unreached(err)}))
}

// dial opens the connection of a decision, through the proxy if the decision has one. If the proxy or the
// helper opens no connection, dial reports the refusal with its reason.
func (g *Gateway) dial(ctx context.Context, d decision) (*dial.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, g.entries.limits.Dial)
	defer cancel()
	u, err := g.dialTCP(ctx, d)
	reason := dial.Fault(err)
	if refused, ok := errors.AsType[dial.ProxyError](err); ok {
		reason = refused.Reason
	}
	if dial.HasNoPort(err) {
		g.throttle.charge(wasteOfPort)
	}
	if reason != "" && !errors.Is(ctx.Err(), context.Canceled) {
		g.deny(d.refuse(policy.Verdict{Reason: reason}))
	}
	return u, err
}

func (g *Gateway) dialTCP(ctx context.Context, d decision) (*dial.Conn, error) {
	if d.proxied != "" {
		return g.relay.Dial(ctx, d.proxied)
	}
	c, err := g.entries.tenant.ports.Dial(ctx, "tcp", d.to.String())
	if err != nil {
		return nil, err
	}
	return &dial.Conn{Conn: c, Socket: c.(*net.TCPConn)}, nil
}
