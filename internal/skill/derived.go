package skill

// Derived returns a value that is computed from a skill, such as a parsed file. The first
// successful result is kept as long as the skill; errors are not kept. Since a skill never
// changes, callers must not change the value either. Concurrent callers may each run
// make, but all of them get the same result.
//
// As with context.Context, the key should have a type that only the caller's package
// can make. A caller must not use more keys than the skill has files.
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
