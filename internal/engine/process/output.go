package process

// Output receives what a program writes, within its limits, on one goroutine at a time; a slow one slows the program.
type Output interface {
	Stdout(p []byte) error
	Stderr(p []byte) error
}

// Sink is a writer that takes all or fails.
type Sink func([]byte) error

// Write implements io.Writer.
func (s Sink) Write(p []byte) (int, error) {
	if err := s(p); err != nil {
		return 0, err
	}
	return len(p), nil
}
