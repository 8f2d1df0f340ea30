package runtime

var bash = Runtime{
	Name: "bash", File: "main.bash",
	Command: []string{"bash", "main.bash"}, Probe: []string{"bash", "--version"},
	Parked:  4 << 10, // it reads a pipe byte by byte
	Package: "bash", Image: "debian:stable-slim",
}
