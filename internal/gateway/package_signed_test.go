package gateway

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/cove-sandbox/cove/internal/packages"
	"github.com/cove-sandbox/cove/internal/packages/cache"
	"github.com/cove-sandbox/cove/internal/packages/debian"
	"github.com/cove-sandbox/cove/internal/packages/debian/debiantest"
)

const (
	aptBase  = "http://deb.example.com/debian"
	deb      = aptBase + "/pool/main/t/tiny_1.0_amd64.deb"
	debIndex = aptBase + "/dists/stable/main/binary-amd64/Packages"
	debList  = aptBase + "/dists/stable/InRelease"
)

// aptLab is a repository of Debian's packages, with one package, beside the registries.
type aptLab struct {
	*registryLab
	key   debiantest.Key
	suite debiantest.Suite
}

func newAptLab(t *testing.T) *aptLab {
	t.Helper()
	now := time.Now().Truncate(time.Second)
	l := &aptLab{key: debiantest.NewKey(t, now, 0), suite: debiantest.Suite{Name: "stable", Date: now.Add(-time.Minute),
		Until: now.AddDate(0, 0, 7), Packages: map[string]map[string]string{
			"main/binary-amd64": {"pool/main/t/tiny_1.0_amd64.deb": "deb"}}}}
	ring := l.key.Ring(t)
	l.registryLab = newRegistryLab(t, func(o *Options) {
		o.Suites = func() []packages.Suite {
			return []packages.Suite{{Base: aptBase, Name: "stable", Components: []string{"main"},
				Architectures: []string{"amd64"}, Keyrings: [][]byte{ring}}}
		}
	})
	l.publish(t, l.key)
	l.serve(deb, says("deb"))
	l.serve(strings.Replace(deb, "tiny_", "other_", 1), says("other"))
	return l
}

// publish puts the suite where apt finds it, signed with a key.
func (l *aptLab) publish(t *testing.T, key debiantest.Key) {
	t.Helper()
	for at, content := range l.suite.Files(t, key) {
		l.serve(aptBase+"/"+at, says(content))
	}
}

// lasting is where the index of packages never changes.
func (l *aptLab) lasting(t *testing.T) string {
	t.Helper()
	for at := range l.suite.Files(t, l.key) {
		if strings.Contains(at, "by-hash") {
			return aptBase + "/" + at
		}
	}
	t.Fatal("there is none")
	return ""
}

// TestSignedPackages: what a key of apt vouches for is shared, over plain http too, and so are the indexes of packages
// at names that never change. The list itself is always asked for.
func TestSignedPackages(t *testing.T) {
	l := newAptLab(t)
	if g := ask(t, l.sandbox(t, allowAll), "GET", deb); g.body != "deb" || g.header.Get("X-Of") == "" {
		t.Fatalf("%+v", g)
	}
	l.serve(deb, says("changed on the way"))
	g := ask(t, l.sandbox(t, allowAll), "GET", strings.Replace(deb, "tiny_", "tiny%5f", 1))
	if g.body != "deb" || l.count(deb) != 1 || g.header.Get("Cache-Status") != "cove; hit" ||
		g.header.Get("Set-Cookie") != "" {
		t.Errorf("%+v, asked %d times", g, l.count(deb))
	}
	index := l.lasting(t)
	if n := l.count(index); n != 1 || l.count(debIndex) != 0 || l.count(debList) != 1 {
		t.Errorf("the gateway asked %d %d %d times", n, l.count(debIndex), l.count(debList))
	}
	// apt asks for a fresh one of each index.
	g = ask(t, l.sandbox(t, allowAll), "GET", index, "Cache-Control", "max-age=0")
	if !strings.HasPrefix(g.body, "Package: tiny") || l.count(index) != 1 || g.header.Get("Cache-Status") == "" {
		t.Errorf("%+v, asked %d times", g, l.count(index))
	}
	for _, at := range []string{debList, debIndex} {
		before := l.count(at)
		for range 2 {
			ask(t, l.sandbox(t, allowAll), "GET", at)
		}
		if l.count(at) != before+2 {
			t.Errorf("%s is answered by the cache", at)
		}
	}
	if c := l.cache.Counts(); c != (cache.Counts{Served: 2, Added: 2}) {
		t.Errorf("%+v", c)
	}
}

// TestSignedPackagesAfterUpdate: what a sandbox's own apt has brought is not fetched for the gateway again, and another
// process goes by what one has verified.
func TestSignedPackagesAfterUpdate(t *testing.T) {
	l := newAptLab(t)
	index := l.lasting(t)
	ask(t, l.sandbox(t, allowAll), "GET", index, "Cache-Control", "max-age=0")
	ask(t, l.sandbox(t, allowAll), "GET", deb)
	if c := l.cache.Counts(); c.Added != 2 || l.count(index) != 1 || l.count(debList) != 1 {
		t.Errorf("%+v, asked %d %d times", c, l.count(index), l.count(debList))
	}
	another := deb[:len(deb)-len("1.0_amd64.deb")] + "2.0_amd64.deb"
	l.serve(another, says("another"))
	l.gateway.signers.states = map[string]*signedSuite{} // a process begins with none
	for range 2 {
		ask(t, l.sandbox(t, allowAll), "GET", another)
	}
	if l.count(another) != 2 || l.count(index) != 1 || l.count(debList) != 1 {
		t.Errorf("asked %d %d %d times", l.count(another), l.count(index), l.count(debList))
	}
}

// TestUnsignedPackages: what no key of apt vouches for comes as it is, and is not stored.
func TestUnsignedPackages(t *testing.T) {
	for name, poison := range map[string]func(t *testing.T, l *aptLab){
		"another package": func(_ *testing.T, l *aptLab) { l.serve(deb, says("poison")) },
		"another key": func(t *testing.T, l *aptLab) {
			l.serve(deb, says("poison"))
			l.suite.Packages["main/binary-amd64"] = map[string]string{"pool/main/t/tiny_1.0_amd64.deb": "poison"}
			l.publish(t, debiantest.NewKey(t, l.suite.Date, 0))
		},
		"no signature": func(t *testing.T, l *aptLab) {
			text := l.suite.Files(t, l.key)["dists/stable/InRelease"]
			l.serve(debList, says(text[strings.Index(text, "Origin:"):strings.Index(text, "-----BEGIN PGP SIGNATURE")]))
		},
		"another suite": func(t *testing.T, l *aptLab) {
			l.suite.Name = "other"
			l.serve(debList, says(l.suite.Files(t, l.key)["dists/other/InRelease"]))
		},
		"an expired list": func(t *testing.T, l *aptLab) {
			l.suite.Until = l.suite.Date.Add(30 * time.Second)
			l.publish(t, l.key)
		},
		"a list of the future": func(t *testing.T, l *aptLab) {
			l.suite.Date = l.suite.Date.Add(time.Hour)
			l.publish(t, l.key)
		},
		"no list": func(_ *testing.T, l *aptLab) { l.serve(debList, nil) },
		"another index": func(t *testing.T, l *aptLab) {
			l.serve(l.lasting(t), says("Filename: pool/main/t/tiny_1.0_amd64.deb\nSHA256: "+hexOf("deb")+"\n"))
		},
		"no index": func(t *testing.T, l *aptLab) { l.serve(l.lasting(t), nil) },
		"an index without it": func(t *testing.T, l *aptLab) {
			l.suite.Packages["main/binary-amd64"] = map[string]string{"pool/main/t/tiny_1.1_amd64.deb": "deb"}
			l.publish(t, l.key)
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newAptLab(t)
			poison(t, l)
			for n := range 2 {
				g := ask(t, l.sandbox(t, allowAll), "GET", deb)
				if g.status != 200 || g.body == "" || g.header.Get("X-Of") == "" || l.count(deb) != n+1 {
					t.Errorf("%+v, asked %d times", g, l.count(deb))
				}
			}
			if s, ok := l.cache.Open(deb); ok {
				s.Close()
				t.Error("it is stored")
			}
			mismatched := int64(0)
			if name == "another package" {
				mismatched = 2
			}
			if c := l.cache.Counts(); c.Served != 0 || c.Mismatched != mismatched {
				t.Errorf("%+v", c)
			}
		})
	}
}

// TestRolledBackList: a list that is older than one that was seen is refused, by another process as well, and what the
// newer one stated stays where it was.
func TestRolledBackList(t *testing.T) {
	l := newAptLab(t)
	old := l.suite.Files(t, l.key)["dists/stable/InRelease"]
	oldIndex := l.lasting(t)
	l.suite.Date = l.suite.Date.Add(30 * time.Second)
	l.suite.Packages["main/binary-amd64"] = map[string]string{"pool/main/t/tiny_1.0_amd64.deb": "new"}
	l.publish(t, l.key)
	l.serve(deb, says("new"))
	ask(t, l.sandbox(t, allowAll), "GET", deb)
	l.serve(debList, says(old))
	l.serve(deb, says("deb"))
	l.clock.Advance(packageTrust + time.Second)
	for _, process := range []string{"the same", "another"} {
		if process == "another" {
			l.gateway.signers.states = map[string]*signedSuite{}
		}
		asked := l.count(debList)
		if g := ask(t, l.sandbox(t, allowAll), "GET", deb); g.body != "deb" || g.header.Get("X-Of") == "" {
			t.Errorf("%s process: %+v", process, g)
		}
		if l.count(debList) != asked+1 {
			t.Errorf("%s process does not ask again", process)
		}
		if s, ok := l.cache.Open(deb); !ok || s.Stated.SHA256 != hexOf("new") {
			t.Errorf("%s process: what the newer list stated is gone", process)
		} else {
			s.Close()
		}
		if g := ask(t, l.sandbox(t, allowAll), "GET", oldIndex); g.status != 200 || l.cache.Counts().Added != 2 {
			t.Errorf("%s process: %+v %+v", process, g, l.cache.Counts())
		}
	}
}

// TestListIsAskedAgain: after a while the list is asked for again, and a package goes that it does not state any more.
func TestListIsAskedAgain(t *testing.T) {
	l := newAptLab(t)
	ask(t, l.sandbox(t, allowAll), "GET", deb)
	l.clock.Advance(packageTrust + time.Second)
	if g := ask(t, l.sandbox(t, allowAll), "GET", deb); g.header.Get("Cache-Status") == "" || l.count(debList) != 2 {
		t.Errorf("%+v, the list was asked for %d times", g, l.count(debList))
	}
	l.suite.Date = l.suite.Date.Add(time.Second)
	l.suite.Packages["main/binary-amd64"] = map[string]string{"pool/main/t/tiny_1.0_amd64.deb": "new"}
	l.publish(t, l.key)
	l.serve(deb, says("new"))
	l.clock.Advance(packageTrust + time.Second)
	for n, want := range []string{"", "cove; hit"} {
		if g := ask(t, l.sandbox(t, allowAll), "GET", deb); g.body != "new" || g.header.Get("Cache-Status") != want {
			t.Errorf("%d: %+v", n, g)
		}
	}
	// Once it has expired, and no newer one comes, nothing is served by it.
	l.clock.Advance(8 * 24 * time.Hour)
	if g := ask(t, l.sandbox(t, allowAll), "GET", deb); g.header.Get("Cache-Status") != "" {
		t.Errorf("%+v", g)
	}
}

// TestListExpires: a list that expires before it is to be asked for again is asked for again then.
func TestListExpires(t *testing.T) {
	l := newAptLab(t)
	l.suite.Until = time.Now().Add(packageTrust / 2)
	l.publish(t, l.key)
	other := strings.Replace(deb, "tiny_", "other_", 1) // which the list does not state
	for _, asked := range []int{1, 1, 2} {
		if asked == 2 {
			l.clock.Advance(packageTrust/2 + time.Minute)
		}
		if ask(t, l.sandbox(t, allowAll), "GET", other); l.count(debList) != asked {
			t.Errorf("the list was asked for %d times, want %d", l.count(debList), asked)
		}
	}
}

// TestListPatience: a list that cannot be read is not asked for at the end of each file, and one sandbox's policy does
// not keep another from it.
func TestListPatience(t *testing.T) {
	l := newAptLab(t)
	ask(t, l.sandbox(t, "rules: [{hosts: deb.example.com, paths: '/debian/pool/**'}]"), "GET", deb)
	if l.count(debList) != 0 || l.cache.Counts().Added != 0 {
		t.Errorf("a list was asked for that the policy does not allow: %+v", l.cache.Counts())
	}
	var failing atomic.Bool
	failing.Store(true)
	list := l.suite.Files(t, l.key)["dists/stable/InRelease"]
	l.serve(debList, func(w http.ResponseWriter, r *http.Request) {
		if failing.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		says(list)(w, r)
	})
	one := l.sandbox(t, allowAll)
	for range 5 {
		ask(t, one, "GET", deb)
	}
	if n := l.count(debList); n != 1 {
		t.Errorf("asked %d times", n)
	}
	failing.Store(false)
	ask(t, l.sandbox(t, allowAll), "GET", deb)
	if l.cache.Counts().Added != 2 {
		t.Errorf("another sandbox does not fill the cache: %+v", l.cache.Counts())
	}
	l.clock.Advance(signedPause + time.Second)
	if g := ask(t, one, "GET", deb); g.header.Get("Cache-Status") == "" {
		t.Errorf("%+v", g)
	}
}

// TestSlowIndex: the end of a file waits for a slow index for a bounded time, and the next file finds the index read.
func TestSlowIndex(t *testing.T) {
	l := newAptLab(t)
	ask(t, l.sandbox(t, allowAll), "GET", l.lasting(t)) // the list and the index are there
	u, err := url.Parse(deb)
	if err != nil {
		t.Fatal(err)
	}
	s := l.gateway.signers
	f, ok := packages.FindSigned(u, s.trusted)
	if !ok {
		t.Fatal("it is not found")
	}
	begun, end, reads := make(chan struct{}), make(chan struct{}), 0
	s.read = func(body []byte, name string) (*debian.Index, error) {
		reads++
		close(begun)
		<-end
		return debian.ReadIndex(body, name)
	}
	a := &indexAsker{decider: &decider{}, indexes: semaphore.NewWeighted(maxIndexBytes)}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-begun
		cancel()
	}()
	if digest, answered := s.stated(ctx, a, f); digest != (packages.Digest{}) || answered {
		t.Errorf("%+v, %v", digest, answered)
	}
	close(end)
	if digest, _ := s.stated(t.Context(), a, f); digest.SHA256 != hexOf("deb") || reads != 1 {
		t.Errorf("%+v after %d reads", digest, reads)
	}
}

// TestSignedBesides: suites of one base are asked in the order of apt's sources, and a repository without names that
// never change is read by the names of its indexes.
func TestSignedBesides(t *testing.T) {
	l := newAptLab(t)
	trusted := l.gateway.signers.trusted()
	updates := trusted[0]
	updates.Name = "stable-updates"
	l.gateway.signers.suites = append(trusted, updates)
	later := debiantest.Suite{Name: "stable-updates", Date: l.suite.Date, Plain: true}
	later.Packages = map[string]map[string]string{
		"main/binary-amd64": {"pool/main/t/tiny_2.0_amd64.deb": "two"}}
	for at, content := range later.Files(t, l.key) {
		l.serve(aptBase+"/"+at, says(content))
	}
	two := strings.Replace(deb, "1.0", "2.0", 1)
	l.serve(two, says("two"))
	for range 2 {
		if g := ask(t, l.sandbox(t, allowAll), "GET", two); g.body != "two" {
			t.Errorf("%+v", g)
		}
	}
	if l.count(two) != 1 || l.count(aptBase+"/dists/stable-updates/main/binary-amd64/Packages") != 1 {
		t.Error(fmt.Sprint(l.asked))
	}
}
