package execution

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/access"
)

// given reports whether a turn has been given.
func given(t *turn) bool {
	select {
	case <-t.given:
		return true
	default:
		return false
	}
}

// caller returns a caller of the tests by its name: the machine's owner for "O", else the holder of a key.
func caller(name string) cove.Principal {
	if name == "O" {
		return cove.MachineOwner()
	}
	return cove.KeyHolder(name)
}

// TestLine has callers, by letters, ask for places, and ends executions one by one. The result is the order in which
// they get them, and who is refused.
func TestLine(t *testing.T) {
	for _, c := range []struct {
		name        string
		limit, most int
		slots       int // 0: as many as places
		rests       int // executions that rest once they have begun
		atOnce      map[string]int
		arrive      string
		served      string
		refused     string
	}{
		{name: "one caller is served in its order", limit: 1, most: 8, arrive: "aaaa", served: "aaaa"},
		{name: "a flood delays another by no turn of its own", limit: 1, most: 40, arrive: "aaaaaaaab", served: "abaaaaaaa"},
		{name: "nor with many places", limit: 3, most: 40, arrive: "aaaaaaaabb", served: "aaababaaaa"},
		{name: "callers take turns", limit: 1, most: 40, arrive: "aaaabbbbcccc", served: "abcabcabcabc"},
		{name: "one alone gets three quarters of the line", limit: 1, most: 8, arrive: "aaaaaaaaa", served: "aaaaaaa",
			refused: "aa"},
		{name: "the rest is for others", limit: 1, most: 8, arrive: "aaaaaaaaab", served: "abaaaaaa", refused: "aa"},
		{name: "and shared among them", limit: 1, most: 8, arrive: "aaaaaaaaabbbc", served: "abcaaaaaa", refused: "aabb"},
		{name: "the machine's owner has the whole line", limit: 1, most: 8, arrive: "OOOOOOOOOO", served: "OOOOOOOOO",
			refused: "O"},
		{name: "and takes turns with others", limit: 1, most: 8, arrive: "OOOOOaOOO", served: "OaOOOOOOO"},
		{name: "a short line keeps a place, too", limit: 1, most: 2, arrive: "aaab", served: "aba", refused: "a"},
		{name: "a full line", limit: 1, most: 2, arrive: "abcd", served: "abc", refused: "d"},
		{name: "no line", limit: 2, most: 0, arrive: "abc", served: "ab", refused: "c"},
		{name: "a caller that may have one at once leaves places to others", limit: 2, most: 40,
			atOnce: map[string]int{"a": 1}, arrive: "aaab", served: "abaa"},
		{name: "slots bound what computes", limit: 8, slots: 1, most: 2, arrive: "aabb", served: "abab"},
		{name: "what waits for a slot waits beside the line", limit: 3, slots: 1, most: 2, arrive: "abcdef",
			served: "abcde", refused: "f"},
		{name: "one that rests makes room", limit: 3, slots: 1, rests: 2, most: 2, arrive: "abcdef", served: "abcde",
			refused: "f"},
		{name: "and keeps its place", limit: 2, slots: 1, rests: 9, most: 0, arrive: "abc", served: "ab", refused: "c"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLine(c.limit, c.most, c.slots, 1)
			var turns []*turn
			var refused string
			served := ""
			var open []*turn
			rests := c.rests
			note := func() {
				for i := 0; i < len(turns); i++ {
					if given(turns[i]) {
						name, key := turns[i].who.Key()
						if !key {
							name = "O"
						}
						begun := turns[i]
						served, open = served+name, append(open, begun)
						turns = slices.Delete(turns, i, i+1)
						if i--; rests > 0 {
							rests--
							l.rest(begun, 0)
							i = -1
						}
					}
				}
			}
			for name := range strings.SplitSeq(c.arrive, "") {
				turn, err := l.join(caller(name), c.atOnce[name], 0, 0)
				if err != nil {
					if cove.ErrorCode(err) != cove.Overloaded {
						t.Errorf("%v", err)
					}
					refused += name
					continue
				}
				turns = append(turns, turn)
				note()
			}
			for len(open) > 0 {
				l.leave(open[0], 0)
				open = open[1:]
				note()
			}
			if served != c.served || refused != c.refused {
				t.Errorf("served %q, refused %q; want %q, %q", served, refused, c.served, c.refused)
			}
			if l.inside != 0 || l.computing != 0 || l.waiting != 0 || len(l.parties) > len(c.served) {
				t.Errorf("what is left: %+v", l)
			}
		})
	}
}

// TestLineCountsRuns: a run counts among what a key has at once, though it takes no place.
func TestLineCountsRuns(t *testing.T) {
	l := newLine(8, 8, 0, 1)
	ci, g := cove.KeyHolder("ci"), access.Grant{Concurrent: 2}
	if err := l.hold(ci, g, false); err != nil {
		t.Fatal(err)
	}
	first, err := l.join(ci, 2, 0, 0)
	if err != nil || !given(first) {
		t.Fatalf("the second at once: %v", err)
	}
	err = l.hold(ci, g, false)
	if cove.ErrorCode(err) != cove.Overloaded || !strings.Contains(err.Error(), "concurrent") {
		t.Errorf("a third: %v", err)
	}
	waits, err := l.join(ci, 2, 0, 0)
	if err != nil || given(waits) {
		t.Errorf("an execution beyond what the key may have does not wait: %v", err)
	}
	if err := l.hold(ci, g, true); err != nil { // an earlier server had begun it
		t.Errorf("a run that goes on: %v", err)
	}
	l.drop(ci, 0)
	if given(waits) {
		t.Error("it begins though two are under way")
	}
	l.drop(ci, 0)
	if !given(waits) {
		t.Error("it does not begin when one has ended")
	}
	l.leave(first, 0)
	l.leave(waits, 0)
	if l.inside != 0 {
		t.Errorf("%+v", l)
	}
}

// FuzzLine drives a line by bytes and checks what it promises after each. It gives no more places than there are, and
// leaves none free that a waiting caller may have. It keeps the order of each caller's turns, and quotas. No caller
// gets two places while another, who may have one, waits.
func FuzzLine(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 128, 128, 2, 64, 200})
	f.Add([]byte{3, 3, 3, 3, 2, 1, 0, 150, 150, 90, 150})
	f.Fuzz(checkLine)
}

// TestLineAtRandom checks the same with sequences of chance.
func TestLineAtRandom(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		ops := make([]byte, 200)
		for i := range ops {
			ops[i] = byte(r.Uint32())
		}
		checkLine(t, ops)
	}
}

func checkLine(t *testing.T, ops []byte) {
	const callers, limit, slots, most = 4, 4, 3, 9
	l := newLine(limit, most, slots, 1)
	resting := map[*turn]bool{}
	names := []string{"O", "1", "2", "3"}
	atOnce := func(who cove.Principal) int { // the fourth caller may have two at once
		if who == caller("3") {
			return 2
		}
		return 0
	}
	waiting := map[cove.Principal][]*turn{}
	overtaken := map[*turn]map[cove.Principal]int{}
	var inside []*turn
	notice := func() {
		for range callers * most { // in the order in which they may have been given
			for who, turns := range waiting {
				for i, turn := range turns {
					if given(turn) && i > 0 {
						t.Fatalf("%v: turn %d is given before an earlier one", who, i)
					}
				}
				if len(turns) == 0 || !given(turns[0]) {
					continue
				}
				inside, waiting[who] = append(inside, turns[0]), turns[1:]
				delete(overtaken, turns[0])
				for other, all := range waiting {
					if other == who || len(all) == 0 || given(all[0]) {
						continue
					}
					if overtaken[all[0]] == nil {
						overtaken[all[0]] = map[cove.Principal]int{}
					}
					overtaken[all[0]][who]++
					if n := overtaken[all[0]][who]; n > 2 && atOnce(other) == 0 {
						t.Fatalf("%v has been overtaken %d times by %v", other, n, who)
					}
				}
				break
			}
		}
	}
	for _, op := range ops {
		who := caller(names[int(op)%callers])
		switch {
		case op < 128:
			turn, err := l.join(who, atOnce(who), 0, 0)
			if err == nil {
				waiting[who] = append(waiting[who], turn)
			} else if (len(waiting[who]) == 0 || who.IsOwner()) && l.inside+l.waiting < limit+most {
				t.Fatalf("%v is refused with room in the line: %v", who, err)
			}
		case op < 160 && len(waiting[who]) > 0:
			i := int(op/4) % len(waiting[who])
			if !l.quit(waiting[who][i], 0) {
				t.Fatal("a turn that waits cannot be taken back")
			}
			delete(overtaken, waiting[who][i])
			waiting[who] = slices.Delete(waiting[who], i, i+1)
		case op < 200 && len(inside) > 0:
			turn := inside[int(op)%len(inside)]
			resting[turn] = true
			l.rest(turn, 0)
		case len(inside) > 0:
			i := int(op) % len(inside)
			delete(resting, inside[i])
			l.leave(inside[i], 0)
			inside = slices.Delete(inside, i, i+1)
		}
		notice()
		busy, waits := map[cove.Principal]int{}, 0
		for _, turn := range inside {
			busy[turn.who]++
		}
		for who, turns := range waiting {
			waits += len(turns)
			if m := atOnce(who); m > 0 && busy[who] > m {
				t.Fatalf("%v has %d at once", who, busy[who])
			} else if len(turns) > 0 && len(inside) < limit && len(inside)-len(resting) < slots &&
				(m == 0 || busy[who] < m) {
				t.Fatalf("a place is free, and %v waits", who)
			}
		}
		if len(inside) != l.inside || l.inside > limit || len(inside)-len(resting) != l.computing ||
			l.computing > slots || waits != l.waiting || waits+len(inside) > limit+most {
			t.Fatalf("%d inside, %d resting, %d waiting: %+v", len(inside), len(resting), waits, l)
		}
		if len(l.parties) > callers {
			t.Fatalf("%d parties", len(l.parties))
		}
	}
}
