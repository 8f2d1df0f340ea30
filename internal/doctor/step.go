//go:build linux

package doctor

// stepError is an error with its step.
type stepError struct {
	step string
	err  error
}

func (e *stepError) Error() string { return e.step + ": " + e.err.Error() }
func (e *stepError) Unwrap() error { return e.err }

// step adds the step to an error; nil stays nil.
func step(name string, err error) error {
	if err == nil {
		return nil
	}
	return &stepError{name, err}
}
