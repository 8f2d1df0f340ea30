package api

// CredentialList is the answer of GET /credentials.
type CredentialList struct {
	Credentials []Credential `json:"credentials"`
	Reads       []string     `json:"reads" doc:"Variables of the server's environment that hold values of credentials, or lead to them"`
}

// Credential is a credential of the machine, without its value.
type Credential struct {
	Name      string   `json:"name"`
	Sources   []string `json:"sources" doc:"Where its value is looked for, in this order"`
	Variables []string `json:"variables" doc:"Variables of sandboxes that hold a placeholder"`
	State     string   `json:"state" enum:"ready,missing,untried" doc:"untried: a program has to be asked, which check does"`
	From      string   `json:"from,omitempty" doc:"The source that has a value"`
	Problem   string   `json:"problem,omitempty" doc:"Why there is no value"`
	Hint      string   `json:"hint,omitempty"`
}

// CredentialEnvironment is the body of PUT /credentials/environment.
type CredentialEnvironment struct {
	Variables map[string]string `json:"variables" maxProperties:"256" doc:"Name and value; none beside those that credentials read"`
}

// CredentialsTaken is the answer of PUT /credentials/environment.
type CredentialsTaken struct {
	Changed []string `json:"changed" doc:"Variables that are used from now on"`
	Kept    []string `json:"kept" doc:"Variables that differ from those of the server, which it goes on using: an administrator has started it"`
}

// SettingDigests is the answer of GET /settings.
type SettingDigests struct {
	Digests map[string]string `json:"digests" doc:"Of each setting, by its name: beginning of the SHA-256 of its value"`
}
