package runtime

var bash = Runtime{
	Name: "bash", File: "main.bash",
	Command: []string{"bash", "main.bash"}, Probe: []string{"bash", "--version"},
	Package: "bash", Image: "debian:stable-slim",
}
