package httpapi

// Inputs embed the parameter of their path. huma reads exported fields only, so the types are exported.
type (
	// ExecutionPath names an execution.
	ExecutionPath struct {
		ID string `path:"id" doc:"The execution's id" example:"ex_0123456789abcdefghjkmnpqrs"`
	}
	// SandboxPath names a sandbox in the path of a route.
	SandboxPath struct {
		Sandbox string `path:"sandbox" maxLength:"128" doc:"Its name, its id, or the beginning of either that no other has" example:"brave-otter"`
	}
	// RunPath names a run.
	RunPath struct {
		Run string `path:"run" maxLength:"64" doc:"Its id, or the beginning of it that no other has" example:"ru_0123456789abcdefghjkmnpqrs"`
	}
	// AgentPath names an agent.
	AgentPath struct {
		Agent string `path:"agent" maxLength:"64" doc:"As GET /agents lists it" example:"claude"`
	}
	// ClientPath names a client of a gateway.
	ClientPath struct {
		Name string `path:"name" doc:"The client's name" example:"builder"`
	}
	// CompatQuery asks for answers in the form of older execute APIs; see docs/migrating.md.
	CompatQuery struct {
		Compat string `query:"compat" enum:"1" doc:"1: answers in the form of older execute APIs"`
	}
)
