//go:build linux

package inside

import (
	"encoding/json"
	"fmt"
	"os"
	"path"

	"github.com/cove-sandbox/cove/internal/gitservice/internal/wire"
)

// Edit is the editor of the git that runs beside a sandbox: it has a file
// edited by the caller of the command, in the sandbox.
func Edit(args []string) int {
	if err := edit(args); err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		return 1
	}
	return 0
}

func edit(args []string) error {
	id := os.Getenv(wire.EditVariable)
	if len(args) != 1 || id == "" {
		return fmt.Errorf("nobody can edit a text here; say it with -m")
	}
	text, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	conn, err := connect(wire.EditPort)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := wire.WriteJSON(conn, wire.FrameEdit, wire.Edit{ID: id, Name: path.Base(args[0]), Text: text}); err != nil {
		return err
	}
	_, payload, err := wire.ReadFrame(conn)
	var answer wire.Edited
	if err == nil {
		err = json.Unmarshal(payload, &answer)
	}
	if err == nil && !answer.OK {
		err = fmt.Errorf("the editor ended with an error")
	}
	if err != nil {
		return err
	}
	return os.WriteFile(args[0], answer.Text, 0o644)
}
