package admission

// Usages returns the present Usage of each tenant, by its name.
func (a *Admission) Usages() map[string]Usage {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := make(map[string]Usage, len(a.tenants))
	for name, t := range a.tenants {
		all[name] = Usage{t.running, t.queued, t.used}
	}
	return all
}
