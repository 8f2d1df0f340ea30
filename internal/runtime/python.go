package runtime

var python = Runtime{
	Name: "python", Aliases: []string{"python3", "py"}, File: "main.py",
	// -u: output is seen when it is written, not when a buffer is full.
	Command: []string{"python3", "-u", "main.py"}, Probe: []string{"python3", "--version"},
	Env:     []string{"PYTHONDONTWRITEBYTECODE=1"},
	Parked:  32 << 10,
	Package: "python3", Image: "python:3.13-slim",
}
