package files

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/linux/unixconn"
)

// operation is a function that runs in this process, or by its name in the process apart, with arguments and a result
// that JSON can carry. What is an opener carries a descriptor beside.
type operation[A, R any] struct {
	name string
	run  func(ctx context.Context, args A) (R, error)
}

// opener is implemented by pointers to arguments and results with an open file or directory.
type opener interface{ open() **os.File }

// call runs an operation.
func call[A, R any](ctx context.Context, f *Files, o operation[A, R], args A) (result R, err error) {
	r := f.remote()
	if r == nil {
		return o.run(ctx, args)
	}
	var give []*os.File
	if with, ok := any(&args).(opener); ok {
		give = append(give, *with.open())
	}
	c, err := r.begin(o.name, args, give...)
	if err != nil {
		return result, err
	}
	defer c.end()
	defer context.AfterFunc(ctx, c.cancel)()
	var a answer
	if err = c.receive(&a); err == nil {
		err = a.error()
	}
	if err == nil {
		err = json.Unmarshal(a.Result, &result)
	}
	if with, ok := any(&result).(opener); ok && err == nil {
		var given []*os.File
		if given, err = c.conn.TakeFDs(1); err == nil {
			*with.open() = given[0]
		}
	}
	return result, err
}

// serve runs an operation that another process asks for.
func (o operation[A, R]) serve(ctx context.Context, q question, given []*os.File) (result any, gives *os.File,
	err error) {
	var args A
	if err := json.Unmarshal(q.Args, &args); err != nil {
		return nil, nil, err
	}
	if with, ok := any(&args).(opener); ok {
		if len(given) != 1 {
			return nil, nil, errors.New("a descriptor is missing")
		}
		*with.open() = given[0]
	}
	r, err := o.run(ctx, args)
	if with, ok := any(&r).(opener); ok && err == nil {
		gives = *with.open()
	}
	return r, gives, err
}

// The messages of an operation, each a JSON value: a question, and its answer. Between them a tree that is unpacked
// exchanges steps (unpack.go). The asking process may say cancel at any time, and still waits for the answer.
type (
	question struct {
		Name  string
		Args  json.RawMessage
		Files int // descriptors that come along
	}
	answer struct {
		Result json.RawMessage
		Failed *failure
	}
)

// failure is an error on its way to another process.
type failure struct {
	Message, Hint string
	Code          cove.Code
	Errno         syscall.Errno // that it comes from; 0: none
	Early         bool          // it is io.ErrUnexpectedEOF
}

func failed(err error) *failure {
	if err == nil {
		return nil
	}
	f := &failure{Message: err.Error(), Early: errors.Is(err, io.ErrUnexpectedEOF)}
	if known, ok := errors.AsType[*cove.Error](err); ok {
		f.Message, f.Hint, f.Code = cove.ErrorMessage(err), cove.ErrorHint(err), known.Code
	}
	f.Errno, _ = errors.AsType[syscall.Errno](err)
	return f
}

// cause is the error of another process that has no code.
type cause struct {
	message string
	error
}

func (c cause) Error() string { return c.message }
func (c cause) Unwrap() error { return c.error }

func (f *failure) error() error {
	var from error
	switch {
	case f == nil:
		return nil
	case f.Errno != 0:
		from = f.Errno
	case f.Early:
		from = io.ErrUnexpectedEOF
	}
	err := error(cause{f.Message, from})
	if f.Code == "" {
		return err
	}
	e := cove.Errorf(f.Code, "%w", err)
	if f.Hint != "" {
		e = e.WithHint("%s", f.Hint)
	}
	return e
}

func (a answer) error() error { return a.Failed.error() }

// conversation is one operation on its way.
type conversation struct {
	apart *apart
	conn  *unixconn.Conn
	in    *json.Decoder
}

// send sends a message, with descriptors.
func (c *conversation) send(message any, files ...*os.File) error {
	data, err := json.Marshal(message)
	switch {
	case err != nil:
	case len(files) == 0:
		_, err = c.conn.Write(data)
	default:
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		err = c.conn.WriteFDs(data, fds)
	}
	if err != nil {
		return lost(err)
	}
	return nil
}

func (c *conversation) receive(message any) error {
	if err := c.in.Decode(message); err != nil {
		return lost(err)
	}
	return nil
}

// cancel asks for the end of the operation. Its answer comes still, once nothing is written any more.
func (c *conversation) cancel() { _ = c.send(step{Cancel: true}) }

func (c *conversation) end() {
	c.conn.Close()
	c.apart.release()
}

func lost(err error) error {
	return cove.Errorf(cove.Unavailable, "the process that works on the files of images has ended: %w", err).
		WithHint("try again; if it ends again, see whether the machine is short of memory")
}

// ask sends the first message of a conversation.
func (c *conversation) ask(name string, args any, files []*os.File) error {
	text, err := json.Marshal(args)
	if err != nil {
		return err
	}
	return c.send(question{name, text, len(files)}, files...)
}
