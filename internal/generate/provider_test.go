package generate

import (
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	providers "github.com/cove-sandbox/cove/internal/egress/model"
)

const described = `providers:
  - {name: chatty, kind: openai, base_url: "https://models.test/v1", endpoints: [chat/completions], models: ["small-*"]}
  - {name: newer, kind: openai, base_url: "https://models.test/v1", endpoints: [responses]}
  - {name: vectors, kind: openai, base_url: "https://models.test/v1", endpoints: [embeddings]}
`

// TestProviders: which providers a question may go to that names none, and how each is asked.
func TestProviders(t *testing.T) {
	all, err := providers.Parse("providers.yaml", []byte(described))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"": "anthropic anthropic, chatty openai-chat, newer openai-responses, openai openai-responses, " +
			"openrouter openai-chat",
		"claude-9": "anthropic anthropic, newer openai-responses, openai openai-responses, openrouter openai-chat",
		"small-1": "chatty openai-chat, newer openai-responses, openai openai-responses, openrouter openai-chat, " +
			"anthropic anthropic",
	} {
		var got []string
		for _, p := range suitable(all, name) {
			dialect, err := dialectOf(p)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, p.Name+" "+string(dialect))
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%q: %s", name, strings.Join(got, ", "))
		}
	}
	for _, p := range []providers.Provider{
		{Name: "cloud", Kind: "bedrock", Endpoints: []providers.Endpoint{providers.Messages}},
		{Name: "vectors", Kind: providers.OpenAI, Endpoints: []providers.Endpoint{providers.Embeddings}},
	} {
		if _, err := dialectOf(&p); cove.ErrorCode(err) != cove.Unsupported || !strings.Contains(err.Error(), p.Name) {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
}
