package audit

// Allow writes an entry about an allowed call before the call runs. end must be called with the call's error, before
// its answer. Calls that fail, for example for a session that does not exist, cost callers almost nothing, and could
// fill the log. So only a number of entries of a tenant is written at once each second. Beyond it, the entry waits for
// end: a call without an error gets its entry, and a failed call is counted, as by Note. On a full disk, entries of
// calls that free room wait in the same way, and the log has space for them. A call for which too little space is left
// is refused. The error is an *UnavailableError.
func (l *Log) Allow(e Entry) (end func(error), err error) {
	if l == nil {
		return func(error) {}, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	promised := int64(0)
	switch {
	case l.broken != nil && e.frees():
		if !l.promise() { // the rest of the space is for the calls that run
			l.lost++
			l.stats.Failures++
			return func(error) {}, &UnavailableError{l.broken}
		}
		promised = promiseBytes
	case l.within(e.Tenant) || l.broken != nil:
		return func(error) {}, l.write(e)
	}
	return func(failed error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.promised -= promised
		if failed == nil {
			_ = l.write(e) // a failure is counted as a lost entry
			return
		}
		l.count(e, e.Tenant)
	}, nil
}

// WriteOrCount is Write for an allowed call that changes nothing, such as a repetition of an earlier call. Each second
// only a number of such entries of a tenant is written; one later entry has the count of the others.
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

// within counts an allowed call of a tenant, and reports whether its entry may be written at once. l.mu is held.
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
