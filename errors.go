package cove

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

// Code is the kind of an error, from a closed list. Edges map codes to HTTP statuses and exit codes in one table each.
type Code string

const (
	InvalidArgument Code = "invalid_argument" // the request is malformed or out of range
	Unauthenticated Code = "unauthenticated"  // no key, or not a valid one
	Forbidden       Code = "forbidden"        // understood and refused by policy
	NotFound        Code = "not_found"        // no such object
	Conflict        Code = "conflict"         // the object's state does not allow it, or another caller holds it
	TooLarge        Code = "too_large"        // a size limit of the request
	Unsupported     Code = "unsupported"      // this engine or host cannot enforce what is asked
	RuntimeMissing  Code = "runtime_missing"  // the language's toolchain is not in the image
	ImageMissing    Code = "image_missing"    // the image is not there and cannot be fetched
	Overloaded      Code = "overloaded"       // try again later
	Unavailable     Code = "unavailable"      // something Cove needs does not answer
	Shutdown        Code = "shutdown"         // the server was told to stop; the next one may be asked for the same again
	StorageFull     Code = "storage_full"     // no space, or read-only
	Corrupt         Code = "corrupt"          // stored state cannot be read
	Canceled        Code = "canceled"         // the caller went away or ended it
	Internal        Code = "internal"         // a defect or an unforeseen fault

	AgentFailed      Code = "agent_failed"      // the agent's program ended with an exit code that says so
	AgentProtocol    Code = "agent_protocol"    // the agent's program wrote what its output cannot be
	SchemaMismatch   Code = "schema_mismatch"   // an answer is not valid by the schema that was asked for
	ModelUnreachable Code = "model_unreachable" // the model's endpoint does not answer, or refuses
	LimitReached     Code = "limit_reached"     // a limit of the task ended it: time, memory, turns, budget
)

// Codes lists every code, in the order above.
var Codes = []Code{InvalidArgument, Unauthenticated, Forbidden, NotFound, Conflict, TooLarge, Unsupported,
	RuntimeMissing, ImageMissing, Overloaded, Unavailable, Shutdown, StorageFull, Corrupt, Canceled, Internal,
	AgentFailed, AgentProtocol, SchemaMismatch, ModelUnreachable, LimitReached}

// Error is an error a user may see: what failed, and what to do about it.
type Error struct {
	Code    Code
	Message string // one sentence, safe to show: no host paths beyond the user's own, no secrets
	Hint    string // what to do next; may be empty
	Err     error  // the cause, for logs; may be nil
	// RetryAfter is when the same may be asked again with a prospect of success; 0: nothing is known of it.
	RetryAfter time.Duration
}

func (e *Error) Error() string {
	s := e.Message
	if _, spelled := e.Err.(silent); e.Err != nil && !spelled {
		s += ": " + e.Err.Error()
	}
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an Error; a %w verb keeps the cause reachable by errors.Is.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	if errors.Unwrap(err) != nil {
		return &Error{Code: code, Message: err.Error(), Err: silent{errors.Unwrap(err)}}
	}
	return &Error{Code: code, Message: err.Error()}
}

// silent keeps a cause that Message already spells out from being printed twice.
type silent struct{ error }

func (s silent) Unwrap() error { return s.error }

// WithHint returns e with what to do next.
func (e *Error) WithHint(format string, args ...any) *Error {
	c := *e
	c.Hint = fmt.Sprintf(format, args...)
	return &c
}

// WithRetry returns e with when to try again, in whole seconds, also as what to do next.
func (e *Error) WithRetry(after time.Duration) *Error {
	c := e.WithHint("try again in %s", after)
	c.RetryAfter = after
	return c
}

// ErrorRetry is the RetryAfter of the first Error in err's chain.
func ErrorRetry(err error) time.Duration {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.RetryAfter
	}
	return 0
}

// ErrorCode is the code of the first Error in err's chain, Internal when there is none, and empty for nil.
func ErrorCode(err error) Code {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return Internal
}

// ShuttingDown is the error for what is asked of a server that was told to stop.
func ShuttingDown() *Error {
	return Errorf(Shutdown, "the server is shutting down").WithHint("ask the next one again")
}

// Away reports whether err means that a server does not answer, or was told to stop: the same may be asked again.
func Away(err error) bool {
	code := ErrorCode(err)
	return code == Unavailable || code == Shutdown
}

// OutOfFiles returns err as Overloaded if this process, or the machine, had as many open files as it may, else as it
// is.
func OutOfFiles(err error) error {
	switch {
	case errors.Is(err, syscall.EMFILE):
		return Errorf(Overloaded, "%w: Cove has as many as it may", syscall.EMFILE).
			WithHint("raise the limit of open files (ulimit -n, LimitNOFILE= of the service), or run less at once")
	case errors.Is(err, syscall.ENFILE):
		return Errorf(Overloaded, "%w: the machine has as many as it may", syscall.ENFILE).
			WithHint("raise sysctl fs.file-max, or run less at once")
	}
	return err
}

// ErrorMessage is the message of the first Error in err's chain, without its hint, or else the whole text.
func ErrorMessage(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Message
	}
	return err.Error()
}

// ErrorHint is the hint of the first Error in err's chain that has one.
func ErrorHint(err error) string {
	for err != nil {
		var e *Error
		if !errors.As(err, &e) {
			return ""
		}
		if e.Hint != "" {
			return e.Hint
		}
		err = e.Err
	}
	return ""
}
