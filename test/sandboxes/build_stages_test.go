package sandboxes

import (
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/test/debian"
)

// TestBuildStages: stages that do not need each other are built side by side. Two commands wait for each other by a
// cache that both have; then one fails while the other goes on, whose sandbox ends with it.
func TestBuildStages(t *testing.T) {
	made := debian.Root(t)
	l := newLab(t)
	l.must("cp", "-a", made, l.in("root"))
	l.must("cove", "image", "import", "dir:"+l.in("root"), "--name", "debian")
	const meets = "RUN --mount=type=cache,id=meeting,target=/c touch /c/%s && " +
		"for i in $(seq 600); do [ -e /c/%s ] && break; sleep 0.1; done && [ -e /c/%s ] && "
	meet := func(own, other, then string) string {
		return strings.NewReplacer("touch /c/%s", "touch /c/"+own, "/c/%s", "/c/"+other).Replace(meets) + then + "\n"
	}
	out, err := l.built("FROM debian AS one\n"+meet("one", "two", "echo 1 >/one")+"FROM debian AS two\n"+
		meet("two", "one", "echo 2 >/two")+"FROM debian\nCOPY --from=one /one /\nCOPY --from=two /two /\n", "-t", "both")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if said := l.must("cove", "run", "--image", "both", "sh", "-c", "cat /one /two"); said != "1\n2\n" {
		t.Errorf("the image has %q", said)
	}
	out, err = l.built("FROM debian AS long\n" + meet("three", "four", "sleep 1000") + "FROM debian AS fails\n" +
		meet("four", "three", "exit 7") + "FROM debian\nCOPY --from=long /etc /l\nCOPY --from=fails /etc /f\n")
	if err == nil || !strings.Contains(out, "exit code 7") || !strings.Contains(out, "CANCELED") {
		t.Errorf("where one fails: %v\n%s", err, out)
	}
	if left := l.unfinished(); len(left) > 0 {
		t.Errorf("there is %q", left)
	}
}
