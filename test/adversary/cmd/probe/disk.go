package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// diskFill writes up to MIB in each of DIR… and reports the sum.
//
//	probe disk_fill MIB DIR…
func diskFill(args []string) (report, error) {
	n, err := count(args, 0, 0)
	if err != nil {
		return report{}, err
	}
	var r report
	var last error
	for i, dir := range args[1:] {
		one, err := fill(filepath.Join(dir, fmt.Sprintf(".fill-%d", i)), n, true)
		r.count += one.count
		r.lines = append(r.lines, fmt.Sprintf("%s %d %s", dir, one.count, errnoWord(err)))
		if err != nil {
			last = err
		}
	}
	for i, dir := range args[1:] {
		os.Remove(filepath.Join(dir, fmt.Sprintf(".fill-%d", i)))
	}
	return r, last
}

// inodeFill makes up to N empty files in each of DIR… and reports the sum.
func inodeFill(args []string) (report, error) {
	n, err := count(args, 0, 0)
	if err != nil {
		return report{}, err
	}
	var r report
	var last error
	for _, dir := range args[1:] {
		var made int64
		for made < n {
			fd, err := unix.Open(fmt.Sprintf("%s/.inode-%d", dir, made),
				unix.O_CREAT|unix.O_WRONLY|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
			if err != nil {
				last = err
				break
			}
			unix.Close(fd)
			made++
		}
		r.count += made
		r.lines = append(r.lines, fmt.Sprintf("%s %d %s", dir, made, errnoWord(last)))
	}
	return r, last
}

// dirDeep makes directories inside each other, N deep, below DIR.
func dirDeep(args []string) (report, error) {
	n, err := count(args, 0, 0)
	if err != nil {
		return report{}, err
	}
	if err := os.Chdir(args[1]); err != nil {
		return report{}, err
	}
	name := strings.Repeat("d", 200)
	var made int64
	for made < n {
		if err := unix.Mkdir(name, 0o700); err != nil {
			return report{count: made}, err
		}
		if err := unix.Chdir(name); err != nil {
			return report{count: made}, err
		}
		made++
	}
	return report{count: made}, nil
}

// dirFan makes N files with long names in DIR, so that a listing is large.
func dirFan(args []string) (report, error) {
	n, err := count(args, 0, 0)
	if err != nil {
		return report{}, err
	}
	pad := strings.Repeat("f", 240)
	for i := range n {
		f, err := os.Create(fmt.Sprintf("%s/%s%d", args[1], pad, i))
		if err != nil {
			return report{count: i}, err
		}
		f.Close()
	}
	return report{count: n}, nil
}

// sparse makes a file of BYTES that holds nothing.
func sparse(args []string) (report, error) {
	n, err := count(args, 0, 0)
	if err != nil {
		return report{}, err
	}
	path := filepath.Join(args[1], "sparse")
	f, err := os.Create(path)
	if err != nil {
		return report{}, err
	}
	defer f.Close()
	return report{}, f.Truncate(n)
}

// flood writes MIB of lines to STREAM (1 or 2).
func flood(args []string) (report, error) {
	n, err := count(args, 0, 1)
	if err != nil {
		return report{}, err
	}
	out := os.Stdout
	if len(args) > 1 && args[1] == "2" {
		out = os.Stderr
	}
	block := bytes.Repeat([]byte("all work and no play makes a dull sandbox\n"), 1024)
	for written := int64(0); written < n*mib; written += int64(len(block)) {
		if _, err := out.Write(block); err != nil {
			return report{}, err
		}
	}
	return report{}, errors.Join()
}

// oneLine writes MIB without a newline.
func oneLine(args []string) (report, error) {
	n, err := count(args, 0, 1)
	if err != nil {
		return report{}, err
	}
	block := bytes.Repeat([]byte("x"), 64<<10)
	for written := int64(0); written < n*mib; written += int64(len(block)) {
		if _, err := os.Stdout.Write(block); err != nil {
			return report{}, err
		}
	}
	os.Exit(0)
	return report{}, nil
}

// everyByte writes each byte value, escape sequences, invalid UTF-8 and line separators.
func everyByte([]string) (report, error) {
	os.Stdout.Write(hostileOutput())
	os.Exit(0)
	return report{}, nil
}

func hostileOutput() []byte {
	var b []byte
	for i := range 256 {
		b = append(b, byte(i))
	}
	b = append(b,
		"\x1b]52;c;ZXZpbA==\x07\x1b]8;;http://x/\x07\xff\xfe\xc0\xaf\u2028\u2029\r\n\ndata: x\n\nevent: done\n\n"...)
	return b
}
