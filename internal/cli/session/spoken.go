package session

import (
	"errors"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// Spoken returns an error in the words of the command line, with variables and flags in place of the API's headers and
// fields.
func Spoken(sess *Session, err error) error {
	e, ok := errors.AsType[*cove.Error](err)
	if !ok {
		return err
	}
	const maker = "its owner makes one: cove config new-key NAME"
	// A registry of images has the code, too.
	noKey := e.Code == cove.Unauthenticated && !strings.Contains(e.Hint, "docker login")
	switch {
	case noKey && sess.Getenv(keyVariable) == "":
		return cove.Errorf(e.Code, "the server %s wants an API key", sess.ServerAddress()).
			WithHint("put it into the variable %s; %s", keyVariable, maker)
	case noKey:
		return cove.Errorf(e.Code, "the server %s does not know the API key in %s", sess.ServerAddress(), keyVariable).
			WithHint("see that it is whole; %s", maker)
	case e.Code == cove.Forbidden && strings.Contains(e.Hint, "new.repository"):
		return cove.Errorf(e.Code, "the server %s has no directory of this machine", sess.ServerAddress()).
			WithHint("have the agent work there on a repository: cove new OWNER/REPO --name NAME, and then --sandbox NAME")
	}
	return err
}

// keyVariable names the environment variable with the API key for a server.
const keyVariable = "COVE_API_KEY"

// Problem is an error as --json prints it: that of the API, without the id of a request.
type Problem struct {
	Error string `json:"error"`
	Code  string `json:"code"`
	Hint  string `json:"hint,omitempty"`
}

// ProblemOf returns an error for --json.
func ProblemOf(sess *Session, err error) Problem {
	err = Spoken(sess, err)
	return Problem{Error: ui.Message(err), Code: string(cove.ErrorCode(err)), Hint: cove.ErrorHint(err)}
}
