package proxy

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestPace: connections of one sandbox carry together what they may, in each direction, and no byte is lost.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate, each, connections = 1 << 20, 2 << 20, 4
		p := newPace(rate)
		text := bytes.Repeat([]byte("0123456789abcdef"), each/16)
		began := time.Now()
		var all sync.WaitGroup
		for range connections {
			inside, outside := net.Pipe()
			paced := p.of(outside)
			all.Go(func() { inside.Write(text) })
			all.Go(func() {
				if got, err := io.ReadAll(io.LimitReader(paced, each)); err != nil || !bytes.Equal(got, text) {
					t.Errorf("sent: %d bytes, or others: %v", len(got), err)
				}
			})
			all.Go(func() {
				if n, err := paced.Write(text); n != each || err != nil {
					t.Errorf("received: %d bytes, %v", n, err)
				}
			})
			all.Go(func() {
				if got, err := io.ReadAll(io.LimitReader(inside, each)); err != nil || !bytes.Equal(got, text) {
					t.Errorf("received: %d bytes, or others: %v", len(got), err)
				}
			})
		}
		all.Wait()
		// Both directions pass at the same time, less what passes at once in the beginning.
		if took := time.Since(began); took < 7*time.Second || took > 9*time.Second {
			t.Errorf("%d bytes each way at %d a second took %s", connections*each, rate, took)
		}
	})
}

// TestPaceEnds: a connection that waits for its turn ends when it is closed.
func TestPaceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inside, outside := net.Pipe()
		c := newPace(1).of(outside)
		go io.Copy(io.Discard, inside)
		ended := make(chan error)
		go func() {
			_, err := c.Write(make([]byte, 1<<20))
			ended <- err
		}()
		synctest.Wait()
		c.Close()
		if err := <-ended; err == nil {
			t.Error("all was written")
		}
		c.Close()
	})
}

func TestNoPace(t *testing.T) {
	_, outside := net.Pipe()
	if newPace(0).of(outside) != outside {
		t.Error("without a limit the connection is another")
	}
}
