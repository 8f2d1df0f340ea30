package compose

import (
	"maps"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
)

func TestEnv(t *testing.T) {
	known := map[string]string{"K": "known"}
	got, unset, err := Env(File{".env", []byte("A=1\nB=\"$A ${K}\" # c\n# D=4\nexport E='$A'\n" +
		"F=${NO-x}${NOT:-y}\nG=$N2 $N\nH='$LITERAL'\n")}, false, known)
	if want := map[string]string{"A": "1", "B": "1 known", "E": "$A", "F": "xy", "G": " ",
		"H": "$LITERAL"}; err != nil || !maps.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	if !maps.Equal(unset, map[string]int{"N": 6, "N2": 6}) {
		t.Errorf("without a value: %v", unset)
	}
	got, unset, err = Env(File{".env", []byte("A=\"$K\"\r\n#B=1\n")}, true, known)
	if want := map[string]string{"A": `"$K"`}; err != nil || !maps.Equal(got, want) || len(unset) > 0 {
		t.Errorf("as it is: %q, %v", got, err)
	}
	doubles := "A=" + strings.Repeat("a", 60<<10) + "\n"
	for range maxEnvSplices / 2 {
		doubles += "A=$A$A\n"
	}
	for name, text := range map[string]string{"doubles": doubles, "doubles often": strings.Repeat("A=$A$A\n", 60),
		"large": strings.Repeat("#", maxEnv+1)} {
		if _, _, err := Env(File{".env", []byte(text)}, false, nil); cove.ErrorCode(err) != cove.TooLarge {
			t.Errorf("%s: %.200v", name, err)
		}
	}
	if _, _, err := Env(File{".env", []byte("A B=\x01${")}, false, nil); cove.ErrorCode(err) != cove.InvalidArgument {
		t.Errorf("no file of variables: %v", err)
	}
	if line := EnvLine(File{"", []byte("A=1\n export B=2\nA=3")}, "A"); line != 3 {
		t.Errorf("line %d", line)
	}
}
