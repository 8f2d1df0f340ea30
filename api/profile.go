package api

// Profile is a named configuration for sandboxes and agents, as the server's
// file of profiles has it. What a request says itself goes before it.
type Profile struct {
	Name         string `json:"name" yaml:"name,omitempty" example:"careful"`
	Description  string `json:"description,omitempty" yaml:"description,omitempty" doc:"For people"`
	Mode         string `json:"mode,omitempty" yaml:"mode,omitempty" enum:"container,none" doc:"How strong the wall is: container (default), or none, which has agents work on the machine itself"`
	Spec         `yaml:",inline"`
	Agent        string     `json:"agent,omitempty" yaml:"agent,omitempty" doc:"For runs that name none"`
	Provider     string     `json:"provider,omitempty" yaml:"provider,omitempty" doc:"Whose models its agents use; the agent's own when absent"`
	Model        string     `json:"model,omitempty" yaml:"model,omitempty" doc:"Which of them; the agent's own choice when absent"`
	Access       string     `json:"access,omitempty" yaml:"access,omitempty" enum:"intercept,proxy,token-file" doc:"How agents get at models: intercept (default), where requests to the provider get their key on the way out; proxy, at an address of the gateway's; or token-file, where the sandbox holds a real token, which whatever runs in it can read"`
	TokenFile    *TokenFile `json:"token_file,omitempty" yaml:"token_file,omitempty" doc:"The token of access token-file"`
	Instructions string     `json:"instructions,omitempty" yaml:"instructions,omitempty" doc:"What agents are told beside their own"`
	MaxTurns     int        `json:"max_turns,omitempty" yaml:"max_turns,omitempty" minimum:"1" doc:"Answers of the model in a run"`
	AgentOptions `yaml:",inline"`
	AgentConfig  string          `json:"agent_config,omitempty" yaml:"agent_config,omitempty" doc:"What of a user's own configuration of the agent the command line brings into sandboxes: true, false, or kinds such as skills, commands" example:"true"`
	WithIgnored  []string        `json:"with_ignored,omitempty" yaml:"with_ignored,omitempty" maxItems:"100" doc:"Paths that git ignores in a directory, which the command line has copied into sandboxes where they are there" example:"[\"node_modules\"]"`
	Timeout      Seconds         `json:"timeout,omitempty" yaml:"timeout,omitempty" doc:"Of an execution or a run"`
	Network      *ProfileNetwork `json:"network,omitempty" yaml:"network,omitempty"`
	Shared       bool            `json:"shared,omitempty" yaml:"shared,omitempty" doc:"Runs on a repository work in one sandbox, which stays, each in a checkout of its own"`
	SharedName   string          `json:"shared_name,omitempty" yaml:"shared_name,omitempty" doc:"Name of that sandbox, which is made up when absent; with it, shared need not be said"`
	Git          *ProfileGit     `json:"git,omitempty" yaml:"git,omitempty"`
	Problem      string          `json:"problem,omitempty" yaml:"-" doc:"The reason why the profile cannot be used; its other fields may be incomplete then"`
}

// TokenFile is a real token that sandboxes of a profile hold.
type TokenFile struct {
	Path     string `json:"path" yaml:"path" doc:"Of the file on the machine, whose content it is"`
	Variable string `json:"variable" yaml:"variable" doc:"In which agents look for it" example:"ANTHROPIC_API_KEY"`
}

// ProfileNetwork describes the network of a profile's sandboxes.
type ProfileNetwork struct {
	Mode        string       `json:"mode,omitempty" yaml:"mode,omitempty" enum:"none,limited,host-only,open"`
	Allow       []string     `json:"allow,omitempty" yaml:"allow,omitempty" doc:"HOST, *.HOST, ADDRESS or CIDR, each with :PORT or without (80 and 443)"`
	Deny        []string     `json:"deny,omitempty" yaml:"deny,omitempty" doc:"The same; what is denied wins"`
	Presets     []string     `json:"presets,omitempty" yaml:"presets,omitempty" doc:"Names of sets of rules that come with Cove, as \"cove policy presets\" lists them" example:"[\"npm\",\"pypi\"]"`
	PassThrough []string     `json:"pass_through,omitempty" yaml:"pass_through,omitempty" doc:"HOST, *.HOST, ADDRESS or CIDR, each with :PORT or without (80 and 443), allowed without a look into the connections: for programs that do not accept the sandbox's authority"`
	Policy      string       `json:"policy,omitempty" yaml:"policy,omitempty" doc:"A policy document, YAML"`
	Credentials []string     `json:"credentials,omitempty" yaml:"credentials,omitempty" doc:"Names of credentials of the machine"`
	Providers   []string     `json:"providers,omitempty" yaml:"providers,omitempty" doc:"Names of model providers that are reached at the gateway's own address"`
	Budget      *ModelBudget `json:"budget,omitempty" yaml:"budget,omitempty"`
}

// ProfileGit is how sandboxes of a profile work with git.
type ProfileGit struct {
	GitIdentity `yaml:",inline"`
	AllowPR     bool `json:"allow_pr,omitempty" yaml:"allow_pr,omitempty" doc:"Pull requests may be opened and commented on"`
}

// ProfileList is the answer of GET /profiles.
type ProfileList struct {
	Profiles []Profile `json:"profiles" nullable:"false"`
}
