package admission

// A Place counts a request in the queue of its tenant while the request waits, but not for a slot: for a session, for
// example. The owner must call Leave before Enter, because the request would otherwise count twice.
type Place struct {
	a      *Admission
	tenant *tenant
	line   *line
}

// Wait returns a place without waiting. It takes no slot and no token of Quota.StartsPerSecond. The error is a
// *QuotaError, a *SaturatedError, ErrDraining, ErrHandedOver or ErrNoTenant.
func (a *Admission) Wait(tenant, caller string) (*Place, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t, err := a.takes(tenant)
	if err != nil {
		return nil, err
	}
	l := t.line(caller)
	if !t.hasRoom(l) {
		err := a.refusal(t, l, a.Now())
		t.drop(l)
		return nil, err
	}
	a.queued++
	t.queued++
	l.places++
	return &Place{a, t, l}, nil
}

// Leave must be called once.
func (p *Place) Leave() {
	a := p.a
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queued--
	p.tenant.queued--
	p.line.places--
	p.tenant.drop(p.line)
	a.forget(p.tenant)
}
