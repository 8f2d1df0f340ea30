package run

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/message"
)

// Files of a run's directory.
const (
	outputFile = "output"        // what the program has printed, byte by byte, while it runs
	eventsFile = "events.ndjson" // an entry in each line
	patchFile  = "changes.patch"
	castSuffix = ".cast" // of the recording of a terminal
)

// maxLogged is how much of an agent's error output is kept, in bytes.
const maxLogged = 4 << 20

// entry is one line of the events: a message, or error output.
type entry struct {
	Message *message.Message `json:"message,omitempty"`
	Log     string           `json:"log,omitempty"`
	Time    time.Time        `json:"time,omitzero"` // of Log
}

// damaged is the error output in the place of a line that cannot be read, as where a full disk has cut one.
const damaged = "[damaged: a part of this record cannot be read]\n"

// entryOf returns the entry of a line.
func entryOf(line []byte) (e entry) {
	if err := json.Unmarshal(line, &e); err != nil {
		return entry{Log: damaged}
	}
	return e
}

func (e entry) at() time.Time {
	if e.Message != nil {
		return e.Message.Time
	}
	return e.Time
}

// transcript writes the files of a run. They are complete at any moment, except for the end of the last line.
type transcript struct {
	dir  string
	most uint64 // bytes that the program may print

	mu       sync.Mutex
	output   *os.File
	events   *os.File
	size     uint64 // of output
	whole    int64  // bytes of events: whole lines
	messages int    // in events
	logged   int    // bytes of error output
	news     chan struct{}
	over     bool
}

// newTranscript begins the record of a run.
func newTranscript(dir string, most uint64) (*transcript, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, unwritable(err)
	}
	return openTranscript(dir, most)
}

// openTranscript goes on with one.
func openTranscript(dir string, most uint64) (t *transcript, err error) {
	t = &transcript{dir: dir, most: most, news: make(chan struct{})}
	defer func() {
		if err != nil {
			t.close()
			err = unwritable(err)
		}
	}()
	if t.output, err = os.OpenFile(filepath.Join(dir, outputFile), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return t, err
	}
	if t.events, err = os.OpenFile(filepath.Join(dir, eventsFile), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return t, err
	}
	info, err := t.output.Stat()
	if err != nil {
		return t, err
	}
	t.size = uint64(info.Size())
	return t, t.count()
}

// count counts what is in the events, and drops a line that was not written to its end.
func (t *transcript) count() error {
	r := bufio.NewReader(t.events)
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return t.events.Truncate(t.whole)
		}
		if err != nil {
			return err
		}
		t.whole += int64(len(line))
		if e := entryOf(line); e.Message != nil {
			t.messages++
		} else {
			t.logged += len(e.Log)
		}
	}
}

func unwritable(err error) error {
	return cove.Errorf(cove.StorageFull, "the record of a run cannot be written: %w", err).
		WithHint("free some space, or choose another home with COVE_HOME")
}

// print adds what the program has printed, and says how much that is now.
// Errors: LimitReached when it is more than it may be.
func (t *transcript) print(p []byte) (size uint64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.size+uint64(len(p)) > t.most {
		return t.size, cove.Errorf(cove.LimitReached, "the agent has printed more than %d MiB", t.most>>20)
	}
	if _, err := t.output.Write(p); err != nil {
		return t.size, unwritable(err)
	}
	t.size += uint64(len(p))
	return t.size, nil
}

// silent reports whether nothing has been printed.
func (t *transcript) silent() bool { return t.size == 0 && t.messages == 0 && t.logged == 0 }

// printed reads what the program has printed so far.
func (t *transcript) printed() io.Reader { return io.NewSectionReader(t.output, 0, int64(t.size)) }

// message adds a message.
func (t *transcript) message(m message.Message) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.add(entry{Message: &m})
	if err == nil {
		t.messages++
	}
	return err
}

// log adds error output, and drops what is too much.
func (t *transcript) log(text string, at time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.logged >= maxLogged {
		return nil
	}
	if t.logged += len(text); t.logged >= maxLogged {
		text = "[cut: there is more]\n"
	}
	return t.add(entry{Log: text, Time: at})
}

// add writes an entry whole or not at all.
func (t *transcript) add(e entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	if _, err := t.events.Write(line); err != nil {
		return unwritable(errors.Join(err, t.events.Truncate(t.whole)))
	}
	t.whole += int64(len(line))
	close(t.news)
	t.news = make(chan struct{})
	return nil
}

// heard is closed when there is more to read, or nothing follows.
func (t *transcript) heard() (news <-chan struct{}, over bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.news, t.over
}

// end says that nothing follows: what was printed is not needed any more. With keep the next server goes on.
func (t *transcript) end(keep bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return
	}
	t.over = true
	close(t.news)
	t.close()
	if !keep {
		os.Remove(filepath.Join(t.dir, outputFile)) // it goes with the directory otherwise
	}
}

func (t *transcript) close() {
	for _, f := range []*os.File{t.output, t.events} {
		if f != nil {
			f.Close()
		}
	}
}

// reader reads the entries of a run, also of one that is being written.
type reader struct {
	file *os.File
	buf  *bufio.Reader
	from int64     // where the next entry begins
	seq  int       // of the entry that was read last
	at   time.Time // of that
}

// openReader reads from the entry after one; of a run without any there are none.
func openReader(dir string, after int) (*reader, error) {
	f, err := os.Open(filepath.Join(dir, eventsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return &reader{buf: bufio.NewReader(bytes.NewReader(nil))}, nil
	}
	if err != nil {
		return nil, cove.Errorf(cove.Corrupt, "the record of the run cannot be read: %w", err)
	}
	r := &reader{file: f, buf: bufio.NewReaderSize(f, 64<<10)}
	for r.seq < after {
		if _, err := r.next(); err != nil {
			if errors.Is(err, io.EOF) {
				return r, nil
			}
			f.Close()
			return nil, err
		}
	}
	return r, nil
}

// next returns the next entry; io.EOF when there is none yet.
func (r *reader) next() (e entry, err error) {
	line, err := r.buf.ReadBytes('\n')
	if errors.Is(err, io.EOF) {
		if len(line) == 0 {
			return e, io.EOF
		}
		// The rest of the line comes, or another line in its place.
		if _, err = r.file.Seek(r.from, io.SeekStart); err == nil {
			r.buf.Reset(r.file)
			return e, io.EOF
		}
	}
	if err != nil {
		return e, cove.Errorf(cove.Corrupt, "the record of the run cannot be read: %w", err)
	}
	r.from += int64(len(line))
	r.seq++
	if e = entryOf(line); e.Log == damaged {
		e.Time = r.at
	}
	r.at = e.at()
	return e, nil
}

func (r *reader) close() {
	if r.file != nil {
		r.file.Close()
	}
}
