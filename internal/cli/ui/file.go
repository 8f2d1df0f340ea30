package ui

import (
	"errors"
	"io/fs"
)

// Cause is an error of a file without its name, which the message has.
func Cause(err error) error {
	if e := new(fs.PathError); errors.As(err, &e) {
		return e.Err
	}
	return err
}
