// Command neighbour is a service for tests: it answers each line that a client sends.
//
//	get            the content of /data/word
//	put WORD       writes it
//	env NAME       a variable
//	id             the user and the host name
//	dial ADDRESS   what the first line of another service, or the error, is
//	exit           ends the program
//
// SIGUSR1 has it write what SIGUSR1 is, and end. As "neighbour check" it is a check of health: it asks the service on this machine. As "neighbour ask ADDRESS LINE" it
// is a client.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	port := os.Getenv("PORT")
	if len(os.Args) > 1 {
		to, line := "127.0.0.1:"+port, "get"
		if os.Args[1] == "ask" {
			to, line = os.Args[2], strings.Join(os.Args[3:], " ")
		}
		answer, err := ask(to, line)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(answer)
		return
	}
	fmt.Println("begins with", os.Getenv("WORD"))
	if os.Getenv("FAIL") != "" {
		fmt.Println("it has to fail:", os.Getenv("FAIL"))
		os.Exit(3)
	}
	if os.Getenv("MUTE") != "" {
		fmt.Println("it does not listen")
		select {}
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	go func() {
		fmt.Println(answer(fmt.Sprint("put ", <-asked)))
		os.Exit(0)
	}()
	ln, err := net.Listen("tcp", net.JoinHostPort(os.Getenv("ADDRESS"), port))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for {
		c, err := ln.Accept()
		if err != nil {
			panic(err)
		}
		go serve(c)
	}
}

func serve(c net.Conn) {
	defer c.Close()
	for lines := bufio.NewScanner(c); lines.Scan(); {
		fmt.Fprintln(c, answer(lines.Text()))
	}
}

func answer(line string) string {
	verb, rest, _ := strings.Cut(line, " ")
	switch verb {
	case "get":
		word, err := os.ReadFile("/data/word")
		if errors.Is(err, os.ErrNotExist) {
			return "nothing"
		}
		return string(word)
	case "put":
		if err := errors.Join(os.MkdirAll("/data", 0o755), os.WriteFile("/data/word", []byte(rest), 0o644)); err != nil {
			return err.Error()
		}
		return "put"
	case "env":
		return os.Getenv(rest)
	case "id":
		name, _ := os.Hostname()
		return fmt.Sprint(os.Getuid(), " ", name)
	case "dial":
		said, err := ask(rest, "id")
		if err != nil {
			return "no: " + err.Error()
		}
		return said
	case "exit":
		fmt.Println("it is asked to end")
		os.Exit(7)
	}
	return "what?"
}

func ask(to, line string) (string, error) {
	c, err := net.DialTimeout("tcp", to, 10*time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprintln(c, line)
	said, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(said), err
}
