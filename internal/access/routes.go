package access

import "maps"

const (
	aboutInstalls = "what is installed on a machine is the same for every caller"
	aboutProfiles = "profiles are the machine's; what of them is the owner's is left out"
	aboutDocs     = "documentation"

	ownersClients = "the clients of the gateway are the machine owner's"
	ownersPool    = "the sandboxes that a machine prepares are for its owner"
	ownersBackup  = "a backup holds the data of all callers"
	ownersStore   = "the store of repositories is for the machine's owner"
	ownersModels  = "the models of this machine's providers are its owner's to ask"
	ownersSecrets = "the credentials of a machine are for its owner"
	ownersImages  = "the images of a machine are for all of its users, and named by its owner"
	ownersWork    = "what leaves a sandbox through the machine is for its owner"
)

// everywhere are the routes of every server: requests that wait, records, its state and its documentation.
var everywhere = Table{
	"GET /network/holds":             scoped(Approve, Read),
	"POST /network/holds/{id}":       scoped(Approve),
	"GET /network/approvals":         scoped(Approve, Read),
	"DELETE /network/approvals/{id}": scoped(Approve),
	"GET /network/decisions":         scoped(Read),
	"GET /network/decisions/stream":  scoped(Read),
	"GET /audit":                     scoped(Read),
	"GET /audit/verify":              scoped(Admin).same("it counts the records of the log, and shows none"),

	"GET /health":       forAnyone("it counts, and names no object"),
	"GET /metrics":      scoped(Metrics, Admin).same("they count what the whole server does, and name no object"),
	"GET /docs":         forAnyone(aboutDocs),
	"GET /docs/{file}":  forAnyone(aboutDocs),
	"GET /openapi.json": forKnown(aboutDocs),
}

// withEverywhere adds the routes of every server to those of one.
func withEverywhere(t Table) Table {
	maps.Copy(t, everywhere)
	return t
}

// Routes are the routes of a server that runs sandboxes.
var Routes = withEverywhere(Table{
	"POST /execute":                 scoped(Run),
	"POST /execute/stream":          scoped(Run),
	"GET /executions":               scoped(Run, Read),
	"GET /executions/{id}":          scoped(Run, Read),
	"GET /executions/{id}/stream":   scoped(Run, Read),
	"POST /executions/{id}/stdin":   scoped(Run),
	"DELETE /executions/{id}":       scoped(Run),
	"GET /executions/{id}/ca":       scoped(Run, Read),
	"POST /executions/{id}/network": scoped(Approve),
	"POST /generate":                forOwner(ownersModels),

	"POST /sandboxes":                                    scoped(Sandboxes),
	"POST /sandboxes/check":                              scoped(Sandboxes),
	"GET /sandboxes":                                     scoped(Sandboxes, Agents, Read),
	"GET /sandboxes/{sandbox}":                           scoped(Sandboxes, Agents, Read),
	"PATCH /sandboxes/{sandbox}":                         scoped(Sandboxes),
	"DELETE /sandboxes/{sandbox}":                        scoped(Sandboxes),
	"POST /sandboxes/{sandbox}/start":                    scoped(Sandboxes),
	"POST /sandboxes/{sandbox}/stop":                     scoped(Sandboxes),
	"POST /sandboxes/{sandbox}/pause":                    scoped(Sandboxes),
	"POST /sandboxes/{sandbox}/resume":                   scoped(Sandboxes),
	"POST /sandboxes/{sandbox}/commit":                   forOwner(ownersImages),
	"GET /sandboxes/{sandbox}/network":                   scoped(Sandboxes, Read),
	"POST /sandboxes/{sandbox}/network":                  scoped(Approve),
	"GET /sandboxes/{sandbox}/ca":                        scoped(Sandboxes, Read),
	"POST /sandboxes/{sandbox}/exec":                     scoped(Sandboxes),
	"POST /sandboxes/{sandbox}/exec/{id}/signal":         scoped(Sandboxes),
	"GET /sandboxes/{sandbox}/terminal":                  scoped(Sandboxes),
	"GET /sandboxes/{sandbox}/terminals":                 scoped(Sandboxes, Read),
	"GET /sandboxes/{sandbox}/terminals/{terminal}/text": scoped(Sandboxes, Read),
	"DELETE /sandboxes/{sandbox}/terminals/{terminal}":   scoped(Sandboxes),
	"GET /sandboxes/{sandbox}/ports/{port}":              scoped(Sandboxes),

	"POST /sandboxes/{sandbox}/import": scoped(Sandboxes, Agents),
	"GET /sandboxes/{sandbox}/diff":    scoped(Sandboxes, Agents, Read),
	"GET /sandboxes/{sandbox}/log":     scoped(Sandboxes, Agents, Read),
	"GET /sandboxes/{sandbox}/changes": scoped(Sandboxes, Agents, Read),
	"GET /sandboxes/{sandbox}/held":    scoped(Sandboxes, Agents, Read),
	"GET /sandboxes/{sandbox}/commits": scoped(Sandboxes, Agents, Read),
	"GET /sandboxes/{sandbox}/work":    scoped(Sandboxes, Agents, Read),
	"POST /sandboxes/{sandbox}/apply":  forOwner(ownersWork),
	"POST /sandboxes/{sandbox}/push":   forOwner(ownersWork),
	"POST /sandboxes/{sandbox}/pull":   forOwner(ownersWork),

	"POST /uploads": scoped(Sandboxes, Agents),
	"GET /pool":     forOwner(ownersPool),
	"PUT /pool":     forOwner(ownersPool),
	"DELETE /pool":  forOwner(ownersPool),

	"POST /backup": forOwner(ownersBackup),

	"GET /repositories":          forOwner(ownersStore),
	"POST /repositories":         forOwner(ownersStore),
	"DELETE /repositories":       forOwner(ownersStore),
	"POST /repositories/collect": forOwner(ownersStore),

	"POST /runs":                            scoped(Agents),
	"POST /runs/check":                      scoped(Agents),
	"GET /runs":                             scoped(Agents, Read),
	"GET /runs/{run}":                       scoped(Agents, Read),
	"GET /runs/{run}/events":                scoped(Agents, Read),
	"GET /runs/{run}/export":                scoped(Agents, Read),
	"GET /runs/{run}/recordings/{terminal}": scoped(Agents, Read),
	"POST /runs/{run}/interrupt":            scoped(Agents),
	"DELETE /runs/{run}":                    scoped(Agents),

	"GET /agents":                     forKnown(aboutInstalls),
	"POST /agents/{agent}/install":    scoped(Admin).same(aboutInstalls),
	"DELETE /agents/{agent}/versions": scoped(Admin).same(aboutInstalls),
	"GET /agents/{agent}/doctor":      scoped(Admin).same(aboutInstalls),

	"GET /keys":                    scoped(Scopes...),
	"GET /runtimes":                forKnown(aboutInstalls),
	"GET /profiles":                forKnown(aboutProfiles),
	"GET /profiles/{profile}":      forKnown(aboutProfiles),
	"GET /settings":                scoped(Admin).same("digests of the machine's settings"),
	"GET /credentials":             forOwner(ownersSecrets),
	"PUT /credentials/environment": forOwner(ownersSecrets),
})

// GatewayRoutes are the routes of a gateway of its own, whose clients are the machine owner's.
var GatewayRoutes = withEverywhere(Table{
	"POST /clients":                forOwner(ownersClients),
	"GET /clients":                 scoped(Read),
	"DELETE /clients/{name}":       scoped(Admin),
	"POST /clients/{name}/network": scoped(Approve),
	"GET /clients/{name}/ca":       scoped(Read),
	"POST /clients/{name}/sockets": forOwner(ownersClients),
})
