package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// crowd makes COUNT connections to ADDRESS, says half a word on each, and stays.
func crowd(args []string) (report, error) {
	count, err := strconv.Atoi(args[1])
	if err != nil {
		return report{}, err
	}
	for range count {
		c, err := net.DialTimeout("tcp", args[0], longest)
		if err != nil {
			return report{}, netErrno(err)
		}
		io.WriteString(c, "GE")
		defer c.Close()
	}
	return hold(nil)
}

// hammer tries to reach each ADDRESS by TCP and UDP again and again, for
// MILLISECONDS or, with 0, for ever, and counts what was said in answer.
func hammer(args []string) (report, error) {
	millis, err := strconv.Atoi(args[0])
	if err != nil {
		return report{}, err
	}
	var r report
	emit(result("hammer", report{detail: "hammering"}, nil))
	tries := 0
	for end := time.Now().Add(time.Duration(millis) * time.Millisecond); millis == 0 || time.Now().Before(end); {
		for _, to := range args[1:] {
			tries++
			if u, err := net.Dial("udp", to); err == nil {
				u.Write([]byte("hammer"))
				u.Close()
			}
			c, err := net.DialTimeout("tcp", to, 100*time.Millisecond)
			if err != nil {
				continue
			}
			io.WriteString(c, "GET /hammer HTTP/1.1\r\nHost: evil.lab\r\nConnection: close\r\n\r\n")
			c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			b := make([]byte, 64)
			if n, _ := c.Read(b); bytes.Contains(b[:n], []byte(" 200 ")) {
				r.count++
			}
			c.Close()
		}
	}
	r.detail = fmt.Sprintf("%d tries", tries)
	if r.count == 0 {
		return r, refusal("NOTHING")
	}
	return r, nil
}

// scan connects to every port of ADDRESS and says which are open.
func scan(args []string) (report, error) {
	var r report
	for port := 1; port < 1<<16; port++ {
		c, err := net.DialTimeout("tcp", args[0]+":"+strconv.Itoa(port), time.Second)
		if err != nil {
			continue
		}
		if c.LocalAddr().String() != c.RemoteAddr().String() { // a connection to itself
			r.lines = append(r.lines, strconv.Itoa(port))
		}
		c.Close()
	}
	r.count = int64(len(r.lines))
	return r, nil
}

// crew has the same conversation COUNT times at once, and counts those that were answered with 200.
func crew(args []string) (report, error) {
	count, err := strconv.Atoi(args[0])
	if err != nil {
		return report{}, err
	}
	var r report
	answers := make(chan report)
	for range count {
		go func() {
			one, err := talk(args[1:])
			if err != nil {
				one.detail += " " + err.Error()
			}
			answers <- one
		}()
	}
	for range count {
		one := <-answers
		if one.count == 200 {
			r.count++
		}
		r.lines = append(append(r.lines, one.detail), one.lines...)
	}
	return r, nil
}
