package runtime

var perl = Runtime{
	Name: "perl", Aliases: []string{"pl"}, File: "main.pl",
	Command: []string{"perl", "main.pl"}, Probe: []string{"perl", "-e", "print $^V"},
	Package: "perl", Image: "perl:5.42-slim",
}
