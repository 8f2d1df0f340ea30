package server

import (
	"io"
	"os"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/secret"
)

// maxSecret is the most bytes of a secret of a build.
const maxSecret = 64 << 10

// buildSecrets reads secrets: id=NAME with src=FILE or env=VARIABLE; without, the variable NAME, else the file NAME.
func buildSecrets(all []string, lookup func(string) string) (map[string]secret.Value, error) {
	secrets := map[string]secret.Value{}
	for _, text := range all {
		var id, file, env string
		for part := range strings.SplitSeq(text, ",") {
			name, value, _ := strings.Cut(part, "=")
			switch {
			case value == "":
				return nil, badSecret(text, "%q has no value", part)
			case name == "id":
				id = value
			case name == "src" || name == "source":
				file = value
			case name == "env":
				env = value
			case name == "type" && (value == "file" || value == "env"):
			default:
				return nil, badSecret(text, "%q is none of id, src, env and type", name)
			}
		}
		switch {
		case id == "":
			return nil, badSecret(text, "it has no id")
		case file != "" && env != "":
			return nil, badSecret(text, "it has both src and env")
		case file == "" && env == "" && lookup(id) != "":
			env = id
		case file == "" && env == "":
			file = id
		}
		value, err := readSecret(id, file, env, lookup)
		if err != nil {
			return nil, err
		}
		secrets[id] = value
	}
	return secrets, nil
}

func badSecret(text, format string, args ...any) error {
	return cove.Errorf(cove.InvalidArgument, "--secret %.200q: "+format, append([]any{text}, args...)...).
		WithHint("write id=NAME,src=FILE or id=NAME,env=VARIABLE")
}

func readSecret(id, file, env string, lookup func(string) string) (v secret.Value, err error) {
	if env != "" {
		if value := lookup(env); value != "" {
			return secret.New(value), nil
		}
		return v, cove.Errorf(cove.NotFound, "the secret %.80q: the variable %.80s is empty, or not there", id, env)
	}
	f, err := os.Open(file)
	if err != nil {
		return v, cove.Errorf(cove.NotFound, "the secret %.80q: %w", id, err).
			WithHint("write --secret id=%s,src=FILE or --secret id=%s,env=VARIABLE", id, id)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	switch {
	case err != nil:
		return v, cove.Errorf(cove.InvalidArgument, "the secret %.80q: %w", id, err)
	case len(data) > maxSecret:
		return v, cove.Errorf(cove.TooLarge, "the secret %.80q has more than %d bytes", id, maxSecret)
	}
	return secret.New(string(data)), nil
}
