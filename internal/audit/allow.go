package audit

// Allow writes an entry about an allowed call before the call runs. end must be called with the call's error, before
// its answer. Callers can make calls that fail, such as for a session that does not exist, as fast as they like. So
// beyond a number of entries of a tenant each second, the entry waits for end: a call that has changed something is
// written in full, and one that has failed is counted, as by Note. The error is an *UnavailableError.
func (l *Log) Allow(e Entry) (end func(error), err error) {
	if l == nil {
		return func(error) {}, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.within(e.Tenant) || l.broken != nil {
		return func(error) {}, l.write(e)
	}
	return func(failed error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if failed == nil {
			_ = l.write(e) // a failure is counted as a lost entry
			return
		}
		l.count(e, e.Tenant)
	}, nil
}

// WriteOrCount is Write for an allowed call that changes nothing, such as one that gets the answer of an earlier call.
// Beyond a number each second, one later entry has the count.
func (l *Log) WriteOrCount(e Entry) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.within(e.Tenant) || l.broken != nil {
		return l.write(e)
	}
	l.count(e, e.Tenant)
	return nil
}

// within counts an allowed call of a tenant, and reports whether its entry is written at once. l.mu is held.
func (l *Log) within(tenant string) bool {
	key := tenant + " allowed" // no tenant has a space in its name
	if l.notes.written[key] >= fullNotes {
		return false
	}
	l.notes.written[key]++
	return true
}

// count adds an entry to the count of its kind. l.mu is held.
func (l *Log) count(e Entry, tenant string) {
	key := noteKey{e.Event, tenant, e.Reason}
	if was := l.notes.counted[key]; was != nil {
		e.Count = was.Count
	}
	e.Count++
	e.bound()
	l.notes.counted[key] = &e
}
