package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
)

func TestBuildSecrets(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"key": "of the file\n", "large": strings.Repeat("x", maxSecret+1)} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	absolute, _ := filepath.Abs("key")
	lookup := func(name string) string { return map[string]string{"TOKEN": "of the environment"}[name] }
	for text, want := range map[string]string{
		"id=a,src=" + absolute: "of the file\n", "id=a,source=key": "of the file\n", "id=key": "of the file\n",
		"id=a,env=TOKEN": "of the environment", "id=TOKEN": "of the environment",
		"type=env,id=a,env=TOKEN": "of the environment",
	} {
		got, err := buildSecrets([]string{text}, lookup)
		if err != nil || len(got) != 1 {
			t.Errorf("%s: %v, %v", text, got, err)
		}
		for _, value := range got {
			if value.Reveal() != want {
				t.Errorf("%s is %q", text, value.Reveal())
			}
		}
	}
	for text, want := range map[string]cove.Code{
		"": cove.InvalidArgument, "src=key": cove.InvalidArgument, "id=": cove.InvalidArgument, "key": cove.InvalidArgument,
		"id=a,src=key,env=TOKEN": cove.InvalidArgument, "id=a,mode=400": cove.InvalidArgument,
		"id=a,type=ssh": cove.InvalidArgument, "id=a,env=NONE": cove.NotFound, "id=none": cove.NotFound,
		"id=a,src=large": cove.TooLarge,
	} {
		if _, err := buildSecrets([]string{text}, lookup); cove.ErrorCode(err) != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
