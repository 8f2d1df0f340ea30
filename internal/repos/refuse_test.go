package repos

import "testing"

// TestRefusedFilesAreNamed: all of them, with the reason and the flag.
func TestRefusedFilesAreNamed(t *testing.T) {
	asked := func(path string) Objection { return Objection{path, "it decides what others run", true} }
	for name, c := range map[string]struct {
		all        []Objection
		want, hint string
	}{
		"one": {[]Objection{asked(".gitattributes")}, `".gitattributes" is not applied: it decides what others run`,
			"look at what they do; --allow-restricted applies them, and naming paths leaves them out"},
		"several": {[]Objection{asked(".gitattributes"), asked("ci.yml"), {"../x", "it leaves the checkout", false}},
			`3 files are not applied: ".gitattributes", "ci.yml" (it decides what others run), ` +
				`"../x" (it leaves the checkout)`, "leave out what is refused by naming the paths that you want"},
	} {
		err := refuse(c.all, false)
		if want := c.want + " (" + c.hint + ")"; err == nil || err.Error() != want {
			t.Errorf("%s: %v\nwant %s", name, err, want)
		}
	}
}
