//go:build linux

package native

// watchLocks has the sandbox ended when it holds too many locks of files.
func (s *sandbox) watchLocks() {
	s.engine.locks.Add(s.group.Name(), func(held int) error {
		s.locks.Store(int64(held))
		return s.Kill()
	})
}
