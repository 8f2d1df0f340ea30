//go:build linux

package inside

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/gitservice/internal/wire"
)

// maxLine is how long a line of an answer's head may be.
const maxLine = 8 << 10

// post sends a signed request to the API and returns the body of its answer.
func post(path string, body []byte) (conn *os.File, answer io.Reader, err error) {
	key, err := readKey()
	if err != nil {
		return nil, nil, fmt.Errorf("git is not available in this sandbox: %w", err)
	}
	if conn, err = connect(wire.Port); err != nil {
		return nil, nil, fmt.Errorf("git is not available in this sandbox: %w", err)
	}
	nonce := make([]byte, wire.NonceSize)
	rand.Read(nonce)
	now, n := strconv.FormatInt(time.Now().Unix(), 10), hex.EncodeToString(nonce)
	var b bytes.Buffer
	fmt.Fprintf(&b,
		"POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: "+
			"%d\r\n%s: %s\r\n%s: %s\r\n%s: %s\r\n\r\n",
		path, len(body), wire.HeaderTime, now, wire.HeaderNonce, n, wire.HeaderSignature,
		wire.Sign(key, "POST", path, body, now, n))
	b.Write(body)
	_, writeErr := conn.Write(b.Bytes())
	answer, err = readAnswer(bufio.NewReaderSize(conn, 64<<10))
	if err != nil {
		conn.Close()
		return nil, nil, errors.Join(err, writeErr)
	}
	return conn, answer, nil
}

func readKey() ([]byte, error) {
	text, err := os.ReadFile(wire.KeyFile)
	if err != nil {
		return nil, err
	}
	return hex.DecodeString(strings.TrimSpace(string(text)))
}

// connect connects to a port of the loopback.
func connect(port int) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "git"), nil
}

// readAnswer reads the head of an answer. One that is not a success is an error with what it says.
func readAnswer(r *bufio.Reader) (io.Reader, error) {
	status, err := line(r)
	if err != nil {
		return nil, fmt.Errorf("git does not answer: %w", err)
	}
	_, code, _ := strings.Cut(status, " ")
	chunked, length := false, int64(-1)
	for {
		header, err := line(r)
		if err != nil {
			return nil, err
		}
		if header == "" {
			break
		}
		name, value, _ := strings.Cut(header, ":")
		switch value = strings.TrimSpace(value); strings.ToLower(name) {
		case "transfer-encoding":
			chunked = value == "chunked"
		case "content-length":
			if length, err = strconv.ParseInt(value, 10, 64); err != nil {
				return nil, err
			}
		}
	}
	var body io.Reader = r
	if chunked {
		body = &chunks{r: r}
	} else if length >= 0 {
		body = io.LimitReader(r, length)
	}
	if !strings.HasPrefix(code, "200") {
		said, _ := io.ReadAll(io.LimitReader(body, maxLine))
		return nil, errors.New(strings.TrimSpace(string(said)))
	}
	return body, nil
}

func line(r *bufio.Reader) (string, error) {
	var b []byte
	for {
		part, err := r.ReadSlice('\n')
		if b = append(b, part...); len(b) > maxLine {
			return "", errors.New("a line is too long")
		}
		if err == nil {
			return strings.TrimRight(string(b), "\r\n"), nil
		}
		if err != bufio.ErrBufferFull {
			return "", err
		}
	}
}

// chunks reads a body in the chunked transfer coding.
type chunks struct {
	r    *bufio.Reader
	left int64
	end  bool
}

func (c *chunks) Read(p []byte) (int, error) {
	if c.end {
		return 0, io.EOF
	}
	if c.left == 0 {
		size, err := line(c.r)
		if err != nil {
			return 0, io.ErrUnexpectedEOF
		}
		if c.left, err = strconv.ParseInt(size, 16, 64); err != nil || c.left < 0 {
			return 0, errors.New("a chunk has no size")
		}
		if c.left == 0 {
			c.end = true
			return 0, io.EOF
		}
	}
	n, err := c.r.Read(p[:min(int64(len(p)), c.left)])
	if c.left -= int64(n); c.left == 0 && err == nil {
		_, err = line(c.r)
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}
