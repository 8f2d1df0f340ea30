//go:build linux

package forkserver

import (
	"errors"
	"os"

	"github.com/cove-sandbox/cove/internal/linux/unixconn"
)

// Run is the program of a fork server, in one of its modes. It has the connection to its client at descriptor 3, and
// the file of its program at the next one.
func Run(mode, without string) error {
	var err error
	if mode == modeCopy {
		err = become(without) // and then this goes on in the other mode
	}
	conn, connErr := unixconn.New(socketFD)
	if connErr != nil {
		return errors.Join(err, connErr)
	}
	defer conn.Close()
	if err != nil {
		return errors.Join(err, (&server{conn: conn}).answer(refusal(0, failed(OpCopy, err))))
	}
	return Serve(conn, os.NewFile(programFD, "program"), without)
}
