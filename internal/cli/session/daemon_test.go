package session

import (
	"testing"

	"github.com/cove-sandbox/cove"
)

// TestPlace: a server carries out a command where one can do it, and else the program with the daemon, which is this
// one or takes its place.
func TestPlace(t *testing.T) {
	for _, c := range []struct {
		name string
		s    situation
		want place
	}{
		{"cove run, nothing runs", situation{}, byProgram},
		{"cove run, a server answers", situation{answers: true}, byServer},
		{"cove run --server", situation{named: true, answers: true}, byServer},
		{"cove run --set, a server answers that has it otherwise", situation{answers: true, differs: true}, byProgram},
		{"cove run --set --server: the settings are the server's", situation{named: true, answers: true, differs: true},
			byServer},
		{"cove doctor, nothing runs", situation{own: true}, byProgram},
		{"cove doctor, a server answers", situation{own: true, answers: true}, byProgram},
		{"cove doctor --server: it is about this machine", situation{own: true, named: true, answers: true}, byProgram},
		{"cove-server run, nothing runs", situation{linked: true}, byDaemon},
		{"cove-server run, a server answers", situation{linked: true, answers: true}, byServer},
		{"cove-server run --set, a server answers that has it otherwise",
			situation{linked: true, answers: true, differs: true}, byDaemon},
		{"cove-server doctor", situation{linked: true, own: true, answers: true}, byDaemon},
	} {
		if got := c.s.place(); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestFits(t *testing.T) {
	for _, c := range []struct {
		program string
		linked  bool
		want    cove.Code
	}{
		{"1.2.3", true, ""},
		{"1.2.2", true, cove.Unavailable},
		{"1.2.3", false, cove.Unavailable}, // it would put itself into its own place
	} {
		err := fits("1.2.3", c.program, c.linked)
		if cove.ErrorCode(err) != c.want || (cove.ErrorHint(err) == "") != (c.want == "") {
			t.Errorf("%+v: %v, %q", c, err, cove.ErrorHint(err))
		}
	}
}
