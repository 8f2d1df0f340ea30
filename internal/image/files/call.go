package files

import (
	"bytes"
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
// that JSON can carry. Arguments that are opener carry a descriptor beside.
type operation[A, R any] struct {
	name string
	run  func(ctx context.Context, args A) (R, error)
}

// opener is implemented by pointers to arguments with an open directory.
type opener interface{ dir() **os.File }

// call runs an operation.
func call[A, R any](ctx context.Context, f *Files, o operation[A, R], args A) (result R, err error) {
	r := f.remote()
	if r == nil {
		return o.run(ctx, args)
	}
	var give []*os.File
	if with, ok := any(&args).(opener); ok {
		give = append(give, *with.dir())
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
	return result, err
}

// serve runs an operation that another process asks for.
func (o operation[A, R]) serve(ctx context.Context, q question, given []*os.File) (any, error) {
	var args A
	if err := json.Unmarshal(q.Args, &args); err != nil {
		return nil, err
	}
	if with, ok := any(&args).(opener); ok {
		if len(given) != 1 {
			return nil, errors.New("a directory is missing")
		}
		*with.dir() = given[0]
	}
	return o.run(ctx, args)
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

func (c *conversation) send(message any) error {
	data, err := json.Marshal(message)
	if err == nil {
		_, err = c.conn.Write(data)
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

// sendQuestion sends the first message of a conversation.
func sendQuestion(conn *unixconn.Conn, name string, args any, files []*os.File) error {
	text, err := json.Marshal(args)
	if err != nil {
		return err
	}
	data, err := json.Marshal(question{name, text, len(files)})
	if err != nil || len(files) == 0 {
		return errors.Join(err, write(conn, data))
	}
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	return conn.WriteFDs(data, fds)
}

func write(w io.Writer, data []byte) error {
	_, err := io.Copy(w, bytes.NewReader(data))
	return err
}
