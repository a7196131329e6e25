package skill

// Derived returns what make makes of a skill. It is made once for a key and kept as
// long as the skill: a skill doesn't change, and what is made of it must not either.
// Callers that come at the same time may each make it, and get the same one. With an
// error nothing is kept.
//
// A key is compared as that of a map, so its type should be the caller's own, as of a
// context's values. Of one type there must be no more keys than files in the skill.
func Derived[T any](s *Skill, key any, make func() (T, error)) (T, error) {
	if kept, ok := s.derived.Load(key); ok {
		return kept.(T), nil
	}
	made, err := make()
	if err != nil {
		return made, err
	}
	kept, _ := s.derived.LoadOrStore(key, made)
	return kept.(T), nil
}
